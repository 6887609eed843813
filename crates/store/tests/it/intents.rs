//! Cells and runs that are on file before they are in the database.

use sandstorm_store::{
    ContextChanges, ContextRow, Durability, ExecEnd, ExecRow, RunEnd, Store, StoreConfig, StoreError,
    WholeRun,
};
use sandstorm_types::TenantId;
use serde_json::json;

use crate::support::{Case, at, audit, context, exec, on_both, run};

on_both!(
    what_a_server_did_not_live_to_record_the_next_one_records,
    what_was_recorded_is_not_recorded_again,
    a_context_that_went_on_is_left_as_it_is,
    a_file_that_was_not_written_to_its_end_is_nothing,
    runs_are_recorded_late_and_once,
    a_run_can_be_one_transaction,
);

pub(crate) async fn new_context(case: &Case) -> (ContextRow, ExecRow, ContextChanges) {
    let sandbox = case.new_sandbox(TenantId::LOCAL, 1).await;
    let row = context(&sandbox);
    case.store.insert_context(&row, &audit("context.create")).await.unwrap();
    let cell = ExecRow { context: Some(row.id), ..exec(&sandbox, 10) };
    let changes = ContextChanges {
        position: Some(5),
        next_cell: Some(1),
        cell_exec: Some(Some(cell.id)),
        ..ContextChanges::default()
    };
    (row, cell, changes)
}

async fn known(store: &Store, row: &ContextRow, cell: &ExecRow) -> (Option<ExecRow>, ContextRow) {
    let exec = store.exec(cell.tenant, cell.sandbox, cell.id).await.unwrap();
    (exec, store.context(row.tenant, row.sandbox, row.id).await.unwrap().unwrap())
}

async fn what_a_server_did_not_live_to_record_the_next_one_records(case: Case) {
    let (row, cell, changes) = new_context(&case).await;
    let before = case.store.audit(None, 0, 100).await.unwrap().len();
    let announced = case.store.announce_cell(&cell, &changes, &[json!("start")], &audit("cell")).unwrap();
    assert_eq!(known(&case.store, &row, &cell).await, (None, row.clone()));
    // As after a kill.
    std::mem::forget(announced);
    let next = case.reopen().await;
    assert_eq!(next.catch_up().await.unwrap(), 1);
    let (exec, context) = known(&next, &row, &cell).await;
    assert_eq!(exec, Some(cell.clone()));
    assert_eq!((context.position, context.next_cell, context.cell_exec), (5, 1, Some(cell.id)));
    let trail = next.audit(None, 0, 100).await.unwrap();
    assert_eq!((trail.len(), trail[before].audit.action.as_str()), (before + 1, "cell"));
    assert_eq!(next.running_execs().await.unwrap(), [cell]);
    assert_eq!(next.catch_up().await.unwrap(), 0);
}

async fn what_was_recorded_is_not_recorded_again(case: Case) {
    let (row, cell, changes) = new_context(&case).await;
    let left = case.store.announce_cell(&cell, &changes, &[json!("start")], &audit("cell")).unwrap();
    case.store.begin_cell(&cell, &changes, &[json!("start")], &audit("cell")).await.unwrap();
    let end = ExecEnd { status: "ok".into(), result: None, at: at(20) };
    let done = ContextChanges { next_cell: Some(2), cell_exec: Some(None), ..ContextChanges::default() };
    case.store.end_cell(cell.tenant, cell.id, &end, row.id, &done, &[json!("end")]).await.unwrap();
    // Another takes no place that is taken, and leaves its own.
    let other = ExecRow { id: sandstorm_types::ExecId::random(), ..cell.clone() };
    case.store.announce_cell(&other, &changes, &[], &audit("cell")).unwrap().recorded();
    std::mem::forget(left);
    let (events, before) =
        (case.store.last_event(cell.tenant).await.unwrap(), known(&case.store, &row, &cell).await);
    let next = case.reopen().await;
    assert_eq!(next.catch_up().await.unwrap(), 0);
    assert_eq!(known(&next, &row, &cell).await, before);
    assert_eq!(next.last_event(cell.tenant).await.unwrap(), events);
    assert_eq!(next.exec(other.tenant, other.sandbox, other.id).await.unwrap(), None);
}

async fn a_context_that_went_on_is_left_as_it_is(case: Case) {
    let (row, cell, changes) = new_context(&case).await;
    std::mem::forget(case.store.announce_cell(&cell, &changes, &[json!("start")], &audit("cell")).unwrap());
    let later = ContextChanges { position: Some(9), next_cell: Some(2), ..ContextChanges::default() };
    case.store.update_context(row.tenant, row.id, &later).await.unwrap();
    assert_eq!(case.store.catch_up().await.unwrap(), 1);
    let (exec, context) = known(&case.store, &row, &cell).await;
    assert_eq!(exec, Some(cell));
    assert_eq!((context.position, context.next_cell, context.cell_exec), (9, 2, None));
}

async fn a_file_that_was_not_written_to_its_end_is_nothing(case: Case) {
    let (row, cell, changes) = new_context(&case).await;
    std::mem::forget(case.store.announce_cell(&cell, &changes, &[json!("start")], &audit("cell")).unwrap());
    let mut bytes = std::fs::read(&case.config.intents).unwrap();
    let last = bytes.len() - 1;
    for cut in [0, 3, 20, last] {
        std::fs::write(&case.config.intents, &bytes[..cut]).unwrap();
        assert_eq!(case.store.catch_up().await.unwrap(), 0, "cut at {cut}");
    }
    bytes[last] ^= 1;
    std::fs::write(&case.config.intents, &bytes).unwrap();
    assert_eq!(case.store.catch_up().await.unwrap(), 0);
    assert_eq!(known(&case.store, &row, &cell).await, (None, row));
}

async fn runs_are_recorded_late_and_once(case: Case) {
    let (missed, known) = (run(TenantId::LOCAL, 1), run(TenantId::LOCAL, 2));
    for row in [&missed, &known] {
        std::mem::forget(case.store.announce_run(row, &[json!("start")], &audit("run")).unwrap());
    }
    case.store.insert_run(&known, &[json!("start")], &audit("run")).await.unwrap();
    let next = case.reopen().await;
    assert_eq!(next.catch_up().await.unwrap(), 1);
    let mut unfinished = next.unfinished_runs().await.unwrap();
    unfinished.sort_by_key(|row| row.created_at);
    assert_eq!(unfinished, [missed, known]);
    assert_eq!(next.audit(None, 0, 100).await.unwrap().len(), 2);
    assert_eq!(next.catch_up().await.unwrap(), 0);
}

async fn a_run_can_be_one_transaction(case: Case) {
    let row = run(TenantId::LOCAL, 1);
    let end = RunEnd {
        status: Some("ok".to_owned()),
        result: Some("{\"exit_code\":0}".to_owned()),
        problem: None,
        at: at(20),
        bill: None,
        attempts: Vec::new(),
    };
    let announced = case.store.announce_run(&row, &[json!("start")], &audit("run")).unwrap();
    let ended = vec![json!("how"), json!("complete")];
    let whole = WholeRun { row: row.clone(), started: vec![json!("start")], audit: audit("run"), end, ended };
    let seqs = case.store.whole_run(&whole).await.unwrap();
    announced.recorded();
    assert_eq!(seqs.len(), 3);
    let stored = case.store.run(row.tenant, row.id).await.unwrap().unwrap();
    assert_eq!((stored.status.as_deref(), stored.ended_at), (Some("ok"), Some(at(20))));
    assert_eq!(stored.result, Some(json!({"exit_code": 0})));
    let again = case.store.whole_run(&whole).await;
    assert!(matches!(again, Err(StoreError::Conflict { .. })), "{again:?}");
    assert_eq!(case.store.audit(None, 0, 100).await.unwrap().len(), 1, "what is refused leaves nothing");
    assert_eq!(case.store.catch_up().await.unwrap(), 0);
}

#[tokio::test]
async fn what_the_file_cannot_promise_is_not_announced() {
    let case = Case::sqlite().await;
    let (_, cell, changes) = new_context(&case).await;
    let long = ExecRow { title: "x".repeat(9 << 10), ..cell.clone() };
    assert!(case.store.announce_cell(&long, &changes, &[], &audit("cell")).is_none());
    case.store.close().await;
    let strict = StoreConfig { durability: Durability::Full, ..case.config.clone() };
    let store = Store::open(&strict).await.unwrap();
    assert!(store.announce_cell(&cell, &changes, &[], &audit("cell")).is_none());
    let nowhere = StoreConfig { intents: case.path("no/such/directory"), ..case.config.clone() };
    let store = Store::open(&nowhere).await.unwrap();
    assert!(store.announce_cell(&cell, &changes, &[], &audit("cell")).is_none());
    assert_eq!(store.catch_up().await.unwrap(), 0);
}
