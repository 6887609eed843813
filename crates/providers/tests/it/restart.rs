//! Nothing is kept on this side: a new adapter finds what an old one made.

use std::time::Duration;

use futures_util::StreamExt;
use sandstorm_provider::{AttachFrom, ExecSignal, ExecStatus, Provider, ProviderEvent, ProviderExt, Stdin};
use sandstorm_providers::sandstorm::SandstormProvider;
use sandstorm_types::{ErrorKind, Phase, State};

use crate::world::{World, background, cx, eventually, listed, sandbox, spec};

#[tokio::test]
async fn sandboxes_and_programs_are_found_again() {
    let world = World::new().await;
    let first = world.adapter().await;
    let mut labelled = spec();
    labelled.labels =
        std::collections::BTreeMap::from([("team".to_owned(), "a".to_owned())]).try_into().unwrap();
    let id = first.create(&cx(), &labelled, Default::default()).await.unwrap().id;
    let path = "kept".parse().unwrap();
    first.write_bytes(&cx(), &id, &path, "then".into()).await.unwrap();
    let mut reader = background("echo up; read line; echo \"$line\"");
    reader.stdin = Stdin::Stream;
    let exec = first.exec(&cx(), &id, reader).await.unwrap().id;
    let sleeper = first.exec(&cx(), &id, background("sleep 60")).await.unwrap().id;
    first.close().await;
    drop(first);

    let second = world.adapter().await;
    let found = second.get(&cx(), &id).await.unwrap();
    assert_eq!((found.id, found.state), (id, State::Ready));
    assert_eq!(found.labels, labelled.labels, "our own labels are not the caller's");
    assert_eq!(second.read_bytes(&cx(), &id, &path, 100).await.unwrap(), "then");
    let again = second.attach(&cx(), &exec, AttachFrom::START).await.unwrap();
    again.input.write("hello\n").await.unwrap();
    let done = again.collect().await.unwrap();
    assert_eq!((done.stdout.as_ref(), done.end.status), (&b"up\nhello\n"[..], ExecStatus::Code(0)));
    second.signal(&cx(), &sleeper, ExecSignal::Kill).await.unwrap();
    let killed = second.attach(&cx(), &sleeper, AttachFrom::START).await.unwrap().collect().await.unwrap();
    assert_eq!(killed.end.status, ExecStatus::Signal(9));

    let third = world.adapter().await;
    assert_eq!(listed(&third).await, [id]);
    third.destroy(&cx(), &id).await.unwrap();
    assert_eq!(second.get(&cx(), &id).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(world.alive().await, 0);
}

#[tokio::test]
async fn installations_that_share_an_account_see_only_their_own() {
    let world = World::new().await;
    let ours = world.adapter().await;
    let mut config = world.config(world.address);
    config.owner = "there".parse().unwrap();
    let theirs = SandstormProvider::connect(config).await.unwrap();
    let (one, other) = (sandbox(&ours).await, sandbox(&theirs).await);
    // One that nobody's adapter made.
    world.client().create_sandbox(&Default::default()).await.unwrap();
    assert_eq!((listed(&ours).await, listed(&theirs).await), (vec![one], vec![other]));
    assert_eq!(ours.get(&cx(), &other).await.unwrap_err().kind(), ErrorKind::NotFound);
    ours.destroy(&cx(), &other).await.unwrap();
    assert_eq!(world.alive().await, 3, "what is not ours is not ours to end");
}

#[tokio::test]
async fn what_happens_there_is_told_by_our_names() {
    let world = World::new().await;
    let adapter = world.adapter().await;
    let mut events = adapter.events();
    let id = sandbox(&adapter).await;
    let theirs = world.client().sandboxes(&Default::default()).await.unwrap().items[0].id;
    world.memory.lose(&theirs, "the machine was on fire").unwrap();
    let told = async {
        loop {
            match events.next().await.unwrap() {
                ProviderEvent::Ended { sandbox, reason } => return (sandbox, reason),
                ProviderEvent::Lagged | ProviderEvent::Denied { .. } => {}
            }
        }
    };
    let (lost, reason) = tokio::time::timeout(crate::world::PATIENCE, told).await.unwrap();
    assert!(lost == id && reason.contains("on fire"), "{lost} {reason}");
    assert!(matches!(adapter.get(&cx(), &id).await.unwrap().state, State::Failed { .. }));
    adapter.destroy(&cx(), &id).await.unwrap();
}

#[tokio::test]
async fn a_sandbox_lives_while_we_do_and_not_much_longer() {
    let world = World::new().await;
    let mut config = world.config(world.address);
    config.lease = Duration::from_secs(2);
    let adapter = SandstormProvider::connect(config).await.unwrap();
    let id = sandbox(&adapter).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(adapter.get(&cx(), &id).await.unwrap().state, State::Ready);
    adapter.close().await;
    eventually("the lease ends", async || {
        let all = world.client().sandboxes(&Default::default()).await.unwrap().items;
        all.iter().all(|theirs| theirs.state == Phase::Paused)
    })
    .await;
}
