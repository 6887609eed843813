//! Contexts and their cells.

use sandstorm_store::{ContextChanges, ExecEnd, ExecRow, StoreError, WholeCell};
use sandstorm_types::{ContextId, ExecId, TenantId};
use serde_json::json;

use crate::support::{Case, at, audit, context, exec, on_both};

on_both!(
    a_context_changes_field_by_field,
    a_cell_and_its_context_go_together,
    a_cell_that_was_short_is_recorded_at_once,
    a_cell_needs_its_context
);

async fn a_context_changes_field_by_field(case: Case) {
    let sandbox = case.new_sandbox(TenantId::LOCAL, 1).await;
    let row = context(&sandbox);
    case.store.insert_context(&row, &audit("context.create")).await.unwrap();
    let get = || case.store.context(row.tenant, row.sandbox, row.id);
    assert_eq!(get().await.unwrap(), Some(row.clone()));
    assert_eq!(case.store.contexts(row.tenant, row.sandbox).await.unwrap(), std::slice::from_ref(&row));
    assert_eq!(case.store.living_contexts().await.unwrap(), std::slice::from_ref(&row));
    assert_eq!(case.store.context(TenantId::random(), row.sandbox, row.id).await.unwrap(), None);

    let cell = ExecId::random();
    let update = |changes: ContextChanges| {
        let (store, row) = (case.store.clone(), row.clone());
        async move { store.update_context(row.tenant, row.id, &changes).await.unwrap().unwrap() }
    };
    let none = ContextChanges::default();
    let changed =
        update(ContextChanges { position: Some(9), cell_exec: Some(Some(cell)), ..none.clone() }).await;
    assert_eq!((changed.position, changed.cell_exec, changed.next_cell), (9, Some(cell), 1));
    assert_eq!(update(none.clone()).await, changed);
    let changed =
        update(ContextChanges { cell_exec: Some(None), execution_count: Some(4), ..none.clone() }).await;
    assert_eq!((changed.position, changed.cell_exec, changed.execution_count), (9, None, 4));

    update(ContextChanges { ended_at: Some(at(50)), ..none.clone() }).await;
    let ended = update(ContextChanges { ended_at: Some(at(60)), ..none.clone() }).await;
    assert_eq!(ended.ended_at, Some(at(50)));
    assert_eq!(get().await.unwrap(), Some(ended));
    assert!(case.store.contexts(row.tenant, row.sandbox).await.unwrap().is_empty());
    assert!(case.store.living_contexts().await.unwrap().is_empty());
    assert_eq!(case.store.update_context(TenantId::random(), row.id, &none).await.unwrap(), None);
}

async fn a_cell_and_its_context_go_together(case: Case) {
    let sandbox = case.new_sandbox(TenantId::LOCAL, 1).await;
    let row = context(&sandbox);
    case.store.insert_context(&row, &audit("context.create")).await.unwrap();
    let cell = ExecRow { context: Some(row.id), ..exec(&sandbox, 10) };
    let began =
        ContextChanges { next_cell: Some(2), cell_exec: Some(Some(cell.id)), ..ContextChanges::default() };
    let seqs = case.store.begin_cell(&cell, &began, &[json!("start")], &audit("cell.start")).await.unwrap();
    assert_eq!(seqs, [2]);
    let stored = case.store.context(row.tenant, row.sandbox, row.id).await.unwrap().unwrap();
    assert_eq!((stored.next_cell, stored.cell_exec), (2, Some(cell.id)));
    assert_eq!(case.store.exec(row.tenant, row.sandbox, cell.id).await.unwrap(), Some(cell.clone()));

    let end = ExecEnd { status: "ok".into(), result: None, at: at(20) };
    let done = ContextChanges { position: Some(77), cell_exec: Some(None), ..ContextChanges::default() };
    let ended = case.store.end_cell(row.tenant, cell.id, &end, row.id, &done, &[json!("end")]).await.unwrap();
    assert_eq!(ended, Some(vec![3]));
    // A second end changes neither the cell nor the context.
    let again = ContextChanges { position: Some(99), ..ContextChanges::default() };
    assert_eq!(case.store.end_cell(row.tenant, cell.id, &end, row.id, &again, &[]).await.unwrap(), None);
    let stored = case.store.context(row.tenant, row.sandbox, row.id).await.unwrap().unwrap();
    assert_eq!((stored.position, stored.cell_exec), (77, None));
}

async fn a_cell_that_was_short_is_recorded_at_once(case: Case) {
    let sandbox = case.new_sandbox(TenantId::LOCAL, 1).await;
    let row = context(&sandbox);
    case.store.insert_context(&row, &audit("context.create")).await.unwrap();
    let cell = ExecRow { context: Some(row.id), ..exec(&sandbox, 10) };
    let end = ExecEnd { status: "ok".into(), result: Some(r#"{"x":1}"#.into()), at: at(20) };
    let done = ContextChanges { position: Some(7), next_cell: Some(2), ..ContextChanges::default() };
    let (started, ended) = ([json!("start")], [json!("good"), json!("end")]);
    let whole = WholeCell {
        row: cell.clone(),
        started: started.to_vec(),
        audit: audit("cell"),
        end: end.clone(),
        changes: done,
        ended: ended.to_vec(),
    };
    assert_eq!(case.store.whole_cell(&whole).await.unwrap(), [2, 3, 4]);
    let wanted = ExecRow {
        ended_at: Some(end.at),
        status: Some(end.status.clone()),
        result: Some(json!({"x": 1})),
        ..cell.clone()
    };
    assert_eq!(case.store.exec(row.tenant, row.sandbox, cell.id).await.unwrap(), Some(wanted));
    let stored = case.store.context(row.tenant, row.sandbox, row.id).await.unwrap().unwrap();
    assert_eq!((stored.position, stored.next_cell, stored.cell_exec), (7, 2, None));
    assert!(case.store.running_execs().await.unwrap().is_empty());
    assert!(matches!(case.store.whole_cell(&whole).await, Err(StoreError::Conflict { .. })));
    assert_eq!(case.store.last_event(row.tenant).await.unwrap(), 4);
}

async fn a_cell_needs_its_context(case: Case) {
    let sandbox = case.new_sandbox(TenantId::LOCAL, 1).await;
    let other = case.new_sandbox(TenantId::LOCAL, 2).await;
    let elsewhere = context(&other);
    case.store.insert_context(&elsewhere, &audit("context.create")).await.unwrap();
    let none = ContextChanges::default();
    for context in [None, Some(ContextId::random()), Some(elsewhere.id)] {
        let cell = ExecRow { context, ..exec(&sandbox, 10) };
        let error =
            case.store.begin_cell(&cell, &none, &[json!("start")], &audit("cell.start")).await.unwrap_err();
        assert!(matches!(error, StoreError::Invalid { .. }), "{error:?}");
        assert_eq!(case.store.exec(cell.tenant, cell.sandbox, cell.id).await.unwrap(), None);
    }
    assert_eq!(case.store.last_event(TenantId::LOCAL).await.unwrap(), 2);
}
