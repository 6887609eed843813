//! Many hands at once, and hands that let go in the middle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sandstorm_store::testing::{look, occupy};
use sandstorm_store::{
    ContextChanges, ExecEnd, ExecRow, Retention, RunEnd, SandboxChanges, Store, UsageDelta,
};
use sandstorm_types::{Step, TenantId, Timestamp};
use serde_json::json;

use crate::support::{Case, at, audit, context, exec, key, on_both, run, sandbox};

on_both!(
    two_servers_never_wait_for_each_other_for_ever,
    a_call_that_is_dropped_is_done_or_not_done,
    the_audit_can_be_verified_while_it_grows
);

/// A little of everything that locks something.
async fn busy(store: Store, tenant: TenantId, round: i64) {
    let row = sandbox(tenant, round);
    store.insert_sandbox(&row, None, &audit("sandbox.create")).await.unwrap();
    let context = context(&row);
    store.insert_context(&context, &audit("context.create")).await.unwrap();
    let none = SandboxChanges::default();
    store
        .step_sandbox(tenant, row.id, 1, Step::Created, at(2), none.clone(), Some(&audit("x")))
        .await
        .unwrap();
    let cell = ExecRow { context: Some(context.id), ..exec(&row, 3) };
    store.begin_cell(&cell, &ContextChanges::default(), &[json!(1)], &audit("cell")).await.unwrap();
    store.touch_sandboxes(&[(row.id, at(round))]).await.unwrap();
    store.touch_keys(&[("one".to_owned(), at(round)), ("two".to_owned(), at(round))]).await.unwrap();
    store.add_usage(tenant, 1, UsageDelta { execs: 1, ..UsageDelta::default() }).await.unwrap();
    store.update_sandbox(tenant, row.id, none.clone(), None).await.unwrap();
    let end = ExecEnd { status: "ok".into(), result: None, at: at(9) };
    let ended =
        store.end_cell(tenant, cell.id, &end, context.id, &ContextChanges::default(), &[json!(2)]).await;
    assert!(ended.unwrap().is_some());
    store.begin_idempotent(tenant, "r", &round.to_string(), b"", "x", Timestamp::now()).await.unwrap();
    let run = run(tenant, round);
    store.insert_run(&run, &[json!(3)], &audit("run")).await.unwrap();
    let end =
        RunEnd { status: None, result: None, problem: None, at: at(10), bill: None, attempts: Vec::new() };
    store.end_run(tenant, run.id, &end, &[json!(4)]).await.unwrap();
    let retention = Retention { runs_before: Some(at(11)), ..Retention::default() };
    store.sweep(retention).await.unwrap();
}

async fn two_servers_never_wait_for_each_other_for_ever(case: Case) {
    let tenants = [case.new_tenant("one").await, case.new_tenant("two").await];
    for id in ["one", "two"] {
        case.store.create_key(&key(tenants[0], id), &audit("key.create")).await.unwrap();
    }
    let other = case.reopen().await;
    let mut tasks = tokio::task::JoinSet::new();
    for round in 0..48 {
        let store = if round % 2 == 0 { case.store.clone() } else { other.clone() };
        tasks.spawn(busy(store, tenants[usize::from(round % 4 < 2)], round));
    }
    tasks.join_all().await;
    assert_eq!(case.store.living_sandboxes().await.unwrap().len(), 48);
    for tenant in tenants {
        let events = case.store.events_after(tenant, None, 0, 1000).await.unwrap();
        let seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
        assert_eq!(seqs, (1..=24 * 6).collect::<Vec<_>>());
        assert_eq!(case.store.usage(tenant, 1, 1).await.unwrap()[0].used.execs, 24);
    }
    let report = case.store.verify_audit(&case.config.audit_key, &case.config.audit_anchor).await.unwrap();
    assert_eq!(report.tampering, []);
}

async fn a_call_that_is_dropped_is_done_or_not_done(case: Case) {
    let mut dropped = 0;
    // Somebody else writes most of the time: whoever finds nobody at it is done before it could be dropped.
    let store = case.store.clone();
    let others = tokio::task::spawn(async move {
        loop {
            occupy(&store, Duration::from_millis(1)).await.unwrap();
            tokio::time::sleep(Duration::from_micros(500)).await;
        }
    });
    for round in 0..300_u64 {
        let row = sandbox(TenantId::LOCAL, 1);
        let audit = audit("sandbox.create");
        let insert = case.store.insert_sandbox(&row, None, &audit);
        let patience = Duration::from_micros(round * 37 % 3000);
        dropped += usize::from(tokio::time::timeout(patience, insert).await.is_err());
    }
    assert!(dropped > 0, "none was interrupted");
    others.abort();
    assert!(others.await.unwrap_err().is_cancelled());
    // The store is as usable as before, and nothing is half there.
    case.new_sandbox(TenantId::LOCAL, 2).await;
    let count = |table: &str| {
        let (store, query) =
            (case.store.clone(), format!("SELECT CAST(COUNT(*) AS TEXT) AS value FROM {table}"));
        async move { look(&store, &query).await.unwrap().remove(0) }
    };
    let sandboxes = count("sandboxes").await;
    assert_eq!(count("transitions").await, sandboxes);
    assert_eq!(count("events").await, sandboxes);
    assert_eq!(count("audit").await, sandboxes);
    assert_eq!(case.store.last_event(TenantId::LOCAL).await.unwrap().to_string(), sandboxes);
    let report = case.store.verify_audit(&case.config.audit_key, &case.config.audit_anchor).await.unwrap();
    assert_eq!(report.tampering, []);
}

async fn the_audit_can_be_verified_while_it_grows(case: Case) {
    let enough = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let (store, enough) = (case.store.clone(), Arc::clone(&enough));
        tasks.spawn(async move {
            while !enough.load(Ordering::Relaxed) {
                store.record_audit(&audit("act")).await.unwrap();
            }
        });
    }
    let (store, until) = (case.store.clone(), Arc::clone(&enough));
    tasks.spawn(async move {
        while !until.load(Ordering::Relaxed) {
            let before = Timestamp::now().before(Duration::from_millis(30));
            store.sweep(Retention { audit_before: Some(before), ..Retention::default() }).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    for _ in 0..20 {
        let report =
            case.store.verify_audit(&case.config.audit_key, &case.config.audit_anchor).await.unwrap();
        assert_eq!(report.tampering, []);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    enough.store(true, Ordering::Relaxed);
    tasks.join_all().await;
}
