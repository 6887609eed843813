//! Streams that break.

use futures_util::StreamExt;
use sandstorm_provider::{Exec, ExecEvent, ExecRequest, Provider};
use sandstorm_types::{ErrorKind, SandboxId};

use super::{Hosted, behind_proxy, for_each_service};
use crate::proxy::Fault;
use crate::world::{World, cx, eventually, sandbox};

for_each_service!(
    a_foreground_program_is_out_of_sight_with_its_connection_and_ends,
    a_stream_that_is_cut_is_not_taken_for_whole,
);

/// Waits until a program has said something.
pub(crate) async fn up(exec: &mut Exec) {
    while !matches!(exec.events.next().await.unwrap().unwrap(), ExecEvent::Output { .. }) {}
}

/// Many words with a little time between them.
pub(crate) fn talkative(words: usize) -> String {
    "echo word; sleep 0.2; ".repeat(words)
}

/// What a program's sandbox is called there.
pub(crate) async fn theirs(world: &World) -> SandboxId {
    world.client().sandboxes(&Default::default()).await.unwrap().items[0].id
}

/// Programs that run there.
pub(crate) async fn running(world: &World) -> usize {
    world.client().execs(theirs(world).await, true).await.unwrap().len()
}

async fn a_foreground_program_is_out_of_sight_with_its_connection_and_ends<H: Hosted>() {
    let (world, proxy, adapter) = behind_proxy::<H>().await;
    let id = sandbox(&adapter).await;
    let mut exec = adapter.exec(&cx(), &id, ExecRequest::shell("echo up; sleep 30")).await.unwrap();
    up(&mut exec).await;
    proxy.break_all();
    let error = exec.collect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider, "{error:?}");
    assert!(!error.is_not_started(), "{error}");
    eventually("the program ends", async || running(&world).await == 0).await;
}

async fn a_stream_that_is_cut_is_not_taken_for_whole<H: Hosted>() {
    let (_world, proxy, adapter) = behind_proxy::<H>().await;
    let id = sandbox(&adapter).await;
    // The whole answer is longer than any of these.
    let line = format!("{}; sleep 1", ["echo much"; 40].join("; "));
    for cut in [10, 200, 300, 700] {
        proxy.set(move |line| if H::starts(line) { Fault::CutAfter(cut) } else { Fault::Pass });
        let told = match adapter.exec(&cx(), &id, ExecRequest::shell(line.clone())).await {
            Ok(exec) => exec.collect().await.map(drop),
            Err(error) => Err(error),
        };
        let error = told.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Provider, "{cut}: {error:?}");
        assert!(!error.is_not_started(), "{cut}: it began");
    }
}
