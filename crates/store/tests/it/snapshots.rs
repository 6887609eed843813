//! Saved sandboxes.

use sandstorm_store::{
    EntryKind, LedgerBill, LedgerEntry, QuotaKind, SnapshotFilter, SnapshotRoom, SnapshotRow, SnapshotState,
    SpentBy, StoreError,
};
use sandstorm_types::{SandboxId, SandboxSpec, SnapshotId, TenantId, Timestamp, Usd};

use crate::support::{Case, at, audit, on_both};

on_both!(
    one_is_found_when_it_is_ready_and_by_its_owner_alone,
    a_name_goes_to_the_newest,
    ceilings_hold_for_many_at_once,
    what_is_not_ready_is_found_to_be_settled,
    keeping_one_is_charged_once,
);

const ROOM: SnapshotRoom = SnapshotRoom { count: 10, bytes: 1000 };

fn row(tenant: TenantId, created_at: i64) -> SnapshotRow {
    SnapshotRow {
        id: SnapshotId::random(),
        tenant,
        sandbox: SandboxId::random(),
        name: None,
        provider: "local".to_owned(),
        spec: SandboxSpec::default(),
        state: SnapshotState::Making,
        size_bytes: 0,
        created_at: at(created_at),
        key: "abcdefghijkl".to_owned(),
        charged_until: at(created_at),
    }
}

async fn add(case: &Case, tenant: TenantId, created_at: i64, name: Option<&str>, size: u64) -> SnapshotRow {
    let row = row(tenant, created_at);
    case.store.insert_snapshot(&row, ROOM, &audit("snapshot.create")).await.unwrap();
    case.store.finish_snapshot(tenant, row.id, name, size, ROOM).await.unwrap().unwrap()
}

async fn list(case: &Case, tenant: TenantId, filter: SnapshotFilter) -> Vec<SnapshotId> {
    let rows = case.store.list_snapshots(tenant, &SnapshotFilter { limit: 9, ..filter }).await.unwrap();
    rows.into_iter().map(|row| row.id).collect()
}

async fn one_is_found_when_it_is_ready_and_by_its_owner_alone(case: Case) {
    let (owner, other) = (case.new_tenant("one").await, case.new_tenant("two").await);
    let unready = row(owner, 5);
    assert_eq!(case.store.insert_snapshot(&unready, ROOM, &audit("snapshot.create")).await.unwrap(), 1000);
    assert_eq!(case.store.snapshot(owner, unready.id).await.unwrap(), None);
    let as_it_is = case.store.snapshot_in_any_state(owner, unready.id).await.unwrap();
    assert_eq!(as_it_is.map(|row| row.state), Some(SnapshotState::Making));
    assert_eq!(case.store.snapshot_in_any_state(other, unready.id).await.unwrap(), None);
    let first = add(&case, owner, 6, None, 300).await;
    assert_eq!((first.state, first.size_bytes), (SnapshotState::Ready, 300));
    assert_eq!(case.store.snapshot(owner, first.id).await.unwrap().as_ref(), Some(&first));
    assert_eq!(
        case.store.finish_snapshot(owner, first.id, None, 1, ROOM).await.unwrap(),
        None,
        "it is ready"
    );
    for id in [first.id, unready.id] {
        assert_eq!(case.store.snapshot(other, id).await.unwrap(), None);
        assert_eq!(case.store.end_snapshot(other, id, None).await.unwrap(), None);
        assert!(!case.store.forget_snapshot(other, id).await.unwrap());
    }
    assert!(list(&case, other, SnapshotFilter::default()).await.is_empty());
    let second = add(&case, owner, 7, None, 1).await;
    assert_eq!(list(&case, owner, SnapshotFilter::default()).await, [second.id, first.id]);
    let of_first = SnapshotFilter { sandbox: Some(first.sandbox), ..SnapshotFilter::default() };
    assert_eq!(list(&case, owner, of_first).await, [first.id]);
    let rest = SnapshotFilter { before: Some((second.created_at, second.id)), ..SnapshotFilter::default() };
    assert_eq!(list(&case, owner, rest).await, [first.id]);
    assert!(!case.store.forget_snapshot(owner, first.id).await.unwrap(), "it is ready");
    let ended = case.store.end_snapshot(owner, first.id, Some(&audit("snapshot.delete"))).await.unwrap();
    assert_eq!(ended.unwrap().state, SnapshotState::Ready, "as it was");
    assert_eq!(case.store.snapshot(owner, first.id).await.unwrap(), None);
    assert!(case.store.forget_snapshot(owner, first.id).await.unwrap());
    let kept = case.store.end_snapshot(owner, unready.id, None).await.unwrap().unwrap();
    assert_eq!(kept.state, SnapshotState::Making, "whoever makes it ends it");
}

fn fee(row: &SnapshotRow, until: Timestamp) -> LedgerEntry {
    let bill = LedgerBill {
        provider: row.provider.clone(),
        region: None,
        ended_at: until,
        wall_ms: 0,
        cpu_ms: 0,
        peak_memory_bytes: 0,
        priced: true,
        metered: true,
        charge: Usd::ZERO,
        credit: Usd::ZERO,
        margin: Usd::ZERO,
        snapshots: Usd::micros(7),
    };
    LedgerEntry {
        object: row.id.to_string(),
        part: 0,
        kind: EntryKind::Snapshot,
        key: row.key.clone(),
        labels: row.spec.labels.clone(),
        provider: row.provider.clone(),
        region: None,
        cpu_milli: 0,
        memory_bytes: 0,
        began_at: row.charged_until,
        estimate: Usd::micros(7),
        max_cost: None,
        bill: Some(bill),
    }
}

async fn keeping_one_is_charged_once(case: Case) {
    let owner = case.new_tenant("one").await;
    let unready = row(owner, 1);
    case.store.insert_snapshot(&unready, ROOM, &audit("snapshot.create")).await.unwrap();
    let kept = add(&case, owner, 2, None, 300).await;
    let waiting = case.store.uncharged_snapshots(at(10), 9).await.unwrap();
    assert_eq!(waiting.iter().map(|row| row.id).collect::<Vec<_>>(), [kept.id]);
    assert!(case.store.uncharged_snapshots(at(2), 9).await.unwrap().is_empty());
    assert!(case.store.charge_snapshot(&kept, at(10), Some(fee(&kept, at(10)))).await.unwrap());
    assert!(
        !case.store.charge_snapshot(&kept, at(10), Some(fee(&kept, at(10)))).await.unwrap(),
        "charged twice"
    );
    assert!(case.store.uncharged_snapshots(at(10), 9).await.unwrap().is_empty());
    let by = SpentBy { tenant: owner, key: None, label: None, from: at(0), to: at(100) };
    assert_eq!(case.store.spent(&by).await.unwrap().settled, Usd::micros(7));
}

async fn a_name_goes_to_the_newest(case: Case) {
    let (owner, other) = (case.new_tenant("one").await, case.new_tenant("two").await);
    let first = add(&case, owner, 1, Some("golden"), 1).await;
    add(&case, other, 2, Some("golden"), 1).await;
    let named = || SnapshotFilter { name: Some("golden".to_owned()), ..SnapshotFilter::default() };
    assert_eq!(list(&case, owner, named()).await, [first.id]);
    let second = add(&case, owner, 3, Some("golden"), 1).await;
    assert_eq!(list(&case, owner, named()).await, [second.id]);
    assert_eq!(case.store.snapshot(owner, first.id).await.unwrap().unwrap().name, None);
    case.store.end_snapshot(owner, second.id, None).await.unwrap().unwrap();
    assert!(list(&case, owner, named()).await.is_empty());
}

async fn ceilings_hold_for_many_at_once(case: Case) {
    let owner = case.new_tenant("one").await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..30 {
        let store = case.store.clone();
        tasks.spawn(
            async move { store.insert_snapshot(&row(owner, 1), ROOM, &audit("snapshot.create")).await },
        );
    }
    let (fine, refused): (Vec<_>, Vec<_>) = tasks.join_all().await.into_iter().partition(Result::is_ok);
    // Of all that may be kept, few may be made at a time.
    assert_eq!((fine.len(), refused.len()), (4, 26));
    let many = case.new_tenant("three").await;
    for number in 0..10 {
        add(&case, many, number, None, 1).await;
    }
    let one_more = case.store.insert_snapshot(&row(many, 11), ROOM, &audit("snapshot.create")).await;
    let error = one_more.unwrap_err();
    assert!(matches!(error, StoreError::QuotaExceeded { limit: 10, .. }), "{error:?}");
    for error in refused {
        let error = error.unwrap_err();
        assert!(
            matches!(error, StoreError::QuotaExceeded { which: QuotaKind::Snapshots, limit: 4, .. }),
            "{error:?}"
        );
    }
    let large = case.new_tenant("two").await;
    add(&case, large, 1, None, 999).await;
    let next = row(large, 2);
    assert_eq!(case.store.insert_snapshot(&next, ROOM, &audit("snapshot.create")).await.unwrap(), 1);
    let wrong = case.store.finish_snapshot(large, next.id, None, 2, ROOM).await.unwrap_err();
    assert!(matches!(wrong, StoreError::QuotaExceeded { used: 999, wanted: 2, .. }), "{wrong:?}");
    assert_eq!(case.store.snapshot(large, next.id).await.unwrap(), None, "it is as it was");
    case.store.finish_snapshot(large, next.id, None, 1, ROOM).await.unwrap().unwrap();
    let error =
        case.store.insert_snapshot(&row(large, 3), ROOM, &audit("snapshot.create")).await.unwrap_err();
    assert!(matches!(error, StoreError::QuotaExceeded { which: QuotaKind::SnapshotBytes, .. }), "{error:?}");
}

async fn what_is_not_ready_is_found_to_be_settled(case: Case) {
    let owner = case.new_tenant("one").await;
    let old = row(owner, 1);
    case.store.insert_snapshot(&old, ROOM, &audit("snapshot.create")).await.unwrap();
    let young = row(owner, 100);
    case.store.insert_snapshot(&young, ROOM, &audit("snapshot.create")).await.unwrap();
    let ending = add(&case, owner, 2, None, 1).await;
    case.store.end_snapshot(owner, ending.id, None).await.unwrap();
    add(&case, owner, 3, None, 1).await;
    let found = case.store.unsettled_snapshots(at(50)).await.unwrap();
    assert_eq!(found.iter().map(|row| row.id).collect::<Vec<_>>(), [old.id, ending.id]);
    assert!(case.store.forget_snapshot(owner, old.id).await.unwrap());
    assert_eq!(case.store.finish_snapshot(owner, old.id, None, 1, ROOM).await.unwrap(), None);
}
