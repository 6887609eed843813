//! The audit as it is written.

use sandstorm_store::testing::anchored;
use sandstorm_store::{Decision, Store, StoreConfig};
use sandstorm_types::TenantId;

use crate::support::{Case, audit, on_both};

on_both!(
    records_form_a_chain,
    parallel_writers_form_one_chain,
    checkpoints_are_anchored,
    an_empty_audit_is_sound,
    a_crash_before_the_anchor_is_made_good,
    half_a_line_of_the_anchor_is_no_tampering
);

async fn verify(case: &Case) -> sandstorm_store::AuditReport {
    case.store.verify_audit(&case.config.audit_key, &case.config.audit_anchor).await.unwrap()
}

async fn records_form_a_chain(case: Case) {
    let tenant = case.new_tenant("one").await;
    let mut denied = audit("sandbox.delete");
    denied.tenant = tenant;
    denied.decision = Decision::Denied;
    case.store.record_audit(&denied).await.unwrap();
    let rows = case.store.audit(None, 0, 10).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.seq).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(rows[1].prev_hash, rows[0].hash);
    assert_eq!((&rows[1].audit, rows[0].audit.action.as_str()), (&denied, "tenant.create"));
    assert_eq!(case.store.audit(Some(tenant), 0, 10).await.unwrap(), rows[1..]);
    assert_eq!(case.store.audit(Some(TenantId::LOCAL), 1, 10).await.unwrap(), []);
    assert_eq!(case.store.audit(None, 1, 10).await.unwrap(), rows[1..]);
    assert_eq!(verify(&case).await.tampering, []);
}

async fn parallel_writers_form_one_chain(case: Case) {
    // Two openings, as a server and a command line beside it.
    let other = case.reopen().await;
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..60 {
        let store = if index % 2 == 0 { case.store.clone() } else { other.clone() };
        tasks.spawn(async move { store.record_audit(&audit("act")).await.unwrap() });
    }
    tasks.join_all().await;
    let report = verify(&case).await;
    assert_eq!(report.tampering, []);
    assert_eq!((report.records, report.first, report.last), (60, 1, 60));
}

async fn checkpoints_are_anchored(case: Case) {
    for _ in 0..13 {
        case.store.record_audit(&audit("act")).await.unwrap();
    }
    let report = verify(&case).await;
    assert_eq!((report.checkpoints, report.unanchored), (2, 3), "at 1 and at 10");
    assert_eq!(case.store.checkpoint_audit().await.unwrap(), 13);
    let report = verify(&case).await;
    assert_eq!((report.checkpoints, report.unanchored), (3, 0));
    let anchor = std::fs::read_to_string(&case.config.audit_anchor).unwrap();
    assert_eq!(anchor.lines().count(), 4, "the beginning, and three");
    case.store.record_audit(&audit("act")).await.unwrap();
    case.store.close().await;
    assert_eq!(std::fs::read_to_string(&case.config.audit_anchor).unwrap().lines().count(), 5);
}

async fn an_empty_audit_is_sound(case: Case) {
    let report = verify(&case).await;
    assert_eq!((report.tampering, report.records, report.last), (vec![], 0, 0));
    assert_eq!(case.store.checkpoint_audit().await.unwrap(), 0);
}

async fn a_crash_before_the_anchor_is_made_good(case: Case) {
    for _ in 0..10 {
        case.store.record_audit(&audit("act")).await.unwrap();
    }
    anchored(&case.store).await;
    let anchor = std::fs::read_to_string(&case.config.audit_anchor).unwrap();
    // As if the process had ended between the commit of record 10 and its anchor, or of the first one and its anchor.
    for (kept, unanchored) in [(2, 9), (1, 10)] {
        let left: String = anchor.lines().take(kept).map(|line| format!("{line}\n")).collect();
        std::fs::write(&case.config.audit_anchor, left).unwrap();
        let report = verify(&case).await;
        assert_eq!((report.tampering, report.unanchored), (vec![], unanchored));
        case.reopen().await;
        let report = verify(&case).await;
        assert_eq!((report.tampering, report.unanchored), (vec![], 0));
    }
}

async fn half_a_line_of_the_anchor_is_no_tampering(case: Case) {
    case.store.record_audit(&audit("act")).await.unwrap();
    anchored(&case.store).await;
    let mut anchor = std::fs::read_to_string(&case.config.audit_anchor).unwrap();
    anchor.push_str("v1 node_");
    std::fs::write(&case.config.audit_anchor, &anchor).unwrap();
    assert_eq!(verify(&case).await.tampering, []);
    case.store.checkpoint_audit().await.unwrap();
    case.store.record_audit(&audit("act")).await.unwrap();
    case.store.checkpoint_audit().await.unwrap();
    assert_eq!(verify(&case).await.tampering, []);
}

#[tokio::test]
async fn the_key_is_made_once_and_kept_from_others() {
    use std::os::unix::fs::PermissionsExt;

    use sandstorm_store::AuditKey;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.key");
    let key = AuditKey::load_or_create(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes.len(), 32);
    assert!(!format!("{key:?}").contains(&format!("{bytes:?}")));
    AuditKey::load_or_create(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    // Both are the same node: the chain goes on.
    let config = StoreConfig::in_directory(directory.path(), None, key);
    Store::open(&config).await.unwrap().record_audit(&audit("act")).await.unwrap();
    let config = StoreConfig::in_directory(directory.path(), None, AuditKey::load_or_create(&path).unwrap());
    let store = Store::open(&config).await.unwrap();
    store.record_audit(&audit("act")).await.unwrap();
    assert_eq!(store.audit(None, 0, 10).await.unwrap().len(), 2);
    std::fs::write(&path, b"short").unwrap();
    assert!(AuditKey::load_or_create(&path).unwrap_err().to_string().contains("must hold 32 bytes, not 5"));
}
