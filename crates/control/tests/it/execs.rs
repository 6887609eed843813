//! Programs in sandboxes: events, ends, disconnects, coming back.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use sandstorm_control::server::{ExecWork, NewExec, NewSandbox};
use sandstorm_provider::{Command, ExecSignal, TtySize};
use sandstorm_types::{ErrorKind, Event, EventBody, ExecId, LimitsPatch, SandboxId, Status};

use crate::world::{World, all, eventually, exec, names, plain, shell};

async fn sandbox(world: &World) -> SandboxId {
    world.control.create_sandbox(&world.caller(), plain()).await.unwrap().id
}

fn text(events: &[Event]) -> (String, String) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    for event in events {
        match &event.body {
            EventBody::Stdout(chunk) => {
                assert_eq!(chunk.offset, stdout.len() as u64);
                stdout.extend_from_slice(chunk.data.as_bytes());
            }
            EventBody::Stderr(chunk) => stderr.extend_from_slice(chunk.data.as_bytes()),
            _ => {}
        }
    }
    (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn background(line: &str) -> NewExec {
    NewExec { background: true, ..shell(line) }
}

#[tokio::test]
async fn events_are_numbered_from_start_to_end() {
    let world = World::new().await;
    let (caller, id) = (world.caller(), sandbox(&world).await);
    let attached = world.control.exec(&caller, id, shell("echo one; echo two >&2; exit 3")).await.unwrap();
    let exec = attached.view.id;
    assert_eq!(
        (attached.view.status, attached.view.title.as_str()),
        (None, "echo one; echo two >&2; exit 3")
    );
    let events = all(attached).await;
    let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    assert!(matches!(events[0].body, EventBody::Start { exec: started } if started == exec));
    assert_eq!(text(&events), ("one\n".to_owned(), "two\n".to_owned()));
    let Some(EventBody::End(end)) = events.last().map(|event| &event.body) else { panic!("no end") };
    assert_eq!((end.status, end.exit_code, end.success), (Status::Error, Some(3), false));
    assert_eq!(end.problem, None);
    // The end was stored before it was told.
    let view = world.control.exec_view(&caller, id, exec).await.unwrap();
    assert_eq!(view.status, Some(Status::Error));
    let result = view.result.unwrap();
    assert_eq!((result.id, result.stdout.as_str(), result.exit_code), (exec.to_string(), "one\n", Some(3)));
    // Whoever comes later hears the same, from any place on.
    let again = all(world.control.attach(&caller, id, exec, None).await.unwrap()).await;
    assert_eq!(again, events);
    let rest = all(world.control.attach(&caller, id, exec, Some(1)).await.unwrap()).await;
    assert_eq!(rest, events[2..]);
    let names = names(&world, &caller, 5).await;
    assert_eq!(names[2..], ["execute:start", "execute:error", "execute:complete"]);
}

#[tokio::test]
async fn finishing_gives_the_whole_result() {
    let world = World::new().await;
    let (caller, id) = (world.caller(), sandbox(&world).await);
    // More than is stored with the record.
    let long = Bytes::from("x".repeat(600_000));
    let new = NewExec {
        stdin: Some(long.clone()),
        ..exec(ExecWork::Command(Command::Program(vec!["cat".into()])))
    };
    let attached = world.control.exec(&caller, id, new).await.unwrap();
    let exec = attached.view.id;
    let result = world.control.finish(attached).await.unwrap();
    assert_eq!((result.stdout.len(), result.status), (long.len(), Status::Ok));
    assert!(!result.truncated.stdout);
    let stored = world.control.exec_view(&caller, id, exec).await.unwrap().result.unwrap();
    assert!(stored.truncated.stdout && stored.stdout.len() < long.len());
    let again = world.control.attach(&caller, id, exec, None).await.unwrap();
    assert_eq!(world.control.finish(again).await.unwrap().stdout.len(), long.len());
}

#[tokio::test]
async fn a_disconnect_ends_a_foreground_program() {
    let world = World::new().await;
    let (caller, id) = (world.caller(), sandbox(&world).await);
    let mut attached = world.control.exec(&caller, id, shell("echo hi; sleep 60")).await.unwrap();
    attached.events.next().await.unwrap();
    let exec = attached.view.id;
    drop(attached);
    eventually("it ended", || async {
        world.control.exec_view(&caller, id, exec).await.unwrap().status == Some(Status::Killed)
    })
    .await;
    assert_eq!(world.control.sandbox(&caller, id).await.unwrap().execs_running, 0);
}

#[tokio::test]
async fn background_work_has_no_limit_of_time_but_what_it_was_given() {
    let world = World::new().await;
    let caller = world.caller();
    let limits = LimitsPatch { wall: Some(Duration::from_millis(100)), ..LimitsPatch::default() };
    let new = NewSandbox { limits, ..plain() };
    let id = world.control.create_sandbox(&caller, new).await.unwrap().id;
    let unlimited = world.control.exec(&caller, id, background("sleep 600")).await.unwrap().view.id;
    let given = NewExec { timeout: Some(Duration::from_millis(200)), ..background("sleep 600") };
    let limited = world.control.exec(&caller, id, given).await.unwrap();
    // Both of these end long after the first would have to by the sandbox's limit.
    assert_eq!(world.control.finish(limited).await.unwrap().status, Status::Timeout);
    let attached = world.control.exec(&caller, id, shell("sleep 600")).await.unwrap();
    assert_eq!(world.control.finish(attached).await.unwrap().status, Status::Timeout);
    assert_eq!(world.control.exec_view(&caller, id, unlimited).await.unwrap().status, None);
}

#[tokio::test]
async fn background_and_kept_programs_outlive_their_listeners() {
    let world = World::new().await;
    let (caller, id) = (world.caller(), sandbox(&world).await);
    let kept = NewExec { keep_on_disconnect: true, ..shell("sleep 0.3; echo done") };
    for new in [background("sleep 0.3; echo done"), kept] {
        let attached = world.control.exec(&caller, id, new).await.unwrap();
        let exec = attached.view.id;
        drop(attached);
        let events = all(world.control.attach(&caller, id, exec, None).await.unwrap()).await;
        assert_eq!(text(&events).0, "done\n");
        assert!(matches!(&events.last().unwrap().body, EventBody::End(end) if end.status == Status::Ok));
    }
}

#[tokio::test]
async fn dropping_who_attached_ends_nothing() {
    let world = World::new().await;
    let (caller, id) = (world.caller(), sandbox(&world).await);
    let own = world.control.exec(&caller, id, shell("sleep 0.3; echo done")).await.unwrap();
    let mut other = world.control.attach(&caller, id, own.view.id, None).await.unwrap();
    other.events.next().await.unwrap();
    drop(other);
    assert_eq!(text(&all(own).await).0, "done\n");
}

#[tokio::test]
async fn an_exec_that_is_given_up_while_it_starts_leaves_nothing_running() {
    let world = World::new().await;
    let (caller, id) = (world.caller(), sandbox(&world).await);
    for _ in 0..10 {
        let mut start = Box::pin(world.control.exec(&caller, id, shell("sleep 60")));
        assert!(futures_util::poll!(&mut start).is_pending());
        drop(start);
    }
    eventually("nothing runs", || async { world.control.execs(&caller, id, true).await.unwrap().is_empty() })
        .await;
}

#[tokio::test]
async fn input_signals_and_terminals() {
    let world = World::new().await;
    let (caller, id) = (world.caller(), sandbox(&world).await);
    let cat = exec(ExecWork::Command(Command::Program(vec!["cat".into()])));
    let attached = world.control.exec(&caller, id, NewExec { stdin_stream: true, ..cat }).await.unwrap();
    let exec_id = attached.view.id;
    world.control.write_stdin(&caller, id, exec_id, Bytes::from_static(b"typed")).await.unwrap();
    world.control.signal(&caller, id, exec_id, ExecSignal::CloseStdin).await.unwrap();
    assert_eq!(text(&all(attached).await).0, "typed");
    // One that has ended takes signals in silence, but no input.
    world.control.signal(&caller, id, exec_id, ExecSignal::Kill).await.unwrap();
    let refused = world.control.write_stdin(&caller, id, exec_id, Bytes::from_static(b"x")).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    let size = TtySize { rows: 24, cols: 80 };
    let attached = world
        .control
        .exec(&caller, id, NewExec { tty: Some(size), stdin_stream: true, ..shell("read go; stty size") })
        .await
        .unwrap();
    world
        .control
        .signal(&caller, id, attached.view.id, ExecSignal::Resize(TtySize { rows: 9, cols: 7 }))
        .await
        .unwrap();
    world.control.write_stdin(&caller, id, attached.view.id, Bytes::from_static(b"\n")).await.unwrap();
    assert_eq!(text(&all(attached).await).0.trim_end(), "9 7");
    let attached = world.control.exec(&caller, id, background("sleep 600")).await.unwrap();
    world.control.signal(&caller, id, attached.view.id, ExecSignal::Kill).await.unwrap();
    let result = world.control.finish(attached).await.unwrap();
    assert_eq!((result.status, result.signal), (Status::Killed, Some(9)));
}

#[tokio::test]
async fn timeouts_are_verdicts() {
    let world = World::new().await;
    let (caller, id) = (world.caller(), sandbox(&world).await);
    let new = NewExec { timeout: Some(Duration::from_millis(100)), ..shell("sleep 60") };
    let attached = world.control.exec(&caller, id, new).await.unwrap();
    assert_eq!(world.control.finish(attached).await.unwrap().status, Status::Timeout);
    let too_long = NewExec { timeout: Some(Duration::from_secs(86_401)), ..shell("true") };
    assert_eq!(
        world.control.exec(&caller, id, too_long).await.unwrap_err().kind(),
        ErrorKind::InvalidRequest
    );
}

#[tokio::test]
async fn code_is_laid_out_beside_the_users_files_and_swept_up() {
    let world = World::new().await;
    let (caller, id) = (world.caller(), sandbox(&world).await);
    let code =
        ExecWork::Code { language: "bash".parse().unwrap(), code: "echo the code".into(), args: vec![] };
    let attached = world.control.exec(&caller, id, exec(code)).await.unwrap();
    assert_eq!(attached.view.title, "bash");
    assert_eq!(world.control.finish(attached).await.unwrap().stdout, "echo the code");
    eventually("nothing is left of it", || async {
        let op =
            sandstorm_provider::FileOp::List { path: "/workspace".parse().unwrap(), depth: 1, limit: 10 };
        let reply = world.control.files(&caller, id, op).await.unwrap();
        matches!(reply, sandstorm_provider::FileReply::List { entries, .. } if entries.is_empty())
    })
    .await;
    // Arguments arrive as they are, also one that looks like a folder of ours.
    let args = vec!["/workspace/kept".to_owned(), "/tmp/build/x".to_owned()];
    let line = "echo kept > /workspace/kept";
    world.control.finish(world.control.exec(&caller, id, shell(line)).await.unwrap()).await.unwrap();
    let code = ExecWork::Code { language: "bash".parse().unwrap(), code: "c".into(), args };
    let attached = world.control.exec(&caller, id, exec(code)).await.unwrap();
    let result = world.control.finish(attached).await.unwrap();
    assert_eq!(result.stdout, "ckept\n");
    assert!(result.stderr.contains("/tmp/build/x"), "{}", result.stderr);
    let unknown = ExecWork::Code { language: "klingon".parse().unwrap(), code: "x".into(), args: vec![] };
    assert_eq!(
        world.control.exec(&caller, id, exec(unknown)).await.unwrap_err().kind(),
        ErrorKind::InvalidRequest
    );
}

#[tokio::test]
async fn execs_are_listed_and_found_by_their_sandbox_only() {
    let world = World::new().await;
    let (caller, stranger) = (world.caller(), world.stranger().await);
    let (id, other) = (sandbox(&world).await, sandbox(&world).await);
    let running = world.control.exec(&caller, id, background("sleep 600")).await.unwrap().view.id;
    // Those of one millisecond have no order.
    tokio::time::sleep(Duration::from_millis(5)).await;
    let ended = world.control.exec(&caller, id, shell("true")).await.unwrap();
    let ended_id = ended.view.id;
    world.control.finish(ended).await.unwrap();
    let list = world.control.execs(&caller, id, false).await.unwrap();
    assert_eq!(list.iter().map(|view| view.id).collect::<Vec<_>>(), [ended_id, running]);
    let only = world.control.execs(&caller, id, true).await.unwrap();
    assert_eq!(only.iter().map(|view| view.id).collect::<Vec<_>>(), [running]);
    for (who, sandbox, exec) in [
        (&caller, other, running),
        (&caller, other, ended_id),
        (&stranger, id, running),
        (&stranger, id, ended_id),
        (&caller, id, ExecId::random()),
    ] {
        let kinds = [
            world.control.attach(who, sandbox, exec, None).await.unwrap_err().kind(),
            world.control.exec_view(who, sandbox, exec).await.unwrap_err().kind(),
            world.control.signal(who, sandbox, exec, ExecSignal::Kill).await.unwrap_err().kind(),
            world.control.write_stdin(who, sandbox, exec, Bytes::new()).await.unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::NotFound; 4]);
    }
    assert_eq!(world.control.exec_view(&caller, id, running).await.unwrap().status, None);
}

#[tokio::test]
async fn deleting_a_sandbox_ends_its_programs_without_blame() {
    let world = World::new().await;
    let (caller, id) = (world.caller(), sandbox(&world).await);
    let attached = world.control.exec(&caller, id, background("echo hi; sleep 60")).await.unwrap();
    let exec = attached.view.id;
    world.control.delete_sandbox(&caller, id).await.unwrap();
    let events = all(attached).await;
    let Some(EventBody::End(end)) = events.last().map(|event| &event.body) else { panic!("no end") };
    assert_eq!((end.status, &end.problem), (Status::Killed, &None));
    // What it came to is known after the sandbox is gone.
    let later = all(world.control.attach(&caller, id, exec, None).await.unwrap()).await;
    assert!(matches!(&later.last().unwrap().body, EventBody::End(end) if end.status == Status::Killed));
}

#[tokio::test]
async fn a_program_that_cannot_start_is_told_and_recorded() {
    let world = World::new().await;
    let (caller, id) = (world.caller(), sandbox(&world).await);
    let nothing = exec(ExecWork::Command(Command::Program(vec!["/no/such/program".into()])));
    let refused = world.control.exec(&caller, id, nothing).await;
    assert!(refused.is_err());
    let list = world.control.execs(&caller, id, false).await.unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].status, Some(Status::Killed));
    let empty = exec(ExecWork::Command(Command::Program(vec![])));
    assert_eq!(world.control.exec(&caller, id, empty).await.unwrap_err().kind(), ErrorKind::InvalidRequest);
}

#[tokio::test]
async fn the_trace_reaches_the_program() {
    let world = World::new().await;
    let id = sandbox(&world).await;
    let caller =
        world.caller().with_request("req", Some("00-00000000000000000000000000000abc-00000000000000d1-01"));
    let attached = world.control.exec(&caller, id, shell("echo $TRACEPARENT")).await.unwrap();
    let line = world.control.finish(attached).await.unwrap().stdout;
    assert!(line.starts_with("00-00000000000000000000000000000abc-"), "{line}");
    let attached = world.control.exec(&world.caller(), id, shell("echo [$TRACEPARENT]")).await.unwrap();
    assert_eq!(world.control.finish(attached).await.unwrap().stdout, "[]\n");
}

#[tokio::test]
async fn what_is_not_kept_has_no_limit_and_is_gone_when_it_is_forgotten() {
    let world = World::new().await;
    let (caller, id) = (world.caller(), sandbox(&world).await);
    let reader = "read a; echo \"$a\"; read b; echo \"$b\"; read c; echo \"$c\"";
    let new = NewExec { replay: false, stdin_stream: true, ..background(reader) };
    let attached = world.control.exec(&caller, id, new).await.unwrap();
    let exec = attached.view.id;
    assert!(!attached.view.replay);
    drop(attached);
    let mut listener = world.control.attach(&caller, id, exec, None).await.unwrap();
    world.control.write_stdin(&caller, id, exec, Bytes::from_static(b"one\ntwo\n")).await.unwrap();
    let mut heard = Vec::new();
    while text(&heard).0 != "one\ntwo\n" {
        heard.push(listener.events.next().await.unwrap());
    }
    let last = heard.last().unwrap().seq;
    drop(listener);
    // Who comes back behind what was heard goes on there, in numbers and in places.
    world.control.signal(&caller, id, exec, ExecSignal::Forget { before: last + 1 }).await.unwrap();
    let mut again = world.control.attach(&caller, id, exec, Some(last)).await.unwrap();
    world.control.write_stdin(&caller, id, exec, Bytes::from_static(b"three\n")).await.unwrap();
    let next = again.events.next().await.unwrap();
    let EventBody::Stdout(chunk) = &next.body else { panic!("{next:?}") };
    assert_eq!((next.seq, chunk.offset, chunk.data.as_bytes()), (last + 1, 8, &b"three\n"[..]));
    let end = again.events.next().await.unwrap();
    assert!(end.seq == last + 2 && matches!(end.body, EventBody::End(_)), "{end:?}");
    // Also when it has ended; and what is forgotten is gone.
    let all_that_is_left = all(world.control.attach(&caller, id, exec, Some(last)).await.unwrap()).await;
    assert_eq!(all_that_is_left, [next, end]);
    let from_the_start = all(world.control.attach(&caller, id, exec, None).await.unwrap()).await;
    assert_eq!(from_the_start, all_that_is_left);
}

#[tokio::test]
async fn only_commands_in_the_background_do_without_replay() {
    let world = World::new().await;
    let (caller, id) = (world.caller(), sandbox(&world).await);
    let code = ExecWork::Code { language: "bash".parse().unwrap(), code: "x".into(), args: vec![] };
    for wrong in [
        NewExec { replay: false, ..shell("true") },
        NewExec { replay: false, keep_on_disconnect: true, ..shell("true") },
        NewExec { replay: false, background: true, ..exec(code) },
        NewExec { replay: false, output: Some(sandstorm_types::ByteSize::mib(1)), ..background("true") },
    ] {
        let refused = world.control.exec(&caller, id, wrong).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidRequest, "{refused}");
    }
    // What is kept cannot be made to be forgotten.
    let kept = world.control.exec(&caller, id, background("sleep 60")).await.unwrap().view.id;
    let forget = ExecSignal::Forget { before: 9 };
    let refused = world.control.signal(&caller, id, kept, forget).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidRequest, "{refused}");
}
