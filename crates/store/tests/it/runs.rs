//! One-shot runs.

use sandstorm_store::RunEnd;
use sandstorm_types::{RunId, TenantId};
use serde_json::json;

use crate::support::{Case, at, audit, on_both, run};

on_both!(a_run_ends_once, lists_are_pages_newest_first);

async fn a_run_ends_once(case: Case) {
    let row = run(TenantId::LOCAL, 5);
    let seqs = case.store.insert_run(&row, &[json!("start")], &audit("run.create")).await.unwrap();
    assert_eq!(seqs, [1]);
    assert_eq!(case.store.run(row.tenant, row.id).await.unwrap(), Some(row.clone()));
    assert_eq!(case.store.run(TenantId::random(), row.id).await.unwrap(), None);
    assert_eq!(case.store.unfinished_runs().await.unwrap(), std::slice::from_ref(&row));

    let end = RunEnd {
        status: None,
        result: None,
        problem: Some(json!({"kind": "internal"})),
        at: at(8),
        bill: None,
        attempts: Vec::new(),
    };
    let events = [json!("error"), json!("complete")];
    assert_eq!(case.store.end_run(row.tenant, row.id, &end, &events).await.unwrap(), Some(vec![2, 3]));
    let late = RunEnd {
        status: Some("ok".into()),
        result: Some("1".into()),
        problem: None,
        at: at(9),
        bill: None,
        attempts: Vec::new(),
    };
    assert_eq!(case.store.end_run(row.tenant, row.id, &late, &events).await.unwrap(), None);
    assert_eq!(case.store.end_run(TenantId::random(), row.id, &late, &[]).await.unwrap(), None);
    let stored = case.store.run(row.tenant, row.id).await.unwrap().unwrap();
    assert_eq!((stored.status, stored.problem, stored.ended_at), (None, end.problem, Some(at(8))));
    assert!(case.store.unfinished_runs().await.unwrap().is_empty());
    assert_eq!(case.store.last_event(row.tenant).await.unwrap(), 3);
}

async fn lists_are_pages_newest_first(case: Case) {
    let tenant = case.new_tenant("one").await;
    let rows: Vec<_> = (0..7).map(|index| run(tenant, index / 2)).collect();
    for row in &rows {
        case.store.insert_run(row, &[], &audit("run.create")).await.unwrap();
    }
    let end = RunEnd {
        status: Some("ok".into()),
        result: None,
        problem: None,
        at: at(50),
        bill: None,
        attempts: Vec::new(),
    };
    case.store.end_run(tenant, rows[0].id, &end, &[]).await.unwrap();
    let mut seen: Vec<(_, RunId)> = Vec::new();
    loop {
        let page = case.store.list_runs(tenant, false, seen.last().copied(), 3).await.unwrap();
        if page.is_empty() {
            break;
        }
        seen.extend(page.iter().map(|row| (row.created_at, row.id)));
    }
    assert_eq!(seen.len(), 7);
    let text = |(at, id): (_, RunId)| (at, id.to_string());
    assert!(seen.windows(2).all(|pair| text(pair[0]) > text(pair[1])));
    assert_eq!(case.store.list_runs(tenant, true, None, 10).await.unwrap().len(), 6);
    assert!(case.store.list_runs(TenantId::LOCAL, false, None, 10).await.unwrap().is_empty());
}
