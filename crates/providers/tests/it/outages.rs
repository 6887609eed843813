//! Servers that are slow, gone, or lost on the way.

use std::time::Duration;

use sandstorm_provider::Provider;
use sandstorm_providers::sandstorm::SandstormProvider;
use sandstorm_types::{ErrorKind, Retry, SandboxId};

use crate::hosted::{Hosted, Sandstorm, behind_proxy};
use crate::proxy::{Fault, Proxy};
use crate::world::{World, cx, eventually, listed, opts, spec};

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
async fn what_a_lost_answer_left_is_found_and_removed() {
    let (world, proxy, adapter) = behind_proxy::<Sandstorm>().await;
    proxy.set(|line| if Sandstorm::creates(line) { Fault::LoseAnswer } else { Fault::Pass });
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
    let (world, proxy, adapter) = behind_proxy::<Sandstorm>().await;
    proxy.set(
        |line| if Sandstorm::creates(line) { Fault::Late(Duration::from_millis(300)) } else { Fault::Pass },
    );
    let id = SandboxId::random();
    let made = adapter.create(&cx().with_timeout(Duration::from_millis(100)), &spec(), opts(id)).await;
    assert_eq!(made.unwrap_err().kind(), ErrorKind::Timeout);
    // Ending it waits for what is under way.
    adapter.destroy(&cx(), &id).await.unwrap();
    assert_eq!(world.alive().await, 0);
    adapter.create(&cx(), &spec(), opts(SandboxId::random())).await.unwrap();
    assert_eq!(world.alive().await, 1);
}
