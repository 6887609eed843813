//! What somebody who got at the database can do to the audit, and that it is seen and named.

use std::fs;

use sandstorm_store::testing::{anchored, look, meddle, rechain};
use sandstorm_store::{AuditKey, AuditReport, Store, StoreConfig, Tampering};

use crate::support::{Case, audit, on_both};

on_both!(
    a_modified_record_is_named,
    a_modified_record_with_a_hash_that_fits_is_named,
    the_last_record_is_held_by_the_head,
    deleted_records_are_named,
    an_inserted_record_is_named,
    a_record_appended_by_hand_is_named,
    reordered_records_are_named,
    a_cut_tail_is_seen_by_the_head_or_the_anchor,
    the_newest_records_are_held_by_the_next_anchor_at_the_latest,
    a_tail_that_was_cut_and_continued_is_seen,
    a_tail_written_anew_by_hand_is_seen,
    a_chain_written_anew_from_its_beginning_is_seen,
    a_foreign_chain_is_named,
    forged_checkpoints_are_named,
    a_meddled_anchor_is_named
);

/// 35 records, with checkpoints at 1, 10, 20 and 30.
async fn fill(case: &Case) {
    for index in 0..35 {
        case.store.record_audit(&audit(&format!("act.{index}"))).await.unwrap();
    }
    assert_eq!(verify(case).await.tampering, [], "sound before");
}

async fn verify(case: &Case) -> AuditReport {
    case.store.verify_audit(&case.config.audit_key, &case.config.audit_anchor).await.unwrap()
}

async fn run(case: &Case, statements: &[&str]) {
    for statement in statements {
        assert!(meddle(&case.store, statement).await.unwrap() > 0, "{statement}");
    }
}

async fn a_modified_record_is_named(case: Case) {
    fill(&case).await;
    for (column, value) in [
        ("object", "'x'"),
        ("decision", "'denied'"),
        ("tenant", "'nobody'"),
        ("at", "0"),
        ("monotonic_ms", "-1"),
        ("detail", "NULL"),
        ("request_id", "''"),
        ("prev_hash", "'00'"),
        ("hash", "'00'"),
    ] {
        let saved = format!("SELECT CAST({column} AS TEXT) AS value FROM audit WHERE seq = 15");
        let saved = look(&case.store, &saved).await.unwrap().remove(0);
        run(&case, &[&format!("UPDATE audit SET {column} = {value} WHERE seq = 15")]).await;
        let found = verify(&case).await.tampering;
        assert!(found.contains(&Tampering::Modified { seq: 15 }), "{column}: {found:?}");
        let quoted = if matches!(column, "at" | "monotonic_ms") { saved } else { format!("'{saved}'") };
        run(&case, &[&format!("UPDATE audit SET {column} = {quoted} WHERE seq = 15")]).await;
        assert_eq!(verify(&case).await.tampering, [], "{column} put back");
    }
    run(&case, &["UPDATE audit SET object = 'x' WHERE seq IN (1, 15, 35)"]).await;
    let wanted = [1, 15, 35].map(|seq| Tampering::Modified { seq });
    assert_eq!(verify(&case).await.tampering, wanted);
}

async fn a_modified_record_with_a_hash_that_fits_is_named(case: Case) {
    fill(&case).await;
    run(&case, &["UPDATE audit SET principal = 'somebody else' WHERE seq IN (15, 35)"]).await;
    rechain(&case.store, 15, 15, false).await.unwrap();
    assert_eq!(verify(&case).await.tampering, [15, 35].map(|seq| Tampering::Modified { seq }));
}

async fn the_last_record_is_held_by_the_head(case: Case) {
    fill(&case).await;
    run(&case, &["UPDATE audit SET principal = 'somebody else' WHERE seq = 35"]).await;
    rechain(&case.store, 35, 35, false).await.unwrap();
    assert_eq!(verify(&case).await.tampering, [Tampering::Modified { seq: 35 }]);
}

async fn deleted_records_are_named(case: Case) {
    fill(&case).await;
    run(&case, &["DELETE FROM audit WHERE seq IN (1, 2, 15, 20, 21)"]).await;
    let deleted = |from, to| Tampering::Deleted { from, to };
    assert_eq!(verify(&case).await.tampering, [deleted(1, 2), deleted(15, 15), deleted(20, 21)]);
    // Closing the gaps by new numbers does not hide them.
    run(
        &case,
        &["UPDATE audit SET seq = -seq WHERE seq > 20", "UPDATE audit SET seq = -2 - seq WHERE seq < 0"],
    )
    .await;
    let found = verify(&case).await.tampering;
    assert!(found.contains(&deleted(20, 21)), "{found:?}");
    assert!(found.contains(&Tampering::TruncatedTail { last: 33, expected: 35 }), "{found:?}");
}

/// Makes room at 15 and puts a copy of record 14 there.
const INSERT: [&str; 3] = [
    "UPDATE audit SET seq = -seq WHERE seq >= 15",
    "UPDATE audit SET seq = 1 - seq WHERE seq < 0",
    "INSERT INTO audit (node, seq, at, monotonic_ms, tenant, principal, action, object, decision, request_id, detail,
        prev_hash, hash) SELECT node, 15, at, monotonic_ms, tenant, principal, action, 'forged', decision, request_id,
        detail, prev_hash, 'forged' FROM audit WHERE seq = 14",
];

async fn an_inserted_record_is_named(case: Case) {
    fill(&case).await;
    run(&case, &INSERT).await;
    assert_eq!(verify(&case).await.tampering, [Tampering::Inserted { seq: 15 }]);
    // Also when it fits behind its predecessor.
    rechain(&case.store, 15, 15, false).await.unwrap();
    assert_eq!(verify(&case).await.tampering, [Tampering::Inserted { seq: 15 }]);
}

async fn a_record_appended_by_hand_is_named(case: Case) {
    fill(&case).await;
    let append = INSERT[2].replace("15", "36").replace("seq = 14", "seq = 35");
    run(&case, &[&append]).await;
    rechain(&case.store, 36, 36, false).await.unwrap();
    assert_eq!(verify(&case).await.tampering, [Tampering::Inserted { seq: 36 }]);
}

async fn reordered_records_are_named(case: Case) {
    fill(&case).await;
    let swap = |one: i64, two: i64| {
        [
            format!("UPDATE audit SET seq = 0 WHERE seq = {one}"),
            format!("UPDATE audit SET seq = {one} WHERE seq = {two}"),
            format!("UPDATE audit SET seq = {two} WHERE seq = 0"),
        ]
    };
    run(&case, &swap(12, 20).each_ref().map(String::as_str)).await;
    let moved = |seq, original| Tampering::Reordered { seq, original };
    assert_eq!(verify(&case).await.tampering, [moved(12, 20), moved(20, 12)]);
    run(&case, &swap(12, 20).each_ref().map(String::as_str)).await;
    assert_eq!(verify(&case).await.tampering, [], "put back");
    run(&case, &swap(12, 13).each_ref().map(String::as_str)).await;
    let found = verify(&case).await.tampering;
    assert!(found == [moved(12, 13)] || found == [moved(13, 12)], "{found:?}");
}

/// Cuts everything after 25, the database's own signs of it included.
const CUT: [&str; 3] = [
    "DELETE FROM audit WHERE seq > 25",
    "DELETE FROM audit_checkpoints WHERE seq > 25",
    "UPDATE audit_heads SET seq = 25, hash = (SELECT hash FROM audit WHERE seq = 25)",
];

async fn a_cut_tail_is_seen_by_the_head_or_the_anchor(case: Case) {
    fill(&case).await;
    run(&case, &CUT[..1]).await;
    assert_eq!(verify(&case).await.tampering, [Tampering::TruncatedTail { last: 25, expected: 35 }]);
    run(&case, &CUT[1..]).await;
    assert_eq!(verify(&case).await.tampering, [Tampering::TruncatedTail { last: 25, expected: 30 }]);
    run(&case, &["DELETE FROM audit", "UPDATE audit_heads SET seq = 0", "DELETE FROM audit_checkpoints"])
        .await;
    assert_eq!(verify(&case).await.tampering, [Tampering::TruncatedTail { last: 0, expected: 30 }]);
}

/// What no anchor covers is held by the head alone, which is in the database: whoever rewrites that too is not seen, and
/// the report says before how many records that goes for. From the next anchor on it is seen, by change or cut.
async fn the_newest_records_are_held_by_the_next_anchor_at_the_latest(case: Case) {
    fill(&case).await;
    assert_eq!(verify(&case).await.unanchored, 5, "31 to 35");
    run(&case, &["UPDATE audit SET object = 'x' WHERE seq = 33"]).await;
    assert_eq!(verify(&case).await.tampering, [Tampering::Modified { seq: 33 }]);
    rechain(&case.store, 33, 35, false).await.unwrap();
    assert_eq!(verify(&case).await.tampering, [Tampering::Modified { seq: 35 }], "the head has another");
    run(&case, &["DELETE FROM audit WHERE seq > 33"]).await;
    assert_eq!(verify(&case).await.tampering, [Tampering::TruncatedTail { last: 33, expected: 35 }]);
    // The window: with the head it is a shorter trail, of which no more than that can be missing.
    run(&case, &["UPDATE audit_heads SET seq = 33, hash = (SELECT hash FROM audit WHERE seq = 33)"]).await;
    let report = verify(&case).await;
    assert_eq!((report.tampering, report.last, report.unanchored), (vec![], 33, 3));
    // It closes without another hundred records.
    let store = case.reopen().await;
    store.anchor_recent().await.unwrap();
    assert_eq!(verify(&case).await.unanchored, 0);
    run(&case, &["UPDATE audit SET object = 'y' WHERE seq = 32", "DELETE FROM audit_checkpoints"]).await;
    rechain(&case.store, 32, 33, true).await.unwrap();
    let wanted = Tampering::TruncatedAndContinued { after: 30 };
    assert_eq!(verify(&case).await.tampering, [wanted]);
    run(
        &case,
        &[
            "DELETE FROM audit WHERE seq > 31",
            "UPDATE audit_heads SET seq = 31, hash = (SELECT hash FROM audit WHERE seq = 31)",
        ],
    )
    .await;
    assert_eq!(verify(&case).await.tampering, [Tampering::TruncatedTail { last: 31, expected: 33 }]);
}

async fn a_tail_that_was_cut_and_continued_is_seen(case: Case) {
    fill(&case).await;
    run(&case, &CUT).await;
    let store = case.reopen().await;
    for _ in 0..12 {
        store.record_audit(&audit("continued")).await.unwrap();
    }
    let wanted = [Tampering::Forked { seq: 30 }, Tampering::TruncatedAndContinued { after: 20 }];
    assert_eq!(verify(&case).await.tampering, wanted);
}

async fn a_tail_written_anew_by_hand_is_seen(case: Case) {
    fill(&case).await;
    run(&case, &["UPDATE audit SET object = 'x' WHERE seq = 22"]).await;
    rechain(&case.store, 22, 35, true).await.unwrap();
    assert_eq!(verify(&case).await.tampering, [Tampering::TruncatedAndContinued { after: 20 }]);
    run(&case, &["DELETE FROM audit_checkpoints"]).await;
    assert_eq!(
        verify(&case).await.tampering,
        [Tampering::TruncatedAndContinued { after: 20 }],
        "by the anchor alone"
    );
}

async fn a_chain_written_anew_from_its_beginning_is_seen(case: Case) {
    fill(&case).await;
    run(&case, &["UPDATE audit SET object = 'x' WHERE seq = 1"]).await;
    rechain(&case.store, 1, 35, true).await.unwrap();
    assert_eq!(verify(&case).await.tampering, [Tampering::Rewritten]);
    run(&case, &["DELETE FROM audit_checkpoints"]).await;
    assert_eq!(verify(&case).await.tampering, [Tampering::Rewritten], "by the anchor alone");
}

#[tokio::test]
async fn two_histories_of_one_node_are_named() {
    let case = Case::sqlite().await;
    fill(&case).await;
    let copy = case.path("copy.db");
    case.store.backup(&copy, &case.path("copy.anchor")).await.unwrap();
    let fork = Store::open(&StoreConfig { path: copy, ..case.config.clone() }).await.unwrap();
    for (store, action) in [(&case.store, "here"), (&fork, "there")] {
        for _ in 0..5 {
            store.record_audit(&audit(action)).await.unwrap();
        }
        anchored(store).await;
    }
    assert_eq!(verify(&case).await.tampering, [Tampering::Forked { seq: 40 }]);
    let there = fork.verify_audit(&case.config.audit_key, &case.config.audit_anchor).await.unwrap();
    let wanted = [Tampering::Forked { seq: 40 }, Tampering::TruncatedAndContinued { after: 30 }];
    assert_eq!(there.tampering, wanted);
}

async fn a_foreign_chain_is_named(case: Case) {
    fill(&case).await;
    let mut config = case.config.clone();
    config.audit_key = AuditKey::from_bytes([8; 32]);
    config.audit_anchor = case.path("other.anchor");
    let other = Store::open(&config).await.unwrap();
    for _ in 0..40 {
        other.record_audit(&audit("elsewhere")).await.unwrap();
    }
    let node = other.audit(None, 0, 1).await.unwrap()[0].node.clone();
    let report = verify(&case).await;
    if case.is_sqlite() {
        assert_eq!(report.tampering, [Tampering::ForeignChain { node: node.clone() }]);
    } else {
        // Several servers may share a PostgreSQL; each is verified with its own key.
        assert_eq!((report.tampering, report.other_nodes), (vec![], vec![node.clone()]));
        let theirs = other.verify_audit(&config.audit_key, &config.audit_anchor).await.unwrap();
        assert_eq!((theirs.tampering, theirs.records), (vec![], 40));
    }

    // Its records in place of ours, under our name.
    let ours = case.store.audit(None, 0, 1).await.unwrap()[0].node.clone();
    run(
        &case,
        &[
            &format!("DELETE FROM audit WHERE node = '{ours}'"),
            &format!("UPDATE audit SET node = '{ours}' WHERE node = '{node}' AND seq <= 35"),
        ],
    )
    .await;
    let found = verify(&case).await.tampering;
    assert!(
        found.contains(&Tampering::Modified { seq: 1 }) && found.contains(&Tampering::Modified { seq: 35 }),
        "{found:?}"
    );
    // Its anchor in place of ours.
    fs::copy(&config.audit_anchor, &case.config.audit_anchor).unwrap();
    let found = verify(&case).await.tampering;
    assert!(found.contains(&Tampering::ForeignChain { node }), "{found:?}");
    assert!(found.contains(&Tampering::AnchorMissing), "{found:?}");
}

async fn forged_checkpoints_are_named(case: Case) {
    fill(&case).await;
    // Signed as a mark, so it is no leave to remove anything.
    run(
        &case,
        &["DELETE FROM audit WHERE seq <= 10", "UPDATE audit_checkpoints SET kind = 'cut' WHERE seq = 10"],
    )
    .await;
    let found = verify(&case).await.tampering;
    assert_eq!(found, [Tampering::BadCheckpoint { seq: 10 }, Tampering::Deleted { from: 1, to: 10 }]);
    run(&case, &["UPDATE audit_checkpoints SET hash = 'x' WHERE seq = 20"]).await;
    assert!(verify(&case).await.tampering.contains(&Tampering::BadCheckpoint { seq: 20 }));
}

async fn a_meddled_anchor_is_named(case: Case) {
    fill(&case).await;
    let anchor = &case.config.audit_anchor;
    let text = fs::read_to_string(anchor).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "the beginning, and four");
    let bad = |line| Tampering::BadAnchor { line };
    let with = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let changed = lines[2].replace(" 10 ", " 11 ");
    for (content, wanted) in [
        (with(&lines[1..]), vec![bad(1)]),
        (with(&[lines[0], lines[2], lines[3], lines[4]]), vec![bad(2)]),
        (with(&[lines[0], lines[1], &changed, lines[3], lines[4]]), vec![bad(3)]),
        (with(&[lines[0], "nonsense", lines[1], lines[2], lines[3], lines[4]]), vec![bad(2)]),
        (with(&[lines[0], lines[1], lines[3], lines[2], lines[4]]), vec![bad(3), bad(4), bad(5)]),
        (String::new(), vec![Tampering::AnchorMissing]),
    ] {
        fs::write(anchor, content).unwrap();
        assert_eq!(verify(&case).await.tampering, wanted);
    }
    fs::remove_file(anchor).unwrap();
    assert_eq!(verify(&case).await.tampering, [Tampering::AnchorMissing]);
    // A restart does not make it good in silence, nor do later checkpoints.
    let store = case.reopen().await;
    assert_eq!(verify(&case).await.tampering, [Tampering::AnchorMissing]);
    store.checkpoint_audit().await.unwrap();
    assert!(verify(&case).await.tampering.contains(&bad(1)));
}
