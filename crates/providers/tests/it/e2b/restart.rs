//! Another adapter takes over where one was.

use bytes::Bytes;
use sandstorm_provider::{AttachFrom, CreateOptions, ExecSignal, Provider, ProviderExt};
use sandstorm_providers::e2b::E2bProvider;
use sandstorm_types::{ByteSize, ErrorKind, ExecId, Labels, User};

use super::world::{adapter, config, world};
use crate::world::{background, cx, eventually, listed, opts, sandbox, spec};

#[tokio::test]
async fn sandboxes_are_found_by_their_marks() {
    let world = world().await;
    let first = adapter(&world).await;
    let mut wanted = spec();
    wanted.limits.output = ByteSize::mib(3);
    wanted.user = User::Root;
    wanted.labels = Labels::try_from(
        [("team".to_owned(), "a b".to_owned())].into_iter().collect::<std::collections::BTreeMap<_, _>>(),
    )
    .unwrap();
    let id = first.create(&cx(), &wanted, CreateOptions::default()).await.unwrap().id;
    let path = "kept".parse().unwrap();
    first.write_bytes(&cx(), &id, &path, Bytes::from_static(b"x")).await.unwrap();
    drop(first);
    let second = adapter(&world).await;
    assert_eq!(listed(&second).await, [id]);
    let seen = second.get(&cx(), &id).await.unwrap();
    assert_eq!((seen.limits, seen.labels), (wanted.limits, wanted.labels));
    assert_eq!(second.read_bytes(&cx(), &id, &path, 10).await.unwrap(), "x");
    // What an earlier one of us made under this id is not made again.
    let third = adapter(&world).await;
    assert_eq!(third.create(&cx(), &spec(), opts(id)).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(world.alive().await, 1);
    third.destroy(&cx(), &id).await.unwrap();
    assert_eq!(world.alive().await, 0);
}

#[tokio::test]
async fn another_owner_sees_nothing_of_it() {
    let world = world().await;
    let ours = adapter(&world).await;
    let id = sandbox(&ours).await;
    let mut config = config(&world, world.address);
    config.owner = "there".parse().unwrap();
    let other = E2bProvider::connect(config).await.unwrap();
    assert_eq!(listed(&other).await, []);
    assert_eq!(other.get(&cx(), &id).await.unwrap_err().kind(), ErrorKind::NotFound);
    other.destroy(&cx(), &id).await.unwrap();
    assert_eq!(listed(&ours).await, [id]);
}

#[tokio::test]
async fn programs_from_before_can_be_ended_and_say_that_they_were_not_heard() {
    let world = world().await;
    let first = adapter(&world).await;
    let id = sandbox(&first).await;
    let exec = first.exec(&cx(), &id, background("echo up; sleep 30")).await.unwrap().id;
    first.close().await;
    drop(first);
    let second = adapter(&world).await;
    let error = second.attach(&cx(), &exec, AttachFrom::START).await.unwrap().collect().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Provider && error.to_string().contains("restart"), "{error}");
    second.signal(&cx(), &exec, ExecSignal::Kill).await.unwrap();
    let theirs = world.client().sandboxes(&Default::default()).await.unwrap().items[0].id;
    eventually("the program ends", async || world.client().execs(theirs, true).await.unwrap().is_empty())
        .await;
    let unknown = second.signal(&cx(), &ExecId::random(), ExecSignal::Kill).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn listeners_hear_that_this_side_closes() {
    let world = world().await;
    let adapter = adapter(&world).await;
    let id = sandbox(&adapter).await;
    let exec = adapter.exec(&cx(), &id, background("sleep 30")).await.unwrap();
    adapter.close().await;
    let error = tokio::time::timeout(crate::world::PATIENCE, exec.collect()).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("closing"), "{error}");
}
