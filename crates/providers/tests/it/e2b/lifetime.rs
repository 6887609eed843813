//! Leases: renewed while this side lives, and over when it does not.

use std::time::Duration;

use futures_util::StreamExt;
use sandstorm_provider::{CreateOptions, Provider, ProviderEvent};
use sandstorm_providers::e2b::E2bProvider;
use sandstorm_types::{ErrorKind, State, Transition};

use super::world::{config, world};
use crate::world::{PATIENCE, World, cx, eventually, listed, sandbox, spec};

async fn with_short_lease(world: &World) -> E2bProvider {
    let mut config = config(world, world.address);
    config.lease = Duration::from_secs(2);
    config.poll = Duration::from_millis(200);
    E2bProvider::connect(config).await.unwrap()
}

#[tokio::test]
async fn a_lease_is_renewed_and_a_sleeper_is_not_woken() {
    let world = world().await;
    let adapter = with_short_lease(&world).await;
    let (awake, asleep) = (sandbox(&adapter).await, sandbox(&adapter).await);
    adapter.transition(&cx(), &asleep, Transition::Pause).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(adapter.get(&cx(), &awake).await.unwrap().state, State::Ready);
    assert_eq!(adapter.get(&cx(), &asleep).await.unwrap().state, State::Paused);
}

#[tokio::test]
async fn without_this_side_sandboxes_sleep_or_end() {
    let world = world().await;
    let adapter = with_short_lease(&world).await;
    let kept = sandbox(&adapter).await;
    let once = CreateOptions { ephemeral: true, ..CreateOptions::default() };
    adapter.create(&cx(), &spec(), once).await.unwrap();
    adapter.close().await;
    drop(adapter);
    eventually("what served one run ends", async || world.alive().await == 1).await;
    let later = with_short_lease(&world).await;
    eventually("the other one sleeps", async || {
        later.get(&cx(), &kept).await.is_ok_and(|sandbox| sandbox.state == State::Paused)
    })
    .await;
    assert_eq!(later.transition(&cx(), &kept, Transition::Resume).await.unwrap().state, State::Ready);
}

#[tokio::test]
async fn that_a_sandbox_ended_is_told_without_being_asked() {
    let world = world().await;
    let adapter = with_short_lease(&world).await;
    let id = sandbox(&adapter).await;
    let mut news = adapter.events();
    let theirs = world.client().sandboxes(&Default::default()).await.unwrap().items[0].id;
    world.client().delete_sandbox(theirs).await.unwrap();
    let told = tokio::time::timeout(PATIENCE, news.next()).await.unwrap();
    assert!(matches!(told, Some(ProviderEvent::Ended { sandbox, .. }) if sandbox == id), "{told:?}");
    assert_eq!(adapter.get(&cx(), &id).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(listed(&adapter).await, []);
}
