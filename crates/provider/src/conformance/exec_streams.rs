//! Programs run, write and end, and all of it is told as it was.

use futures_util::future::try_join_all;
use futures_util::stream::TryStreamExt;
use sandstorm_types::{EnvMap, SandboxId, Stream};

use super::trial::{Trial, Verdict, ensure, path, same, same_bytes};
use super::{Case, case};
use crate::{EndCause, ExecEvent, ExecRequest, ExecStatus};

pub(super) const CASES: &[Case] = &[
    case!("exec_streams", a_listener_that_does_not_read_holds_up_nobody, needs [exec, files]),
    case!("exec_streams", output_and_success, needs[exec]),
    case!("exec_streams", streams_are_kept_apart, needs[exec]),
    case!("exec_streams", starts_once_and_ends_once, needs[exec]),
    case!("exec_streams", large_binary_output_is_whole, needs [exec, files]),
    case!("exec_streams", arguments_are_not_interpreted, needs[exec]),
    case!("exec_streams", environment_and_directory, needs [exec, files]),
    case!("exec_streams", sandbox_variables_reach_programs, needs[exec]),
    case!("exec_streams", a_signal_from_inside_is_the_programs_own, needs[exec]),
    case!("exec_streams", a_missing_program_does_not_pass_for_one, needs[exec]),
    case!("exec_streams", many_at_once, needs[exec]),
];

async fn output_and_success(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let done = t.run(&id, ExecRequest::program(["/bin/echo", "hi"])).await?;
    same_bytes("standard output", done.stdout, b"hi\n")?;
    same_bytes("standard error", done.stderr, b"")?;
    same("the status", done.end.status, ExecStatus::Code(0))?;
    same("the cause", done.end.cause, EndCause::Program)?;
    same("the bytes written", (done.end.written.stdout, done.end.written.stderr), (3, 0))
}

async fn streams_are_kept_apart(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let done = t.run(&id, ExecRequest::shell("echo out; echo err >&2; exit 3")).await?;
    same_bytes("standard output", done.stdout, b"out\n")?;
    same_bytes("standard error", done.stderr, b"err\n")?;
    same("the status", done.end.status, ExecStatus::Code(3))?;
    same("the cause", done.end.cause, EndCause::Program)
}

async fn starts_once_and_ends_once(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let exec = t.provider.exec(&t.cx, &id, ExecRequest::shell("echo a; echo b >&2")).await?;
    let events: Vec<_> = exec.events.try_collect().await?;
    let place = |wanted: fn(&ExecEvent) -> bool| -> Vec<usize> {
        events.iter().enumerate().filter(|(_, event)| wanted(event)).map(|(place, _)| place).collect()
    };
    same("the place of the start", place(|event| *event == ExecEvent::Started), vec![0])?;
    same("the place of the end", place(|event| matches!(event, ExecEvent::Exited(_))), vec![events.len() - 1])
}

async fn large_binary_output_is_whole(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let wanted: Vec<u8> =
        (0..1 << 20).map(|place: u32| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    t.write(&id, "noise", wanted.clone()).await?;
    let mut exec = t.provider.exec(&t.cx, &id, ExecRequest::program(["/bin/cat", "noise"])).await?;
    let mut seen = Vec::new();
    while let Some(event) = exec.events.try_next().await? {
        if let ExecEvent::Output { stream, offset, bytes } = event {
            same("the stream", stream, Stream::Stdout)?;
            same("the offset of a piece", offset, seen.len() as u64)?;
            ensure!(!bytes.is_empty(), "a piece is empty");
            seen.extend_from_slice(&bytes);
        }
    }
    ensure!(seen == wanted, "{} bytes came back, not the {} that were written", seen.len(), wanted.len());
    Ok(())
}

async fn arguments_are_not_interpreted(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let out = t.output(&id, ExecRequest::program(["/bin/echo", "$HOME", "a  b", "*", ";", "é", ""])).await?;
    same_bytes("what echo got", out, "$HOME a  b * ; é \n".as_bytes())
}

async fn environment_and_directory(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "sub/file", "x").await?;
    let mut req = ExecRequest::shell("echo \"$GREETING\"; pwd; cat file");
    req.cwd = Some(path("sub"));
    req.env.insert("GREETING".parse().expect("a name"), "a 'b' $c".to_owned()).expect("a value");
    same_bytes("the program's surroundings", t.output(&id, req).await?, b"a 'b' $c\n/workspace/sub\nx")?;
    let out = t.output(&id, ExecRequest::program(["/bin/pwd"])).await?;
    same_bytes("the directory where none is asked for", out, b"/workspace\n")
}

async fn sandbox_variables_reach_programs(t: &Trial<'_>) -> Verdict {
    let mut spec = t.spec();
    let variables = |pairs: &[(&str, &str)]| {
        let mut env = EnvMap::new();
        for (name, value) in pairs {
            env.insert(name.parse().expect("a name"), (*value).to_owned()).expect("a value");
        }
        env
    };
    spec.env = variables(&[("FROM_SANDBOX", "one"), ("FROM_BOTH", "two")]);
    let id = t.sandbox_of(&spec).await?;
    let mut req = ExecRequest::shell("echo $FROM_SANDBOX $FROM_BOTH");
    req.env = variables(&[("FROM_BOTH", "three")]);
    same_bytes("the variables", t.output(&id, req).await?, b"one three\n")
}

async fn a_signal_from_inside_is_the_programs_own(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let done = t.run(&id, ExecRequest::shell("kill -9 $$")).await?;
    same("the status", done.end.status, ExecStatus::Signal(9))?;
    same("the cause", done.end.cause, EndCause::Program)
}

async fn a_missing_program_does_not_pass_for_one(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    for argv in [vec!["/no/such/program"], vec![]] {
        if let Ok(done) = t.run(&id, ExecRequest::program(argv.clone())).await {
            let told = matches!(done.end.status, ExecStatus::Code(126 | 127));
            ensure!(told, "{argv:?} ended with {:?}", done.end.status);
        }
    }
    same_bytes(
        "the sandbox afterwards",
        t.output(&id, ExecRequest::program(["/bin/echo", "ok"])).await?,
        b"ok\n",
    )
}

async fn many_at_once(t: &Trial<'_>) -> Verdict {
    let id: SandboxId = t.sandbox().await?;
    let runs = (0..16).map(|number| {
        let req = ExecRequest::shell(format!("echo {number}; sleep 0.1; echo {number}"));
        async move { t.output(&id, req).await.map(|out| (number, out)) }
    });
    for (number, out) in try_join_all(runs).await? {
        same_bytes("the output of one of many", out, format!("{number}\n{number}\n").as_bytes())?;
    }
    Ok(())
}

async fn a_listener_that_does_not_read_holds_up_nobody(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    // Many small pieces, and then as many bytes as nobody keeps.
    t.write(&id, "much", vec![b'x'; 3 << 20]).await?;
    let lines: String = (0..500).map(|n| format!("echo {n}; ")).collect();
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(t.provider.exec(&t.cx, &id, ExecRequest::shell(format!("{lines} cat much"))).await?);
    }
    for _ in 0..3 {
        let out = t.output(&id, ExecRequest::program(["/bin/echo", "on"])).await?;
        same_bytes("the output beside it", out, b"on\n")?;
    }
    for exec in silent {
        let whole = exec.collect().await?.stdout;
        ensure!(whole.ends_with(b"xxx") && whole.len() > 3 << 20, "{} bytes came in the end", whole.len());
    }
    Ok(())
}
