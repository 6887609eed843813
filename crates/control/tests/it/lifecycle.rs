//! Draining, stopping, readiness, idempotency.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use sandstorm_control::server::Answer;
use sandstorm_provider::{Error, ListFilter, OpContext};
use sandstorm_types::{ErrorKind, EventBody, Status, TenantId};

use crate::world::{PATIENCE, World, all, plain, shell};

#[tokio::test]
async fn a_drain_refuses_new_work_ends_foreground_work_and_keeps_sandboxes() {
    let world = World::new().await;
    let caller = world.caller();
    assert!(world.control.readiness().await.ready);
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let attached = world.control.exec(&caller, id, shell("echo hi; sleep 60")).await.unwrap();
    let began = Instant::now();
    let (events, ()) = tokio::join!(all(attached), world.control.drain(Duration::from_millis(200)));
    assert!(began.elapsed() < PATIENCE);
    assert!(matches!(&events.last().unwrap().body, EventBody::End(end) if end.status == Status::Killed));
    let refused = world.control.create_sandbox(&caller, plain()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Capacity);
    assert!(refused.retry_after().is_some());
    assert_eq!(world.control.readiness().await.reason, Some("draining"));
    let cx = OpContext::new(TenantId::LOCAL);
    assert_eq!(world.provider.list(&cx, ListFilter::default()).count().await, 1);
}

#[tokio::test]
async fn a_drain_waits_for_what_ends_in_time() {
    let world = World::new().await;
    let caller = world.caller();
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let attached = world.control.exec(&caller, id, shell("sleep 0.3; echo done")).await.unwrap();
    let (result, ()) = tokio::join!(world.control.finish(attached), world.control.drain(PATIENCE));
    assert_eq!(result.unwrap().stdout, "done\n");
}

#[tokio::test]
async fn ending_everything_leaves_nothing() {
    let world = World::new().await;
    let caller = world.caller();
    for _ in 0..5 {
        world.control.create_sandbox(&caller, plain()).await.unwrap();
    }
    let id = world.control.create_sandbox(&caller, plain()).await.unwrap().id;
    let long = sandstorm_control::server::NewExec { background: true, ..shell("sleep 60") };
    let exec = world.control.exec(&caller, id, long).await.unwrap().view.id;
    // As a server stops for good: nobody follows the program any more when its sandbox ends.
    world.control.drain(Duration::ZERO).await;
    let began = Instant::now();
    world.control.end_everything().await;
    assert!(began.elapsed() < PATIENCE);
    assert_eq!(world.control.exec_view(&caller, id, exec).await.unwrap().status, Some(Status::Killed));
    let cx = OpContext::new(TenantId::LOCAL);
    assert_eq!(world.provider.list(&cx, ListFilter::default()).count().await, 0);
    assert!(world.store.living_sandboxes().await.unwrap().is_empty());
}

fn answer(body: &'static str) -> Answer {
    Answer {
        status: 201,
        content_type: "application/json".to_owned(),
        body: Bytes::from_static(body.as_bytes()),
    }
}

#[tokio::test]
async fn a_repeated_request_gets_the_first_answer() {
    let world = World::new().await;
    let (caller, stranger) = (world.caller(), world.stranger().await);
    let control = &world.control;
    let count = AtomicUsize::new(0);
    let work = || async {
        count.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok(answer("made"))
    };
    // One in flight is waited for.
    let both = tokio::join!(
        control.idempotent(&caller, "POST /x", "key", [1; 32], work()),
        control.idempotent(&caller, "POST /x", "key", [1; 32], work()),
    );
    let (first, second) = (both.0.unwrap(), both.1.unwrap());
    assert!(first.replayed != second.replayed);
    assert_eq!(first.answer, second.answer);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let other = control.idempotent(&caller, "POST /x", "key", [2; 32], work()).await.unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Conflict);
    // Another route and another tenant have nothing to do with it.
    assert!(!control.idempotent(&caller, "POST /y", "key", [1; 32], work()).await.unwrap().replayed);
    assert!(!control.idempotent(&stranger, "POST /x", "key", [1; 32], work()).await.unwrap().replayed);
    for bad in ["", "a b", "é", &"x".repeat(256)] {
        let error = control.idempotent(&caller, "POST /x", bad, [1; 32], work()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    }
}

#[tokio::test]
async fn what_failed_or_was_given_up_can_be_tried_again() {
    let world = World::new().await;
    let caller = world.caller();
    let control = &world.control;
    let failing = async { Err(Error::new(ErrorKind::Capacity, "full")) };
    assert!(control.idempotent(&caller, "POST /x", "a", [1; 32], failing).await.is_err());
    let busy = async { Ok(Answer { status: 503, ..answer("later") }) };
    assert_eq!(control.idempotent(&caller, "POST /x", "a", [1; 32], busy).await.unwrap().answer.status, 503);
    let endless = control.idempotent(&caller, "POST /x", "a", [1; 32], std::future::pending());
    assert!(tokio::time::timeout(Duration::from_millis(50), endless).await.is_err());
    // Also in the moment in which its key is written down.
    let mut endless = Box::pin(control.idempotent(&caller, "POST /x", "a", [1; 32], std::future::pending()));
    assert!(futures_util::poll!(&mut endless).is_pending());
    drop(endless);
    let fine = control.idempotent(&caller, "POST /x", "a", [1; 32], async { Ok(answer("made")) });
    let fine = tokio::time::timeout(PATIENCE, fine).await.unwrap().unwrap();
    assert!(!fine.replayed);
}
