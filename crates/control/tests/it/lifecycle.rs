//! Draining, stopping, readiness.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use sandstorm_provider::{ListFilter, OpContext};
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
