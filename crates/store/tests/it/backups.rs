//! Copies of a store that goes on, each with its anchor.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use sandstorm_store::testing::{anchored, meddle};
use sandstorm_store::{AuditReport, Store, StoreConfig, StoreError, Tampering};

use crate::support::{Case, audit, on_both};

on_both!(a_backup_is_a_whole_store, an_anchor_that_was_copied_before_the_database_fits_it);

/// Where a copy and its anchor go.
fn names(case: &Case, number: usize) -> [PathBuf; 2] {
    [case.path(&format!("backup-{number}.db")), case.path(&format!("backup-{number}.db.anchor"))]
}

/// The copy as a server would have it.
fn restored(case: &Case, [database, anchor]: &[PathBuf; 2]) -> StoreConfig {
    StoreConfig { path: database.clone(), audit_anchor: anchor.clone(), ..case.config.clone() }
}

async fn verify(store: &Store, config: &StoreConfig) -> AuditReport {
    store.verify_audit(&config.audit_key, &config.audit_anchor).await.unwrap()
}

async fn fill(store: &Store, count: usize) {
    for _ in 0..count {
        store.record_audit(&audit("act")).await.unwrap();
    }
    anchored(store).await;
}

async fn a_backup_is_a_whole_store(case: Case) {
    let tenant = case.new_tenant("kept").await;
    let to = names(&case, 0);
    let result = case.store.backup(&to[0], &to[1]).await;
    if !case.is_sqlite() {
        let error = result.unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, StoreError::Unsupported { .. }), "{said}");
        assert!(said.contains("copy audit.anchor first, then run pg_dump"), "{said}");
        assert!(to.iter().all(|path| !path.exists()), "what was begun stayed");
        return;
    }
    assert_eq!(result.unwrap().tampering, []);
    for path in &to {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    for (kept, gone) in [(0, 1), (1, 0)] {
        fs::rename(&to[gone], case.path("aside")).unwrap();
        let error = case.store.backup(&to[0], &to[1]).await.expect_err("a backup replaces nothing");
        assert!(matches!(error, StoreError::File { .. }), "{error:?}");
        assert!(to[kept].exists() && !to[gone].exists(), "half a backup was made");
        fs::rename(case.path("aside"), &to[gone]).unwrap();
    }
    let left = fs::read_dir(case.directory.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("partial")), "{left:?}");

    let config = restored(&case, &to);
    let copy = Store::open(&config).await.unwrap();
    assert_eq!(copy.tenant(tenant).await.unwrap().unwrap().name, "kept");
    assert_eq!(verify(&copy, &config).await.tampering, []);
}

/// What to do with a database that others dump: the anchor first. All that it speaks of was committed before.
async fn an_anchor_that_was_copied_before_the_database_fits_it(case: Case) {
    fill(&case.store, 25).await;
    let early = case.path("early.anchor");
    fs::copy(&case.config.audit_anchor, &early).unwrap();
    fill(&case.store, 25).await;
    let report = case.store.verify_audit(&case.config.audit_key, &early).await.unwrap();
    assert_eq!((report.tampering, report.last), (vec![], 50));
}

/// While three write as fast as they can: each copy verifies with its anchor, has no record that the anchor does not
/// cover, and can be gone on with.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn twenty_backups_under_constant_writes_all_verify() {
    let case = Case::sqlite().await;
    fill(&case.store, 15).await;
    // Each backup reads all that was written, so a slow machine that wrote on and on meanwhile would never come to the end.
    let (written, most, over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let writing = async {
        while !over.load(Ordering::Relaxed) {
            if written.load(Ordering::Relaxed) >= most.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
            let record = || async { case.store.record_audit(&audit("act")).await.unwrap() };
            tokio::join!(record(), record(), record());
            written.fetch_add(3, Ordering::Relaxed);
        }
    };
    let copying = async {
        let mut ends = Vec::new();
        for number in 0..20 {
            let to = names(&case, number);
            let before = written.load(Ordering::Relaxed);
            most.store(before + 300, Ordering::Relaxed);
            while written.load(Ordering::Relaxed) == before {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let report = case.store.backup(&to[0], &to[1]).await.unwrap();
            assert_eq!((report.tampering, report.unanchored), (vec![], 0), "backup {number}");
            ends.push(report.last);
        }
        over.store(true, Ordering::Relaxed);
        ends
    };
    let ((), ends) = tokio::join!(writing, copying);
    assert!(ends.windows(2).all(|two| two[0] < two[1]), "nothing was written meanwhile: {ends:?}");
    for (number, last) in ends.into_iter().enumerate() {
        let config = restored(&case, &names(&case, number));
        let copy = Store::open(&config).await.unwrap();
        let report = verify(&copy, &config).await;
        assert_eq!((report.tampering, report.last, report.unanchored), (vec![], last, 0), "backup {number}");
        fill(&copy, 12).await;
        copy.close().await;
        let copy = Store::open(&config).await.unwrap();
        let report = verify(&copy, &config).await;
        assert_eq!((report.tampering, report.last), (vec![], last + 12), "backup {number} went on");
        copy.close().await;
    }
}

/// The other order, which says of a backup that its end was cut off.
#[tokio::test]
async fn an_anchor_that_is_copied_after_the_database_does_not_verify() {
    let case = Case::sqlite().await;
    fill(&case.store, 15).await;
    let to = names(&case, 0);
    case.store.backup(&to[0], &to[1]).await.unwrap();
    fill(&case.store, 30).await;
    fs::copy(&case.config.audit_anchor, &to[1]).unwrap();
    let config = restored(&case, &to);
    let copy = Store::open(&config).await.unwrap();
    let wanted = [Tampering::TruncatedTail { last: 15, expected: 40 }];
    assert_eq!(verify(&copy, &config).await.tampering, wanted);
}

/// Also the newest records, which the anchor of the running store does not cover yet.
#[tokio::test]
async fn what_is_done_to_a_backup_is_seen_to_its_last_record() {
    let case = Case::sqlite().await;
    fill(&case.store, 15).await;
    assert_eq!(verify(&case.store, &case.config).await.unanchored, 5);
    let to = names(&case, 0);
    case.store.backup(&to[0], &to[1]).await.unwrap();
    let config = restored(&case, &to);
    let copy = Store::open(&config).await.unwrap();
    for statement in [
        "DELETE FROM audit WHERE seq > 14",
        "UPDATE audit_heads SET seq = 14, hash = (SELECT hash FROM audit WHERE seq = 14)",
    ] {
        meddle(&copy, statement).await.unwrap();
    }
    let wanted = [Tampering::TruncatedTail { last: 14, expected: 15 }];
    assert_eq!(verify(&copy, &config).await.tampering, wanted);
}

/// What was done to the original is in the copy, is told, and is not signed.
#[tokio::test]
async fn a_backup_of_what_was_tampered_with_says_so() {
    let case = Case::sqlite().await;
    fill(&case.store, 15).await;
    meddle(&case.store, "UPDATE audit SET object = 'x' WHERE seq = 12").await.unwrap();
    let to = names(&case, 0);
    let report = case.store.backup(&to[0], &to[1]).await.unwrap();
    assert_eq!(report.tampering, [Tampering::Modified { seq: 12 }]);
    assert_eq!(fs::read(&to[1]).unwrap(), fs::read(&case.config.audit_anchor).unwrap());
    let config = restored(&case, &to);
    let copy = Store::open(&config).await.unwrap();
    assert_eq!(verify(&copy, &config).await.tampering, [Tampering::Modified { seq: 12 }]);
}
