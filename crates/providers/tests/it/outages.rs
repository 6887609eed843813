//! Servers that are slow, gone, or lost on the way.

use std::time::{Duration, Instant};

use sandstorm_provider::{ExecRequest, Provider, ProviderExt};
use sandstorm_providers::sandstorm::SandstormProvider;
use sandstorm_types::{ErrorKind, Retry, SandboxId};
use tokio::net::TcpListener;

use crate::proxy::{Fault, Proxy};
use crate::world::{World, cx, eventually, listed, opts, sandbox, spec};

async fn behind_proxy() -> (World, Proxy, SandstormProvider) {
    let world = World::new().await;
    let proxy = Proxy::to(world.address).await;
    let adapter = SandstormProvider::connect(world.config(proxy.address)).await.unwrap();
    (world, proxy, adapter)
}

fn creates(line: &str) -> bool {
    line.starts_with("POST /v1/sandboxes ")
}

#[tokio::test]
async fn a_slow_server_is_only_slow() {
    let (_world, proxy, adapter) = behind_proxy().await;
    proxy.set(|_| Fault::Late(Duration::from_millis(200)));
    let id = sandbox(&adapter).await;
    let done = adapter.exec_collect(&cx(), &id, ExecRequest::shell("echo late")).await.unwrap();
    assert_eq!(done.stdout, "late\n");
    adapter.destroy(&cx(), &id).await.unwrap();
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_begun() {
    let world = World::new().await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = SandstormProvider::connect(world.config(nobody)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Provider, Retry::Elsewhere));
    assert!(error.is_not_started());
    let (world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    drop(proxy);
    for error in [
        adapter.create(&cx(), &spec(), opts(SandboxId::random())).await.unwrap_err(),
        adapter.exec(&cx(), &id, ExecRequest::shell("true")).await.unwrap_err(),
        adapter.health(&cx()).await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Provider, Retry::Elsewhere), "{error}");
        assert!(error.is_not_started(), "{error}");
    }
    assert_eq!(world.alive().await, 1);
}

#[tokio::test]
async fn a_server_that_hangs_is_left_at_the_deadline() {
    let (world, proxy, adapter) = behind_proxy().await;
    let known = sandbox(&adapter).await;
    proxy.set(|_| Fault::Hang);
    let id = SandboxId::random();
    let began = Instant::now();
    let short = || cx().with_timeout(Duration::from_millis(300));
    let errors = [
        adapter.create(&short(), &spec(), opts(id)).await.unwrap_err(),
        adapter.get(&short(), &known).await.unwrap_err(),
        adapter.exec(&short(), &known, ExecRequest::shell("true")).await.unwrap_err(),
        adapter.destroy(&short(), &known).await.unwrap_err(),
        adapter.health(&short()).await.unwrap_err(),
    ];
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(!error.is_not_started(), "{error}: it may have been heard");
    }
    // Who waits for an operation that was given up can give up, too.
    let cancelled = cx().child();
    cancelled.cancellation().cancel();
    let error = adapter.create(&cancelled, &spec(), opts(SandboxId::random())).await.unwrap_err();
    assert_eq!((error.kind(), error.is_not_started()), (ErrorKind::Cancelled, true));
    proxy.break_all();
    proxy.heal();
    adapter.destroy(&cx(), &id).await.unwrap();
    adapter.destroy(&cx(), &known).await.unwrap();
    assert_eq!(world.alive().await, 0);
}

#[tokio::test]
async fn a_server_without_an_answer_is_given_up_without_a_deadline() {
    let world = World::new().await;
    let proxy = Proxy::to(world.address).await;
    let mut config = world.config(proxy.address);
    config.answer_timeout = Duration::from_millis(300);
    let adapter = SandstormProvider::connect(config).await.unwrap();
    proxy.set(|_| Fault::Hang);
    let forever = sandstorm_provider::OpContext::new(sandstorm_types::TenantId::LOCAL);
    let error = adapter.get(&forever, &SandboxId::random()).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Timeout, Retry::Elsewhere), "{error}");
}

#[tokio::test]
async fn a_reset_is_told_and_leaves_nothing() {
    let (world, proxy, adapter) = behind_proxy().await;
    proxy.set(|line| if creates(line) { Fault::Reset } else { Fault::Pass });
    let id = SandboxId::random();
    let error = adapter.create(&cx(), &spec(), opts(id)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Provider, Retry::Elsewhere));
    assert!(!error.is_not_started(), "a request that was sent may have been heard");
    adapter.destroy(&cx(), &id).await.unwrap();
    assert_eq!(world.alive().await, 0);
}

#[tokio::test]
async fn a_lost_answer_does_not_make_two() {
    let (world, proxy, adapter) = behind_proxy().await;
    proxy.set(|line| if creates(line) { Fault::LoseAnswer } else { Fault::Pass });
    let id = SandboxId::random();
    for _ in 0..3 {
        let error = adapter.create(&cx(), &spec(), opts(id)).await.unwrap_err();
        assert_eq!((error.kind(), error.is_not_started()), (ErrorKind::Provider, false), "{error}");
        assert_eq!(listed(&adapter).await, [id], "it can be seen");
    }
    proxy.heal();
    assert_eq!(adapter.create(&cx(), &spec(), opts(id)).await.unwrap().id, id);
    assert_eq!((listed(&adapter).await, world.alive().await), (vec![id], 1));
    let twice = adapter.create(&cx(), &spec(), opts(id)).await.unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::Conflict, "it is known now");
    adapter.destroy(&cx(), &id).await.unwrap();
    assert_eq!(world.alive().await, 0);
}

#[tokio::test]
async fn what_a_lost_answer_left_is_found_and_removed() {
    let (world, proxy, adapter) = behind_proxy().await;
    proxy.set(|line| if creates(line) { Fault::LoseAnswer } else { Fault::Pass });
    let id = SandboxId::random();
    adapter.create(&cx(), &spec(), opts(id)).await.unwrap_err();
    eventually("the sandbox is there", async || world.alive().await == 1).await;
    // Whether by its id or among those with our mark.
    proxy.heal();
    assert_eq!(listed(&adapter).await, [id]);
    adapter.destroy(&cx(), &id).await.unwrap();
    assert_eq!(world.alive().await, 0);
}

#[tokio::test]
async fn a_creation_that_nobody_waits_for_is_taken_back() {
    let (world, proxy, adapter) = behind_proxy().await;
    proxy.set(|line| if creates(line) { Fault::Late(Duration::from_millis(300)) } else { Fault::Pass });
    let id = SandboxId::random();
    let made = adapter.create(&cx().with_timeout(Duration::from_millis(100)), &spec(), opts(id)).await;
    assert_eq!(made.unwrap_err().kind(), ErrorKind::Timeout);
    // Ending it waits for what is under way.
    adapter.destroy(&cx(), &id).await.unwrap();
    assert_eq!(world.alive().await, 0);
    adapter.create(&cx(), &spec(), opts(SandboxId::random())).await.unwrap();
    assert_eq!(world.alive().await, 1);
}
