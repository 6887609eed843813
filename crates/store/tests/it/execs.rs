//! Execs and their events.

use std::collections::BTreeSet;

use sandstorm_store::ExecEnd;
use sandstorm_types::{ExecId, TenantId};
use serde_json::json;

use crate::support::{Case, at, audit, exec, on_both};

on_both!(
    an_exec_is_recorded_with_its_events,
    the_first_end_stands,
    lists_and_recovery,
    event_numbers_have_no_gaps
);

async fn an_exec_is_recorded_with_its_events(case: Case) {
    let sandbox = case.new_sandbox(TenantId::LOCAL, 1).await;
    let row = exec(&sandbox, 20);
    let seqs = case
        .store
        .insert_exec(&row, &[json!({"n": 1}), json!({"n": "\0"})], &audit("exec.start"))
        .await
        .unwrap();
    assert_eq!(seqs, [2, 3]);
    assert_eq!(case.store.exec(row.tenant, row.sandbox, row.id).await.unwrap(), Some(row.clone()));
    let events = case.store.events_after(row.tenant, Some(row.sandbox), 1, 10).await.unwrap();
    assert_eq!(
        events.iter().map(|event| &event.body).collect::<Vec<_>>(),
        [&json!({"n": 1}), &json!({"n": "\0"})]
    );
    assert!(events.iter().all(|event| event.at == at(20)));
    assert_eq!(case.store.events_after(row.tenant, None, 0, 1).await.unwrap()[0].seq, 1);
}

async fn the_first_end_stands(case: Case) {
    let sandbox = case.new_sandbox(TenantId::LOCAL, 1).await;
    let row = exec(&sandbox, 2);
    case.store.insert_exec(&row, &[], &audit("exec.start")).await.unwrap();
    let end = ExecEnd { status: "ok".into(), result: Some(r#"{"exit_code": 0}"#.into()), at: at(9) };
    let late = ExecEnd { status: "killed".into(), result: None, at: at(10) };
    let (tenant, body) = (TenantId::LOCAL, [json!({"type": "execute:complete"})]);
    assert_eq!(case.store.end_exec(tenant, row.id, &end, &body).await.unwrap(), Some(vec![2]));
    assert_eq!(case.store.end_exec(tenant, row.id, &late, &body).await.unwrap(), None);
    assert_eq!(case.store.end_exec(tenant, ExecId::random(), &late, &body).await.unwrap(), None);
    assert_eq!(case.store.end_exec(TenantId::random(), row.id, &late, &body).await.unwrap(), None);
    let stored = case.store.exec(tenant, sandbox.id, row.id).await.unwrap().unwrap();
    assert_eq!((stored.status.as_deref(), stored.ended_at), (Some("ok"), Some(at(9))));
    assert_eq!(stored.result, Some(json!({"exit_code": 0})));
    assert_eq!(case.store.last_event(tenant).await.unwrap(), 2, "an end that does not stand tells nobody");
}

async fn lists_and_recovery(case: Case) {
    let sandbox = case.new_sandbox(TenantId::LOCAL, 1).await;
    let other = case.new_sandbox(TenantId::LOCAL, 2).await;
    let rows = [exec(&sandbox, 10), exec(&sandbox, 11), exec(&other, 12)];
    for row in &rows {
        case.store.insert_exec(row, &[], &audit("exec.start")).await.unwrap();
    }
    let end = ExecEnd { status: "ok".into(), result: None, at: at(20) };
    case.store.end_exec(TenantId::LOCAL, rows[0].id, &end, &[]).await.unwrap();
    let ids = |rows: Vec<sandstorm_store::ExecRow>| rows.into_iter().map(|row| row.id).collect::<Vec<_>>();
    let list = |running, limit| case.store.list_execs(TenantId::LOCAL, sandbox.id, running, limit);
    assert_eq!(ids(list(false, 10).await.unwrap()), [rows[1].id, rows[0].id]);
    assert_eq!(ids(list(true, 10).await.unwrap()), [rows[1].id]);
    assert_eq!(ids(list(false, 1).await.unwrap()), [rows[1].id]);
    let running: BTreeSet<ExecId> = ids(case.store.running_execs().await.unwrap()).into_iter().collect();
    assert_eq!(running, BTreeSet::from([rows[1].id, rows[2].id]));
}

async fn event_numbers_have_no_gaps(case: Case) {
    let (one, two) = (case.new_tenant("one").await, case.new_tenant("two").await);
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..60 {
        let store = case.store.clone();
        let tenant = if index % 3 == 0 { two } else { one };
        tasks.spawn(async move { store.append_event(tenant, None, at(index), &json!(index)).await.unwrap() });
    }
    // Whoever sees a number has seen all before it.
    let mut seen = 0;
    while !tasks.is_empty() {
        for event in case.store.events_after(one, None, seen, 100).await.unwrap() {
            assert_eq!(event.seq, seen + 1);
            seen = event.seq;
        }
        tasks.join_next().await.unwrap().unwrap();
    }
    for (tenant, count) in [(one, 40), (two, 20)] {
        let seqs: Vec<u64> = case
            .store
            .events_after(tenant, None, 0, 100)
            .await
            .unwrap()
            .iter()
            .map(|event| event.seq)
            .collect();
        assert_eq!(seqs, (1..=count).collect::<Vec<_>>());
        assert_eq!(case.store.last_event(tenant).await.unwrap(), count);
    }
    assert!(case.store.append_event(TenantId::random(), None, at(1), &json!({})).await.is_err());
}
