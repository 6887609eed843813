//! Forgetting what is old.

use sandstorm_store::testing::look;
use sandstorm_store::{Retention, RunEnd, SampleRow, Swept};
use sandstorm_types::{Step, TenantId, Timestamp};
use serde_json::json;

use crate::support::{Case, at, audit, context, exec, on_both, run};

on_both!(
    only_what_is_old_and_over_goes,
    more_than_one_batch_goes,
    numbers_outlive_the_last_event,
    old_runs_go_whatever_came_before_them,
    the_cut_audit_still_holds
);

async fn only_what_is_old_and_over_goes(case: Case) {
    let (store, local) = (&case.store, TenantId::LOCAL);
    let old = case.new_sandbox(local, 10).await;
    let living = case.new_sandbox(local, 10).await;
    store.insert_exec(&exec(&old, 11), &[], &audit("exec.start")).await.unwrap();
    store.insert_context(&context(&old), &audit("context.create")).await.unwrap();
    store.note_file(local, old.id, "/x", 1, at(1)).await.unwrap();
    store.claim_name(local, "session", "old", old.id).await.unwrap();
    store.claim_name(local, "session", "living", living.id).await.unwrap();
    let sample = |millis| SampleRow {
        sandbox: living.id,
        at: at(millis),
        cpu_ms: 0,
        memory_bytes: 0,
        peak_memory_bytes: 0,
        processes: 0,
        disk_bytes: 0,
        inodes: 0,
    };
    store.add_samples(&[sample(10), sample(1000)]).await.unwrap();
    case.step(&old, &[Step::Terminate, Step::Terminated]).await;
    let (ended, running) = (run(local, 5), run(local, 5));
    for row in [&ended, &running] {
        store.insert_run(row, &[], &audit("run.create")).await.unwrap();
    }
    let end = RunEnd {
        status: Some("ok".into()),
        result: None,
        problem: None,
        at: at(30),
        bill: None,
        attempts: Vec::new(),
    };
    store.end_run(local, ended.id, &end, &[]).await.unwrap();
    store.begin_idempotent(local, "r", "k", b"", "x", at(10)).await.unwrap();
    store.append_event(local, None, at(1000), &json!("young")).await.unwrap();

    assert_eq!(store.sweep(Retention::default()).await.unwrap(), Swept::default());
    let before = Some(at(500));
    let swept = store
        .sweep(Retention {
            runs_before: before,
            events_before: before,
            audit_before: None,
            ended_sandboxes_before: before,
            idempotency_before: before,
            samples_before: before,
            ledger_before: before,
        })
        .await
        .unwrap();
    assert_eq!(
        swept,
        Swept { runs: 1, events: 4, audit: 0, sandboxes: 1, idempotency: 1, samples: 1, ledger: 0 }
    );

    assert_eq!(store.sandbox(local, old.id).await.unwrap(), None);
    assert!(store.sandbox(local, living.id).await.unwrap().is_some());
    assert_eq!(store.unfinished_runs().await.unwrap(), [running]);
    assert_eq!(store.name(local, "session", "old").await.unwrap(), None);
    assert_eq!(store.name(local, "session", "living").await.unwrap(), Some(living.id));
    assert_eq!(store.events_after(local, None, 0, 10).await.unwrap()[0].body, json!("young"));
    for (table, column) in
        [("execs", "id"), ("contexts", "id"), ("files", "path"), ("transitions", "to_state")]
    {
        let left = format!("SELECT {column} AS value FROM {table} WHERE sandbox = '{}'", old.id);
        assert!(look(store, &left).await.unwrap().is_empty(), "{table}");
    }
    let next = store.append_event(local, None, at(2000), &json!(1)).await.unwrap();
    assert_eq!(next, 6, "numbers are not used again");
}

async fn more_than_one_batch_goes(case: Case) {
    for index in 0..1203 {
        case.store.append_event(TenantId::LOCAL, None, at(index), &json!(0)).await.unwrap();
    }
    let swept =
        case.store.sweep(Retention { events_before: Some(at(1200)), ..Retention::default() }).await.unwrap();
    assert_eq!(swept.events, 1200);
    assert_eq!(case.store.events_after(TenantId::LOCAL, None, 0, 10).await.unwrap()[0].seq, 1201);
}

async fn numbers_outlive_the_last_event(case: Case) {
    let tenant = case.new_tenant("quiet").await;
    for index in 0..3 {
        case.store.append_event(tenant, None, at(index), &json!(0)).await.unwrap();
    }
    let all = Retention { events_before: Some(at(100)), ..Retention::default() };
    assert_eq!(case.store.sweep(all).await.unwrap().events, 3);
    assert_eq!(case.store.last_event(tenant).await.unwrap(), 3);
    assert_eq!(case.store.append_event(tenant, None, at(200), &json!(0)).await.unwrap(), 4);
    let store = case.reopen().await;
    assert_eq!(store.append_event(tenant, None, at(200), &json!(0)).await.unwrap(), 5);
}

async fn old_runs_go_whatever_came_before_them(case: Case) {
    // One that still runs is the oldest of all, and more than a batch came after it.
    let tenant = case.new_tenant("busy").await;
    let running = run(tenant, 1);
    case.store.insert_run(&running, &[], &audit("run.create")).await.unwrap();
    for index in 0..510 {
        let row = run(tenant, 2 + index);
        case.store.insert_run(&row, &[], &audit("run.create")).await.unwrap();
        let end = RunEnd {
            status: None,
            result: None,
            problem: None,
            at: at(1000),
            bill: None,
            attempts: Vec::new(),
        };
        case.store.end_run(tenant, row.id, &end, &[]).await.unwrap();
    }
    let sweep =
        |before| case.store.sweep(Retention { runs_before: Some(at(before)), ..Retention::default() });
    assert_eq!(sweep(1000).await.unwrap().runs, 0, "they ended later");
    assert_eq!(sweep(1001).await.unwrap().runs, 510);
    assert_eq!(case.store.list_runs(tenant, false, None, 9).await.unwrap(), [running]);
}

async fn the_cut_audit_still_holds(case: Case) {
    for _ in 0..25 {
        case.store.record_audit(&audit("before")).await.unwrap();
    }
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let cut = Timestamp::now();
    for _ in 0..7 {
        case.store.record_audit(&audit("after")).await.unwrap();
    }
    let sweep = |moment| case.store.sweep(Retention { audit_before: Some(moment), ..Retention::default() });
    assert_eq!(sweep(cut).await.unwrap().audit, 25);
    let verify = || case.store.verify_audit(&case.config.audit_key, &case.config.audit_anchor);
    let report = verify().await.unwrap();
    assert_eq!(report.tampering, []);
    assert_eq!((report.records, report.first, report.last), (7, 26, 32));
    // Also when nothing is left, and when it goes on from there.
    assert_eq!(sweep(Timestamp::now().after(std::time::Duration::from_secs(9))).await.unwrap().audit, 7);
    let report = verify().await.unwrap();
    assert_eq!((report.tampering, report.records, report.last), (vec![], 0, 32));
    case.store.record_audit(&audit("later")).await.unwrap();
    let report = verify().await.unwrap();
    assert_eq!((report.tampering, report.first), (vec![], 33));
}
