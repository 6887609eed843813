//! Streams that break, stall, or say more than they may.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use sandstorm_provider::{
    AttachFrom, ExecEvent, ExecRequest, ExecStatus, Provider, ProviderExt, ReadRange, Stdin,
};
use sandstorm_providers::sandstorm::SandstormProvider;
use sandstorm_types::{ByteSize, ErrorKind, ExecId, GuestPath};

use crate::hosted::streams::{talkative, theirs, up};
use crate::hosted::{Hosted, Sandstorm};
use crate::proxy::{Fault, Proxy};
use crate::world::{PATIENCE, World, background, cx, eventually, sandbox};

async fn behind_proxy() -> (World, Proxy, SandstormProvider) {
    let world = World::new().await;
    let proxy = Proxy::to(world.address).await;
    let mut config = world.config(proxy.address);
    config.silence = Duration::from_secs(2);
    let adapter = SandstormProvider::connect(config).await.unwrap();
    (world, proxy, adapter)
}

#[tokio::test]
async fn a_background_program_is_heard_on_after_a_break() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    let line = format!("echo first; {} exit 3", talkative(10));
    let mut exec = adapter.exec(&cx(), &id, background(&line)).await.unwrap();
    up(&mut exec).await;
    proxy.break_all();
    let done = exec.collect().await.unwrap();
    assert_eq!(done.stdout.as_ref(), "word\n".repeat(10).as_bytes(), "nothing is missing or said twice");
    assert_eq!(done.end.status, ExecStatus::Code(3));
}

#[tokio::test]
async fn a_half_open_connection_is_noticed() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    let mut exec = adapter.exec(&cx(), &id, ExecRequest::shell(talkative(100))).await.unwrap();
    for _ in 0..12 {
        up(&mut exec).await;
    }
    proxy.freeze();
    let began = Instant::now();
    let error = tokio::time::timeout(PATIENCE, exec.collect()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider, "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

/// A stream of events as a server would write it.
fn events(exec: &str, said: &[(u64, String)]) -> Fault {
    let mut text = format!("event: start\ndata: {{\"seq\":0,\"type\":\"start\",\"exec\":\"{exec}\"}}\n\n");
    for (number, (offset, word)) in said.iter().enumerate() {
        let seq = number + 1;
        text.push_str(&format!(
            "event: stdout\ndata: {{\"seq\":{seq},\"type\":\"stdout\",\"offset\":{offset},\"text\":\"{word}\"}}\n\n"
        ));
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    Fault::Answer(format!("{head}{text}").into_bytes())
}

#[tokio::test]
async fn output_beyond_the_limit_or_with_holes_is_refused() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    let request = |exec: &str| {
        let mut request = ExecRequest::shell("true");
        request.id = exec.parse().unwrap();
        request.output = Some(ByteSize::kib(64));
        request
    };
    let flood: Vec<_> = (0..1600).map(|n| (n * 65_536, "x".repeat(65_536))).collect();
    let garbage = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n<html>\n\ndata: {\n\n".to_vec();
    for (what, most) in [
        ("100 MB", 64 << 10),
        ("a hole", 1),
        ("another program", 0),
        ("no events", 0),
        ("the end before the end", 1),
    ] {
        let (ours, other) = (ExecId::random().to_string(), ExecId::random().to_string());
        let told = match what {
            "100 MB" => events(&ours, &flood),
            "a hole" => events(&ours, &[(0, "a".into()), (5, "b".into())]),
            "another program" => events(&other, &[]),
            "no events" => Fault::Answer(garbage.clone()),
            _ => events(&ours, &[(0, "a".into())]),
        };
        proxy.set(move |line| if Sandstorm::starts(line) { told.clone() } else { Fault::Pass });
        let mut exec = adapter.exec(&cx(), &id, request(&ours)).await.unwrap();
        let mut heard = 0;
        let error = loop {
            match exec.events.next().await.unwrap() {
                Ok(ExecEvent::Output { bytes, .. }) => heard += bytes.len(),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Provider, "{what}: {error:?}");
        assert!(heard <= most, "{what}: {heard} bytes");
        assert!(exec.events.next().await.is_none(), "{what}: nothing follows");
    }
}

#[tokio::test]
async fn lost_input_is_not_passed_over() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    let mut cat = ExecRequest::program(["/bin/cat"]);
    cat.stdin = Stdin::Stream;
    let mut exec = adapter.exec(&cx(), &id, cat).await.unwrap();
    exec.input.write("heard\n").await.unwrap();
    up(&mut exec).await;
    proxy.set(|line| if line.contains("/stdin") { Fault::Reset } else { Fault::Pass });
    exec.input.write("lost\n").await.unwrap();
    let error = tokio::time::timeout(PATIENCE, exec.collect()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    assert!(error.to_string().contains("input"), "{error}");
}

#[tokio::test]
async fn input_that_is_too_long_for_a_request_comes_after_it() {
    let (_world, _proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    let long: Bytes = (0..3 << 20).map(|place: u32| place as u8).collect();
    let mut cat = ExecRequest::program(["/bin/cat"]);
    cat.stdin = Stdin::Given(long.clone());
    let done = adapter.exec_collect(&cx(), &id, cat).await.unwrap();
    assert!(done.stdout == long, "{} bytes came back", done.stdout.len());
}

#[tokio::test]
async fn a_program_that_may_have_begun_unheard_is_ended() {
    let (world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    proxy.set(|line| if Sandstorm::starts(line) { Fault::LoseAnswer } else { Fault::Pass });
    let request = background("sleep 60");
    let again = request.clone();
    let error = adapter.exec(&cx(), &id, request).await.unwrap_err();
    assert_eq!((error.kind(), error.is_not_started()), (ErrorKind::Provider, false));
    let twice = adapter.exec(&cx(), &id, again).await.unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::Conflict, "an id is begun once");
    let theirs = world.client().sandboxes(&Default::default()).await.unwrap().items[0].id;
    eventually("it is ended", async || {
        let all = world.client().execs(theirs, false).await.unwrap();
        !all.is_empty() && all.iter().all(|exec| !exec.running)
    })
    .await;
}

#[tokio::test]
async fn a_file_that_is_cut_is_not_taken_for_whole_and_a_cancel_closes_it() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    let path: GuestPath = "large".parse().unwrap();
    adapter.write_bytes(&cx(), &id, &path, Bytes::from(vec![7; 1 << 20])).await.unwrap();
    proxy.set(|line| if line.starts_with("GET ") { Fault::CutAfter(100_000) } else { Fault::Pass });
    let error = adapter.read_bytes(&cx(), &id, &path, 2 << 20).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider, "{error:?}");
    proxy.heal();
    let context = cx().child();
    let mut content = adapter.read_file(&context, &id, &path, ReadRange::default()).await.unwrap();
    content.try_next().await.unwrap().unwrap();
    context.cancellation().cancel();
    assert_eq!(content.try_next().await.unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(content.try_next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_long_output_comes_whole_and_at_the_listeners_pace() {
    let (_world, _proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    let path: GuestPath = "much".parse().unwrap();
    let much = Bytes::from(vec![b'x'; 9 << 20]);
    adapter.write_bytes(&cx(), &id, &path, much.clone()).await.unwrap();
    let request = ExecRequest::program(["/bin/cat", "much"]);
    let exec_id = request.id;
    let done = adapter.exec_collect(&cx(), &id, request).await.unwrap();
    assert_eq!(done.stdout.len(), much.len());
    let again = adapter.attach(&cx(), &exec_id, AttachFrom::START).await.unwrap().collect().await.unwrap();
    assert_eq!(again, done);
}

#[tokio::test]
async fn a_sandbox_that_is_lost_ends_the_events_of_its_programs() {
    let (world, _proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    let mut exec = adapter.exec(&cx(), &id, ExecRequest::shell(talkative(200))).await.unwrap();
    up(&mut exec).await;
    world.memory.lose(&theirs(&world).await, "the machine was on fire").unwrap();
    let error = tokio::time::timeout(PATIENCE, exec.collect()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider, "{error:?}");
}
