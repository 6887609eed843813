//! Many calls in one transaction, each on its own.

use std::time::{Duration, Instant};

use sandstorm_store::testing::{commits, hold_writer, look, meddle, writer_setting};
use sandstorm_store::{ContextChanges, Durability, ExecEnd, ExecRow, RunEnd, Store, StoreError};
use sandstorm_types::{RunId, TenantId};
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{Case, at, audit, config, context, exec, on_both, run, server};

on_both!(
    those_who_come_together_share_a_commit,
    one_that_fails_fails_alone,
    what_is_undone_leaves_no_gap,
    a_call_sees_what_was_done_before_it
);

async fn those_who_come_together_share_a_commit(case: Case) {
    let before = commits(&case.store);
    // Nobody can write before all of them have come.
    let held = hold_writer(&case.config).await.unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..200 {
        let store = case.store.clone();
        tasks.spawn(async move {
            let row = run(TenantId::LOCAL, 1);
            let seqs = store.insert_run(&row, &[json!("start")], &audit("run.create")).await.unwrap();
            // Committed when it returns: whoever reads sees it.
            assert!(store.run(TenantId::LOCAL, row.id).await.unwrap().is_some());
            seqs[0]
        });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(held);
    let mut seqs = tasks.join_all().await;
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=200).collect::<Vec<u64>>());
    let used = commits(&case.store) - before;
    assert!(used < 100, "{used} transactions for 200 calls");
    sound(&case, 200).await;
}

async fn one_that_fails_fails_alone(case: Case) {
    let taken = run(TenantId::LOCAL, 1);
    case.store.insert_run(&taken, &[json!(0)], &audit("run.create")).await.unwrap();
    let nobody = TenantId::random();
    let mut tasks = JoinSet::new();
    for index in 0..120 {
        let (store, taken) = (case.store.clone(), taken.clone());
        tasks.spawn(async move {
            let mut row = run(TenantId::LOCAL, 1);
            match index % 4 {
                // Its event and its number were written before it failed.
                1 => row.id = taken.id,
                2 => row.tenant = nobody,
                _ => {}
            }
            (index, store.insert_run(&row, &[json!(index)], &audit("run.create")).await)
        });
    }
    for (index, result) in tasks.join_all().await {
        match index % 4 {
            1 => assert!(matches!(result, Err(StoreError::Conflict { .. })), "{result:?}"),
            2 => assert!(matches!(result, Err(StoreError::Invalid { .. })), "{result:?}"),
            _ => assert_eq!(result.unwrap().len(), 1),
        }
    }
    sound(&case, 61).await;
}

async fn what_is_undone_leaves_no_gap(case: Case) {
    let mut tasks = JoinSet::new();
    for _ in 0..40 {
        let store = case.store.clone();
        tasks.spawn(async move {
            let row = run(TenantId::LOCAL, 1);
            store.insert_run(&row, &[json!("start")], &audit("run.create")).await.unwrap();
            let end = RunEnd {
                status: Some("ok".into()),
                result: None,
                problem: None,
                at: at(5),
                bill: None,
                attempts: Vec::new(),
            };
            let told = [json!("end")];
            // The first end stands, and the other one's event is taken back with its number.
            let (one, two) = tokio::join!(
                store.end_run(TenantId::LOCAL, row.id, &end, &told),
                store.end_run(TenantId::LOCAL, row.id, &end, &told)
            );
            assert_eq!([one.unwrap(), two.unwrap()].iter().flatten().count(), 1);
            // Of a run that never was, nothing is kept.
            let never = store.end_run(TenantId::LOCAL, RunId::random(), &end, &[json!("never")]).await;
            assert_eq!(never.unwrap(), None);
        });
    }
    tasks.join_all().await;
    assert_eq!(case.store.last_event(TenantId::LOCAL).await.unwrap(), 80);
    let events = case.store.events_after(TenantId::LOCAL, None, 0, 1000).await.unwrap();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), (1..=80).collect::<Vec<u64>>());
    assert!(events.iter().all(|event| event.body != json!("never")));
}

async fn a_call_sees_what_was_done_before_it(case: Case) {
    // Asked for at once, done in the order in which they were asked for.
    let row = run(TenantId::LOCAL, 1);
    let end = RunEnd {
        status: Some("ok".into()),
        result: None,
        problem: None,
        at: at(5),
        bill: None,
        attempts: Vec::new(),
    };
    let (begin, start, told) = (audit("run.create"), [json!("start")], [json!("end")]);
    let (begun, ended) = tokio::join!(
        case.store.insert_run(&row, &start, &begin),
        case.store.end_run(TenantId::LOCAL, row.id, &end, &told)
    );
    assert_eq!((begun.unwrap(), ended.unwrap()), (vec![1], Some(vec![2])));
}

/// No event without its number, no run without its event and its audit record.
async fn sound(case: &Case, runs: u64) {
    let events = case.store.events_after(TenantId::LOCAL, None, 0, 1000).await.unwrap();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), (1..=runs).collect::<Vec<_>>());
    assert_eq!(case.store.last_event(TenantId::LOCAL).await.unwrap(), runs);
    assert_eq!(case.store.unfinished_runs().await.unwrap().len() as u64, runs);
    let report = case.store.verify_audit(&case.config.audit_key, &case.config.audit_anchor).await.unwrap();
    assert_eq!((report.tampering, report.records), (vec![], runs));
}

#[tokio::test]
async fn durability_is_what_was_asked_for() {
    for (durability, number) in [(Durability::Normal, "1"), (Durability::Full, "2")] {
        let (mut config, _directory) = config(None);
        config.durability = durability;
        let store = Store::open(&config).await.unwrap();
        let set =
            writer_setting(&store, "SELECT CAST(synchronous AS TEXT) AS value FROM pragma_synchronous").await;
        assert_eq!(set.unwrap(), number, "{durability:?}");
    }
}

#[tokio::test]
async fn a_database_that_acknowledges_early_is_told_not_to() {
    let Some(server) = server() else { return };
    let (mut config, _directory) = config(Some(server.database().await.unwrap()));
    let store = Store::open(&config).await.unwrap();
    let name = look(&store, "SELECT CAST(current_database() AS TEXT) AS value").await.unwrap().remove(0);
    meddle(&store, &format!("ALTER DATABASE \"{name}\" SET synchronous_commit = off")).await.unwrap();
    store.close().await;
    for (durability, value) in [(Durability::Normal, "off"), (Durability::Full, "on")] {
        config.durability = durability;
        let store = Store::open(&config).await.unwrap();
        let set = writer_setting(&store, "SELECT current_setting('synchronous_commit') AS value").await;
        assert_eq!(set.unwrap(), value, "{durability:?}");
        store.close().await;
    }
}

#[tokio::test]
async fn a_store_that_is_closed_says_so() {
    let case = Case::sqlite().await;
    case.store.close().await;
    let began = Instant::now();
    let error = case.store.record_audit(&audit("act")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    let error = case.store.health().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(!case.path("sandstorm.db-wal").exists(), "the log is folded into the file");
}

/// Pages of the log for a run: its begin and its end, each in a commit of its own.
#[tokio::test]
async fn a_run_writes_few_pages() {
    let (mut config, directory) = config(None);
    config.checkpoint_every = 1000;
    let store = Store::open(&config).await.unwrap();
    let log = || std::fs::metadata(directory.path().join("sandstorm.db-wal")).unwrap().len();
    // Enough for every index to have more than a page.
    let mut before = 0;
    for round in 0..200 {
        if round == 100 {
            before = log();
        }
        begin_and_end(&store).await;
    }
    let pages = (log() - before) / 4120;
    println!("{} pages a run", pages as f64 / 100.0);
    assert!(pages <= 1400, "{pages} pages for 100 runs");
}

async fn begin_and_end(store: &Store) {
    let row = run(TenantId::LOCAL, 1);
    store.insert_run(&row, &[json!("start")], &audit("run.create")).await.unwrap();
    let end = RunEnd {
        status: Some("ok".into()),
        result: Some(json!({"stdout": "1\n"}).to_string()),
        problem: None,
        at: at(5),
        bill: None,
        attempts: Vec::new(),
    };
    store.end_run(TenantId::LOCAL, row.id, &end, &[json!("ok"), json!("end")]).await.unwrap();
}

/// What writing costs; run it by hand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn what_writing_costs() {
    for (durability, callers) in
        [(Durability::Normal, 1), (Durability::Normal, 16), (Durability::Full, 1), (Durability::Full, 16)]
    {
        let (mut config, _directory) = config(None);
        config.durability = durability;
        config.checkpoint_every = 100;
        let store = Store::open(&config).await.unwrap();
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..callers {
            let store = store.clone();
            tasks.spawn(async move {
                for _ in 0..2000 / callers {
                    begin_and_end(&store).await;
                }
            });
        }
        tasks.join_all().await;
        let each = began.elapsed() / 4000;
        println!(
            "{durability:?}, {callers} callers: {each:?} a call, {} commits for 4000 calls",
            commits(&store)
        );
    }
}

/// The same for the cells of a living interpreter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn what_a_cell_costs() {
    let case = Case::sqlite().await;
    let sandbox = case.new_sandbox(TenantId::LOCAL, 1).await;
    let context = context(&sandbox);
    case.store.insert_context(&context, &audit("context.create")).await.unwrap();
    let began = Instant::now();
    for number in 0..1000 {
        let cell = ExecRow { context: Some(context.id), ..exec(&sandbox, number) };
        let mut changes = ContextChanges { cell_exec: Some(Some(cell.id)), ..ContextChanges::default() };
        case.store.begin_cell(&cell, &changes, &[json!("start")], &audit("cell")).await.unwrap();
        let end = ExecEnd {
            status: "ok".into(),
            result: Some(json!({"stdout": "1\n"}).to_string()),
            at: at(number),
        };
        changes = ContextChanges {
            cell_exec: Some(None),
            execution_count: Some(number),
            ..ContextChanges::default()
        };
        let told = [json!("ok"), json!("end")];
        case.store
            .end_cell(TenantId::LOCAL, cell.id, &end, context.id, &changes, &told)
            .await
            .unwrap()
            .unwrap();
    }
    println!("{:?} a call for cells", began.elapsed() / 2000);
}
