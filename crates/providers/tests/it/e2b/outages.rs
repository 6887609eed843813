//! A service that is slow, gone, or lost on the way.

use std::time::{Duration, Instant};

use sandstorm_provider::{ExecRequest, OpContext, Provider, ProviderExt};
use sandstorm_providers::e2b::E2bProvider;
use sandstorm_types::{ErrorKind, Retry, SandboxId, TenantId};
use tokio::net::TcpListener;

use super::world::{behind_proxy, config, creates, starts, world};
use crate::proxy::{Fault, Proxy};
use crate::world::{cx, eventually, listed, opts, sandbox, spec};

#[tokio::test]
async fn a_slow_service_is_only_slow() {
    let (_world, proxy, adapter) = behind_proxy().await;
    proxy.set(|_| Fault::Late(Duration::from_millis(200)));
    let id = sandbox(&adapter).await;
    let done = adapter.exec_collect(&cx(), &id, ExecRequest::shell("echo late")).await.unwrap();
    assert_eq!(done.stdout, "late\n");
    adapter.destroy(&cx(), &id).await.unwrap();
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_begun() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (world, proxy, adapter) = behind_proxy().await;
    let error = E2bProvider::connect(config(&world, nobody)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Provider, Retry::Elsewhere));
    assert!(error.is_not_started());
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
async fn a_service_that_hangs_is_left_at_the_deadline() {
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
    proxy.break_all();
    proxy.heal();
    adapter.destroy(&cx(), &id).await.unwrap();
    adapter.destroy(&cx(), &known).await.unwrap();
    assert_eq!(world.alive().await, 0);
}

#[tokio::test]
async fn a_service_that_hangs_after_creating_is_given_up_and_cleaned_up() {
    let world = world().await;
    let proxy = Proxy::to(world.address).await;
    let mut config = config(&world, proxy.address);
    config.answer_timeout = Duration::from_secs(1);
    let adapter = E2bProvider::connect(config).await.unwrap();
    let forever = OpContext::new(TenantId::LOCAL);
    proxy.set(|line| if creates(line) { Fault::Pass } else { Fault::Hang });
    let id = SandboxId::random();
    let error = adapter.create(&forever, &spec(), opts(id)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Timeout, Retry::Elsewhere), "{error}");
    assert!(!error.is_not_started());
    proxy.heal();
    assert_eq!(listed(&adapter).await, [id], "it is found by its marks");
    adapter.destroy(&cx(), &id).await.unwrap();
    assert_eq!(world.alive().await, 0);
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
    let error = adapter.create(&cx(), &spec(), opts(id)).await.unwrap_err();
    assert_eq!((error.kind(), error.is_not_started()), (ErrorKind::Provider, false), "{error}");
    assert_eq!(listed(&adapter).await, [id], "it can be seen");
    // Asked for once more, it is the same one.
    assert_eq!(adapter.create(&cx(), &spec(), opts(id)).await.unwrap().id, id);
    assert_eq!((listed(&adapter).await, world.alive().await), (vec![id], 1));
    proxy.heal();
    let twice = adapter.create(&cx(), &spec(), opts(id)).await.unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::Conflict, "it is known now");
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
    tokio::time::sleep(Duration::from_millis(300)).await;
    eventually("the sandbox is taken back", async || world.alive().await == 0).await;
    assert_eq!(listed(&adapter).await, []);
}

#[tokio::test]
async fn a_program_whose_start_nobody_heard_is_ended() {
    let (world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    proxy.set(|line| if starts(line) { Fault::LoseAnswer } else { Fault::Pass });
    let short = cx().with_timeout(Duration::from_millis(500));
    let error = adapter.exec(&short, &id, ExecRequest::shell("sleep 20")).await.unwrap_err();
    assert!(!error.is_not_started(), "{error}: it may have begun");
    let theirs = world.client().sandboxes(&Default::default()).await.unwrap().items[0].id;
    eventually("the program ends", async || world.client().execs(theirs, true).await.unwrap().is_empty())
        .await;
}
