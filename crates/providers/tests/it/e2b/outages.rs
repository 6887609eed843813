//! A service that is slow, gone, or lost on the way.

use std::time::Duration;

use sandstorm_provider::{ExecRequest, OpContext, Provider};
use sandstorm_providers::e2b::E2bProvider;
use sandstorm_types::{ErrorKind, Retry, SandboxId, TenantId};

use super::world::{behind_proxy, config, creates, starts, world};
use crate::proxy::{Fault, Proxy};
use crate::world::{cx, eventually, listed, opts, sandbox, spec};

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
