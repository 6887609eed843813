//! Streams that break, lie, flood or fall silent.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use sandstorm_provider::{
    AttachFrom, EndCause, ExecEvent, ExecRequest, ExecSignal, ExecStatus, Provider, ProviderEvent,
    ProviderExt, Stdin, TtySize,
};
use sandstorm_providers::e2b::E2bProvider;
use sandstorm_types::{ByteSize, ErrorKind, LimitName, Transition};

use super::world::{adapter, behind_proxy, config, starts, world};
use crate::hosted::streams::{running, talkative, theirs, up};
use crate::proxy::{Fault, Proxy};
use crate::world::{PATIENCE, background, cx, eventually, sandbox};

#[tokio::test]
async fn a_background_program_runs_on_out_of_sight_and_can_be_ended() {
    let (world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    let mut exec = adapter.exec(&cx(), &id, background("echo up; sleep 30")).await.unwrap();
    up(&mut exec).await;
    proxy.break_all();
    let exec_id = exec.id;
    assert_eq!(exec.collect().await.unwrap_err().kind(), ErrorKind::Provider);
    let again = adapter.attach(&cx(), &exec_id, AttachFrom::START).await.unwrap();
    let events: Vec<_> = again.events.collect().await;
    assert!(
        matches!(&events[..], [Ok(ExecEvent::Started), Ok(ExecEvent::Output { .. }), Err(_)]),
        "{events:?}"
    );
    assert_eq!(running(&world).await, 1, "it runs on");
    adapter.signal(&cx(), &exec_id, ExecSignal::Kill).await.unwrap();
    eventually("the program ends", async || running(&world).await == 0).await;
}

#[tokio::test]
async fn a_half_open_connection_is_noticed() {
    let world = world().await;
    let proxy = Proxy::to(world.address).await;
    let mut config = config(&world, proxy.address);
    config.silence = Duration::from_secs(3);
    config.answer_timeout = Duration::from_secs(3);
    let adapter = E2bProvider::connect(config).await.unwrap();
    let id = sandbox(&adapter).await;
    // Signs of life keep one that says nothing.
    let quiet = adapter.exec_collect(&cx(), &id, ExecRequest::shell("sleep 4; echo done")).await.unwrap();
    assert_eq!(quiet.stdout, "done\n");
    let mut exec = adapter.exec(&cx(), &id, ExecRequest::shell(talkative(100))).await.unwrap();
    up(&mut exec).await;
    proxy.freeze();
    let began = Instant::now();
    let error = tokio::time::timeout(PATIENCE, exec.collect()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider, "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_sandbox_that_is_lost_ends_the_events_of_its_programs() {
    let (world, _proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    let mut news = adapter.events();
    let mut exec = adapter.exec(&cx(), &id, ExecRequest::shell(talkative(200))).await.unwrap();
    up(&mut exec).await;
    world.memory.lose(&theirs(&world).await, "the machine was on fire").unwrap();
    let error = tokio::time::timeout(PATIENCE, exec.collect()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider, "{error:?}");
    let told = tokio::time::timeout(PATIENCE, news.next()).await.unwrap();
    assert!(matches!(told, Some(ProviderEvent::Ended { sandbox, .. }) if sandbox == id), "{told:?}");
    let later = adapter.exec(&cx(), &id, ExecRequest::shell("true")).await.unwrap_err();
    assert_eq!((later.kind(), later.is_not_started()), (ErrorKind::NotFound, true), "{later}");
}

/// A stream as a server would write it, with this said again and again.
fn stream(first: &[&str], rest: &str) -> Fault {
    let frame = |json: &str| {
        let mut frame = vec![0];
        frame.extend_from_slice(&u32::try_from(json.len()).unwrap().to_be_bytes());
        frame.extend_from_slice(json.as_bytes());
        frame
    };
    let mut head =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/connect+json\r\nconnection: close\r\n\r\n".to_vec();
    first.iter().for_each(|json| head.extend(frame(json)));
    match rest.is_empty() {
        true => Fault::Answer(head),
        false => Fault::Endless(head, frame(rest)),
    }
}

const START: &str = r#"{"event":{"start":{"pid":7}}}"#;

#[tokio::test]
async fn a_flood_of_output_is_cut_off_in_bounded_time_and_memory() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    let piece = format!(r#"{{"event":{{"data":{{"stdout":"{}"}}}}}}"#, "eHh4".repeat(16 << 10));
    let flood = stream(&[START], &piece);
    proxy.set(move |line| if starts(line) { flood.clone() } else { Fault::Pass });
    let req = ExecRequest { output: Some(ByteSize::mib(10)), ..ExecRequest::shell("true") };
    let began = Instant::now();
    // Far more than 100 MB come, and never an end: what was kept is heard, and then that nobody knows more.
    let exec = adapter.exec(&cx(), &id, req).await.unwrap();
    let (mut kept, mut last) = (0, None);
    let mut events = exec.events;
    while let Some(event) = tokio::time::timeout(PATIENCE, events.next()).await.unwrap() {
        match event {
            Ok(ExecEvent::Output { bytes, .. }) => kept += bytes.len() as u64,
            other => last = Some(other),
        }
    }
    assert_eq!(kept, ByteSize::mib(10).as_u64());
    assert_eq!(last.unwrap().unwrap_err().kind(), ErrorKind::Provider);
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

#[tokio::test]
async fn senseless_streams_are_told_as_such() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    for told in [
        stream(&[], ""),
        stream(&["not json"], ""),
        stream(&[r#"{"event":{"data":{"stdout":"eA=="}}}"#], ""),
        stream(&[START, START], ""),
        stream(&[START, r#"{"event":{"data":{"stdout":"not base64"}}}"#], ""),
        stream(&[START, r#"{"event":{"end":{"exitCode":-1,"status":"it vanished"}}}"#], ""),
        Fault::Answer(b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi".to_vec()),
        Fault::Answer(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/connect+json\r\n\r\n\0\xff\xff\xff\xff".to_vec(),
        ),
    ] {
        proxy.set(move |line| if starts(line) { told.clone() } else { Fault::Pass });
        let done = match adapter.exec(&cx(), &id, ExecRequest::shell("true")).await {
            Ok(exec) => tokio::time::timeout(PATIENCE, exec.collect()).await.unwrap().map(drop),
            Err(error) => Err(error),
        };
        let error = done.unwrap_err();
        assert_eq!((error.kind(), error.is_not_started()), (ErrorKind::Provider, false), "{error:?}");
    }
}

#[tokio::test]
async fn a_break_while_the_sandbox_sleeps_is_bridged_and_told() {
    let (_world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    let mut exec = adapter.exec(&cx(), &id, background("echo up; sleep 1; echo done; exit 3")).await.unwrap();
    up(&mut exec).await;
    adapter.transition(&cx(), &id, Transition::Pause).await.unwrap();
    // As with a machine that is frozen: its connections do not outlive it.
    proxy.break_all();
    let refused = adapter.exec(&cx(), &id, ExecRequest::shell("true")).await.unwrap_err();
    assert_eq!((refused.kind(), refused.is_not_started()), (ErrorKind::Conflict, true), "{refused}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    adapter.transition(&cx(), &id, Transition::Resume).await.unwrap();
    let done = tokio::time::timeout(PATIENCE, exec.collect()).await.unwrap().unwrap();
    assert_eq!((done.stdout.as_ref(), done.end.status), (&b"done\n"[..], ExecStatus::Code(3)));
    assert!(
        done.end.truncated.stdout && done.end.truncated.stderr,
        "something may be missing: {:?}",
        done.end
    );
}

#[tokio::test]
async fn a_deadline_counts_and_is_told() {
    let world = world().await;
    let adapter = adapter(&world).await;
    let id = sandbox(&adapter).await;
    let req = ExecRequest { timeout: Some(Duration::from_millis(700)), ..background("echo up; sleep 30") };
    let done = adapter.exec(&cx(), &id, req).await.unwrap().collect().await.unwrap();
    assert_eq!((done.end.cause, done.end.status), (EndCause::Limit(LimitName::Wall), ExecStatus::Signal(9)));
    eventually("the program ends", async || running(&world).await == 0).await;
}

#[tokio::test]
async fn a_terminal_takes_input_and_sizes() {
    let world = world().await;
    let adapter = adapter(&world).await;
    let id = sandbox(&adapter).await;
    let req = ExecRequest {
        tty: Some(TtySize { rows: 40, cols: 100 }),
        stdin: Stdin::Stream,
        ..ExecRequest::shell("read word; echo \"<$word>\"; stty size")
    };
    let exec = adapter.exec(&cx(), &id, req).await.unwrap();
    adapter.signal(&cx(), &exec.id, ExecSignal::Resize(TtySize { rows: 50, cols: 120 })).await.unwrap();
    exec.input.write("hello\n").await.unwrap();
    let done = exec.collect().await.unwrap();
    let text = String::from_utf8_lossy(&done.stdout).replace("\r\n", "\n");
    assert!(text.ends_with("<hello>\n50 120\n"), "{text:?}");
}

#[tokio::test]
async fn lost_input_is_told() {
    let (world, proxy, adapter) = behind_proxy().await;
    let id = sandbox(&adapter).await;
    let req = ExecRequest { stdin: Stdin::Stream, ..ExecRequest::program(["/bin/cat"]) };
    let mut exec = adapter.exec(&cx(), &id, req).await.unwrap();
    exec.input.write("first").await.unwrap();
    up(&mut exec).await;
    proxy.set(|line| if line.contains("SendInput") { Fault::Reset } else { Fault::Pass });
    exec.input.write("second").await.unwrap();
    let error = tokio::time::timeout(PATIENCE, exec.collect()).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("input was lost"), "{error}");
    eventually("the program ends", async || running(&world).await == 0).await;
}
