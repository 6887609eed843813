//! Records that are told of when they are on file, and written together.

use sandstorm_store::testing::{commits, hold_writer};
use sandstorm_store::{Announced, ContextChanges, ExecEnd, ExecRow, Store, WholeCell, WholeRun};
use sandstorm_types::{ExecId, TenantId};
use serde_json::json;

use crate::intents::new_context;
use crate::support::{Case, at, audit, ended, run};

fn announce(store: &Store, run: &WholeRun) -> Announced {
    store.announce_run(&run.row, &run.started, &run.audit).unwrap()
}

fn record_soon(store: &Store, run: &WholeRun) {
    assert!(store.record_run_soon(announce(store, run), run.clone()).is_none());
}

#[tokio::test]
async fn many_are_one_transaction_and_whoever_looks_sees_them() {
    let case = Case::sqlite().await;
    let runs: Vec<WholeRun> = (0..20).map(|number| ended(run(TenantId::LOCAL, number))).collect();
    let before = commits(&case.store);
    runs.iter().for_each(|run| record_soon(&case.store, run));
    assert_eq!(commits(&case.store), before, "nobody waits for them");
    let seen = case.store.list_runs(TenantId::LOCAL, false, None, 100).await.unwrap();
    assert_eq!(seen.len(), runs.len());
    assert!(seen.iter().all(|run| run.status.as_deref() == Some("ok")));
    assert!(commits(&case.store) - before <= 2);
    assert_eq!(case.store.audit(None, 0, 100).await.unwrap().len(), runs.len());
    assert_eq!(case.store.catch_up().await.unwrap(), 0, "nothing is left on file");
}

#[tokio::test]
async fn each_look_sees_what_was_told() {
    let case = Case::sqlite().await;
    for number in 0..5 {
        let whole = ended(run(TenantId::LOCAL, number));
        record_soon(&case.store, &whole);
        match number {
            0 => assert!(case.store.run(whole.row.tenant, whole.row.id).await.unwrap().is_some()),
            1 => assert_eq!(case.store.last_event(TenantId::LOCAL).await.unwrap(), 6),
            2 => assert_eq!(case.store.events_after(TenantId::LOCAL, None, 6, 100).await.unwrap().len(), 3),
            3 => assert_eq!(case.store.audit(Some(TenantId::LOCAL), 0, 100).await.unwrap().len(), 4),
            _ => {
                let report = case.store.verify_audit(&case.config.audit_key, &case.config.audit_anchor).await;
                assert_eq!(report.unwrap().records, 5);
            }
        }
    }
}

#[tokio::test]
async fn a_look_does_not_wait_when_nothing_is_owed() {
    let case = Case::sqlite().await;
    let held = hold_writer(&case.config).await.unwrap();
    assert!(case.store.list_runs(TenantId::LOCAL, false, None, 100).await.unwrap().is_empty());
    drop(held);
}

#[tokio::test]
async fn what_a_server_told_and_did_not_live_to_record_the_next_one_records() {
    let case = Case::sqlite().await;
    let (row, cell, changes) = new_context(&case).await;
    let whole = ended(run(TenantId::LOCAL, 1));
    let taken = announce(&case.store, &whole);
    record_soon(&case.store, &ended(run(TenantId::LOCAL, 2)));
    let of_cell = case.store.announce_cell(&cell, &changes, &[json!("start")], &audit("cell")).unwrap();
    // Two of one context: the later one counts, wherever they lie on file.
    let next = ExecRow { id: ExecId::random(), started_at: at(30), ..cell.clone() };
    let cells = [(7, 2, cell), (9, 3, next)].map(|(position, next_cell, row)| WholeCell {
        row,
        started: vec![json!("start")],
        audit: audit("cell"),
        end: ExecEnd { status: "ok".into(), result: Some(r#"{"x":1}"#.into()), at: at(20) },
        changes: ContextChanges {
            position: Some(position),
            next_cell: Some(next_cell),
            cell_exec: Some(None),
            execution_count: Some(next_cell - 1),
            ..ContextChanges::default()
        },
        ended: vec![json!("good"), json!("end")],
    });
    let [first, second] = cells;
    assert!(case.store.record_cell_soon(of_cell, first.clone()).is_none());
    let (row_of_second, begun) = (second.row.clone(), second.changes.clone());
    let of_second = case.store.announce_cell(&row_of_second, &begun, &second.started, &second.audit).unwrap();
    assert!(case.store.record_cell_soon(of_second, second.clone()).is_none());
    std::mem::forget(taken);
    // As after a kill: what waits is dropped with the process, what is on file is not.
    let file = std::fs::read(&case.config.intents).unwrap();
    let next = Case::sqlite().await;
    copy_sandbox(&next, &row).await;
    std::fs::write(&next.config.intents, &file).unwrap();
    assert_eq!(next.store.catch_up().await.unwrap(), 4);
    let known = next.store.exec(row.tenant, row.sandbox, first.row.id).await.unwrap().unwrap();
    assert_eq!((known.status.as_deref(), known.result), (Some("ok"), Some(json!({"x": 1}))));
    let context = next.store.context(row.tenant, row.sandbox, row.id).await.unwrap().unwrap();
    assert_eq!((context.position, context.next_cell, context.cell_exec), (9, 3, None));
    assert_eq!(context.execution_count, 2);
    let runs = next.store.list_runs(TenantId::LOCAL, false, None, 10).await.unwrap();
    assert_eq!(runs.iter().map(|run| run.status.as_deref()).collect::<Vec<_>>(), [Some("ok"), None]);
    assert_eq!(next.store.catch_up().await.unwrap(), 0);
}

/// The sandbox and the context of another store.
async fn copy_sandbox(case: &Case, context: &sandstorm_store::ContextRow) {
    let mut sandbox = crate::support::sandbox(context.tenant, 1);
    sandbox.id = context.sandbox;
    case.add_sandbox(&sandbox).await;
    case.store.insert_context(context, &audit("context.create")).await.unwrap();
}

#[tokio::test]
async fn the_outcome_of_an_earlier_one_in_the_same_place_is_not_taken_for_its_own() {
    let case = Case::sqlite().await;
    record_soon(&case.store, &ended(run(TenantId::LOCAL, 1)));
    case.store.settle().await.unwrap();
    let whole = ended(run(TenantId::LOCAL, 2));
    std::mem::forget(announce(&case.store, &whole));
    let next = case.reopen().await;
    assert_eq!(next.catch_up().await.unwrap(), 1);
    let known = next.run(whole.row.tenant, whole.row.id).await.unwrap().unwrap();
    assert_eq!((known.status, known.ended_at), (None, None), "it had not ended");
}

#[tokio::test]
async fn what_cannot_be_written_stays_first_in_line() {
    let case = Case::sqlite().await;
    let (first, second) = (ended(run(TenantId::LOCAL, 1)), ended(run(TenantId::LOCAL, 2)));
    case.store.record_audit(&audit("first")).await.unwrap();
    let held = hold_writer(&case.config).await.unwrap();
    record_soon(&case.store, &first);
    record_soon(&case.store, &second);
    let look = case.store.run(first.row.tenant, first.row.id).await;
    assert!(look.unwrap_err().is_transient(), "what was told is not denied");
    let late = run(TenantId::LOCAL, 3);
    let announced = case.store.announce_run(&late, &[], &audit("late"));
    assert!(announced.is_none(), "nobody is told of more before it can be written");
    drop(held);
    case.store.insert_run(&late, &[json!("start")], &audit("late")).await.unwrap();
    let actions: Vec<String> = {
        let trail = case.store.audit(None, 0, 100).await.unwrap();
        trail.into_iter().map(|row| row.audit.object).collect()
    };
    assert_eq!(actions[1..], [first.audit.object, second.audit.object, audit("late").object]);
    assert_eq!(case.store.catch_up().await.unwrap(), 0);
}

#[tokio::test]
async fn what_has_no_room_or_no_safe_place_is_given_back() {
    let case = Case::sqlite().await;
    let mut long = ended(run(TenantId::LOCAL, 1));
    long.end.result = Some("x".repeat(9 << 10));
    let (announced, run) = case.store.record_run_soon(announce(&case.store, &long), long.clone()).unwrap();
    assert_eq!(run, long);
    case.store.whole_run(&run).await.unwrap();
    announced.recorded();
    let Some(shared) = Case::postgres().await else { return };
    let whole = ended(crate::support::run(TenantId::LOCAL, 1));
    assert!(shared.store.record_run_soon(announce(&shared.store, &whole), whole.clone()).is_some());
}

#[tokio::test]
async fn a_store_that_closes_writes_what_waits() {
    let case = Case::sqlite().await;
    record_soon(&case.store, &ended(run(TenantId::LOCAL, 1)));
    case.store.close().await;
    let next = case.reopen().await;
    assert_eq!(next.catch_up().await.unwrap(), 0);
    assert_eq!(next.list_runs(TenantId::LOCAL, false, None, 10).await.unwrap().len(), 1);
}
