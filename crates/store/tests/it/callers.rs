//! Callers who write where they are, and when they leave it to the thread.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use sandstorm_store::testing::{
    commits, hold_writer, occupy, panic_while_writing, write_slowly, writing_thread,
};
use sandstorm_store::{Durability, Retention, Store, StoreError};
use sandstorm_types::TenantId;
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{Case, at, audit, config, on_both, run};

on_both!(numbers_follow_the_order_whoever_writes, a_mistake_fails_its_own_call_only);

/// A store whose first record is written, which is work for the thread.
async fn begun() -> Case {
    let case = Case::sqlite().await;
    assert_ne!(
        writing_thread(&case.store).await.unwrap(),
        thread::current().id(),
        "the first is the thread's"
    );
    case.store.record_audit(&audit("first")).await.unwrap();
    assert!(is_soon_written_here(&case.store).await);
    case
}

async fn is_written_here(store: &Store) -> bool {
    writing_thread(store).await.unwrap() == thread::current().id()
}

/// The thread is still about to leave when it has answered.
async fn is_soon_written_here(store: &Store) -> bool {
    for _ in 0..200 {
        if is_written_here(store).await {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    false
}

#[tokio::test]
async fn a_caller_who_is_alone_writes_at_once() {
    let case = begun().await;
    // Done when it is looked at for the first time: nobody else is woken, nothing can be dropped half-way.
    let (row, audit) = (run(TenantId::LOCAL, 1), audit("run.create"));
    let told = [json!("start")];
    let mut insert = pin!(case.store.insert_run(&row, &told, &audit));
    let poll = insert.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(poll, Poll::Ready(Ok(_))), "{poll:?}");
    assert!(case.store.run(TenantId::LOCAL, row.id).await.unwrap().is_some());
}

#[tokio::test]
async fn what_waits_for_a_disk_or_a_network_is_for_the_thread() {
    let (mut config, _directory) = config(None);
    config.durability = Durability::Full;
    let store = Store::open(&config).await.unwrap();
    store.record_audit(&audit("first")).await.unwrap();
    assert!(!is_written_here(&store).await);
    let Some(case) = Case::postgres().await else { return };
    case.store.record_audit(&audit("first")).await.unwrap();
    assert!(!is_written_here(&case.store).await);
}

#[tokio::test]
async fn a_slow_disk_sends_callers_to_the_thread_for_a_while() {
    let case = begun().await;
    write_slowly(&case.store, Duration::from_millis(60)).await.unwrap();
    assert!(!is_written_here(&case.store).await, "the next is the thread's");
    tokio::time::sleep(Duration::from_millis(1000)).await;
    assert!(is_soon_written_here(&case.store).await, "later it is tried again");
}

/// On the one thread that also has the clock of this test: it must not stand still.
#[tokio::test]
async fn a_caller_does_not_wait_for_another_process_that_writes() {
    let case = begun().await;
    let held = hold_writer(&case.config).await.unwrap();
    let store = case.store.clone();
    let recording = tokio::task::spawn(async move { store.record_audit(&audit("later")).await });
    let began = Instant::now();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(began.elapsed() < Duration::from_secs(2) && !recording.is_finished());
    drop(held);
    recording.await.unwrap().unwrap();
    assert!(is_soon_written_here(&case.store).await);
}

#[tokio::test]
async fn what_takes_long_is_never_done_by_a_caller() {
    let case = begun().await;
    let is_left_to_the_thread = |_| {
        let long = case.store.sweep(Retention { runs_before: Some(at(0)), ..Retention::default() });
        pin!(long).poll(&mut Context::from_waker(Waker::noop())).is_pending()
    };
    // Now and then the thread has done it before this one looks.
    assert!((0..100).any(is_left_to_the_thread));
    let began = Instant::now();
    // Nor is what waits behind it, which keeps its place.
    let (store, other) = (case.store.clone(), case.store.clone());
    let occupied = tokio::task::spawn(async move { occupy(&store, Duration::from_millis(200)).await });
    tokio::task::yield_now().await;
    let behind =
        tokio::task::spawn(async move { other.append_event(TenantId::LOCAL, None, at(1), &json!(1)).await });
    tokio::task::yield_now().await;
    assert!(began.elapsed() < Duration::from_millis(150) && !behind.is_finished());
    occupied.await.unwrap().unwrap();
    assert_eq!(behind.await.unwrap().unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_who_meet_share_commits() {
    let case = begun().await;
    let before = commits(&case.store);
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let store = case.store.clone();
        tasks.spawn(async move {
            for _ in 0..100 {
                // Somebody has to be at it when others come, also on a machine with one processor.
                occupy(&store, Duration::from_micros(200)).await.unwrap();
                store.append_event(TenantId::LOCAL, None, at(1), &json!(1)).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let used = commits(&case.store) - before;
    assert!(used < 800, "{used} transactions for 800 calls");
    assert_eq!(case.store.last_event(TenantId::LOCAL).await.unwrap(), 800);
}

async fn numbers_follow_the_order_whoever_writes(case: Case) {
    let mut tasks = JoinSet::new();
    for caller in 0..6 {
        let store = case.store.clone();
        tasks.spawn(async move {
            let mut last = 0;
            for round in 0..60 {
                if round % 7 == caller {
                    occupy(&store, Duration::from_micros(300)).await.unwrap();
                }
                let row = run(TenantId::LOCAL, 1);
                let seqs = store.insert_run(&row, &[json!(caller)], &audit("run.create")).await.unwrap();
                assert!(seqs[0] > last, "{seqs:?} after {last}");
                last = seqs[0];
                // Whoever is told of it finds it, and everything before it.
                let seen = store.events_after(TenantId::LOCAL, None, 0, 1000).await.unwrap();
                assert!(seen.len() as u64 >= last);
                assert!(seen.iter().zip(1..).all(|(event, seq)| event.seq == seq));
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(case.store.last_event(TenantId::LOCAL).await.unwrap(), 360);
    let report = case.store.verify_audit(&case.config.audit_key, &case.config.audit_anchor).await.unwrap();
    assert_eq!((report.tampering, report.records), (vec![], 360));
}

async fn a_mistake_fails_its_own_call_only(case: Case) {
    case.store.append_event(TenantId::LOCAL, None, at(1), &json!(0)).await.unwrap();
    let mut tasks = JoinSet::new();
    for index in 0..40 {
        let store = case.store.clone();
        tasks.spawn(async move {
            if index % 4 == 0 {
                let error = panic_while_writing(&store, TenantId::LOCAL).await.unwrap_err();
                assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
            } else {
                store.append_event(TenantId::LOCAL, None, at(1), &json!(1)).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    let events = case.store.events_after(TenantId::LOCAL, None, 0, 100).await.unwrap();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), (1..=31).collect::<Vec<u64>>());
}

/// Whoever gives up, at whatever moment, leaves the desk free and nothing half-written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_who_leave_keep_nobody_from_writing() {
    let case = begun().await;
    for round in 0..40 {
        let store = case.store.clone();
        let busy = tokio::task::spawn(async move { occupy(&store, Duration::from_millis(2)).await });
        tokio::task::yield_now().await;
        let mut callers = JoinSet::new();
        for _ in 0..10 {
            let store = case.store.clone();
            callers.spawn(async move {
                let row = run(TenantId::LOCAL, 1);
                store.insert_run(&row, &[json!(1)], &audit("run.create")).await
            });
        }
        tokio::time::sleep(Duration::from_micros(round * 83 % 2500)).await;
        callers.abort_all();
        while callers.join_next().await.is_some() {}
        busy.await.unwrap().unwrap();
    }
    case.store.insert_run(&run(TenantId::LOCAL, 1), &[json!(1)], &audit("run.create")).await.unwrap();
    let runs = case.store.unfinished_runs().await.unwrap().len() as u64;
    assert_eq!(case.store.last_event(TenantId::LOCAL).await.unwrap(), runs);
    let report = case.store.verify_audit(&case.config.audit_key, &case.config.audit_anchor).await.unwrap();
    assert_eq!((report.tampering, report.records), (vec![], runs + 1));
}
