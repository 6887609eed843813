//! Limits hold, end what breaks them and are told by name.

use std::time::Duration;

use sandstorm_types::{ByteSize, ErrorKind, LimitName, SandboxId};
use tokio::time::Instant;

use super::trial::{Trial, Verdict, ensure, path, same, same_bytes};
use super::{Case, case};
use crate::{EndCause, ExecEnd, ExecRequest, ExecStatus, FileOp, OUTPUT_HARD_FACTOR};

pub(super) const CASES: &[Case] = &[
    case!("limits", wall_time_ends_a_program, needs [exec], limit Wall),
    case!("limits", wall_time_of_the_sandbox_holds_for_each_program, needs [exec], limit Wall),
    case!("limits", output_is_cut_and_counted, needs [exec, files], limit Output),
    case!("limits", a_flood_of_output_ends_a_program, needs [exec, files], limit Output),
    case!("limits", a_full_disk_refuses_files, needs [files], limit Disk),
    case!("limits", a_full_disk_fails_programs, needs [exec, files], limit Disk),
    case!("limits", too_many_files_are_refused, needs [files], limit Inodes),
    case!("limits", cpu_time_ends_a_program, needs [exec], limit CpuTime),
    case!("limits", memory_ends_a_program, needs [exec], limit Memory),
    case!("limits", processes_are_counted, needs [exec], limit Processes),
    case!("limits", the_sandbox_lives_on, needs [exec], limit Wall),
];

fn ended_by(end: &ExecEnd, limit: LimitName) -> Verdict {
    same("the cause", end.cause, EndCause::Limit(limit))?;
    same("the status", end.status, ExecStatus::Signal(9))
}

async fn wall_time_ends_a_program(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut req = ExecRequest::shell("echo before; sleep 30; echo after");
    // Long enough for its first word, however busy the machine is.
    req.timeout = Some(Duration::from_secs(2));
    let start = Instant::now();
    let done = t.run(&id, req).await?;
    let took = start.elapsed();
    ended_by(&done.end, LimitName::Wall)?;
    same_bytes("the output", done.stdout, b"before\n")?;
    ensure!((Duration::from_secs(2)..Duration::from_secs(25)).contains(&took), "2 s took {took:?}");
    Ok(())
}

async fn wall_time_of_the_sandbox_holds_for_each_program(t: &Trial<'_>) -> Verdict {
    let mut spec = t.spec();
    spec.limits.wall = Duration::from_millis(500);
    let id = t.sandbox_of(&spec).await?;
    for attended in [false, true] {
        let req = ExecRequest { attended, ..ExecRequest::program(["/bin/sleep", "30"]) };
        ended_by(&t.run(&id, req).await?.end, LimitName::Wall)?;
    }
    Ok(())
}

/// A program that writes this many bytes, of which 1000 may be kept.
async fn writing(t: &Trial<'_>, id: &SandboxId, bytes: usize) -> Verdict<ExecRequest> {
    t.write(id, "text", vec![b'x'; bytes]).await?;
    let mut req = ExecRequest::program(["/bin/cat", "text"]);
    req.output = Some(ByteSize::bytes(1000));
    Ok(req)
}

async fn output_is_cut_and_counted(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let req = writing(t, &id, 1000).await?;
    let exact = t.run(&id, req).await?;
    same("the bytes kept of 1000", exact.stdout.len(), 1000)?;
    ensure!(!exact.end.truncated.stdout, "output that just fits is called truncated");
    let req = writing(t, &id, 4000).await?;
    let cut = t.run(&id, req).await?;
    same("the bytes kept of 4000", cut.stdout.len(), 1000)?;
    same("the bytes written", cut.end.written.stdout, 4000)?;
    same("what is truncated", (cut.end.truncated.stdout, cut.end.truncated.stderr), (true, false))?;
    same("the status", cut.end.status, ExecStatus::Code(0))
}

async fn a_flood_of_output_ends_a_program(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let factor = usize::try_from(OUTPUT_HARD_FACTOR).expect("a small number");
    // Far past the hard limit and past what a pipe holds, so that the program cannot end first.
    let req = writing(t, &id, 1000 * factor + (1 << 20)).await?;
    let done = t.run(&id, req).await?;
    ended_by(&done.end, LimitName::Output)?;
    same("the bytes kept", done.stdout.len(), 1000)
}

async fn small_disk(t: &Trial<'_>) -> Verdict<SandboxId> {
    let mut spec = t.spec();
    spec.limits.disk = ByteSize::mib(1);
    Ok(t.sandbox_of(&spec).await?)
}

async fn a_full_disk_refuses_files(t: &Trial<'_>) -> Verdict {
    let id = small_disk(t).await?;
    super::trial::fails("writing 2 MiB", t.write(&id, "big", vec![1; 2 << 20]).await, ErrorKind::FileSystem)?;
    super::trial::fails("reading it", t.read(&id, "big").await, ErrorKind::NotFound)?;
    t.write(&id, "small", vec![1; 512 << 10]).await?;
    Ok(())
}

async fn a_full_disk_fails_programs(t: &Trial<'_>) -> Verdict {
    let id = small_disk(t).await?;
    t.write(&id, "a", vec![1; 700 << 10]).await?;
    let done = t.run(&id, ExecRequest::shell("cat a a > b")).await?;
    ensure!(done.end.status != ExecStatus::Code(0), "1.4 MiB fit on what 1 MiB was given");
    Ok(())
}

async fn too_many_files_are_refused(t: &Trial<'_>) -> Verdict {
    let mut spec = t.spec();
    spec.limits.inodes = 64;
    let id = t.sandbox_of(&spec).await?;
    for number in 0..100 {
        let made = t.files(&id, FileOp::MakeDir { path: path(&format!("f{number}")) }).await;
        if let Err(error) = made {
            ensure!(number > 20, "only {number} folders could be made: {error}");
            return super::trial::fails::<()>("making one more", Err(error), ErrorKind::FileSystem);
        }
    }
    ensure!(false, "100 folders could be made where 64 are allowed");
    Ok(())
}

async fn cpu_time_ends_a_program(t: &Trial<'_>) -> Verdict {
    let mut spec = t.spec();
    spec.limits.cpu_time = Some(Duration::from_millis(500));
    let id = t.sandbox_of(&spec).await?;
    ended_by(&t.run(&id, ExecRequest::shell("while :; do :; done")).await?.end, LimitName::CpuTime)
}

async fn memory_ends_a_program(t: &Trial<'_>) -> Verdict {
    let mut spec = t.spec();
    spec.limits.memory = ByteSize::mib(64);
    let id = t.sandbox_of(&spec).await?;
    let done = t.run(&id, ExecRequest::shell("x=0123456789abcdef; while :; do x=$x$x; done")).await?;
    same("the cause", done.end.cause, EndCause::Limit(LimitName::Memory))
}

async fn processes_are_counted(t: &Trial<'_>) -> Verdict {
    let mut spec = t.spec();
    spec.limits.processes = 16;
    let id = t.sandbox_of(&spec).await?;
    let line = "i=0; while [ $i -lt 40 ]; do sleep 5 & i=$((i+1)); done; echo all";
    let done = t.run(&id, ExecRequest::shell(line)).await?;
    same_bytes("the output", done.stdout, b"")?;
    ensure!(
        done.end.limits_hit.contains(LimitName::Processes),
        "the limits hit are {:?}",
        done.end.limits_hit
    );
    Ok(())
}

async fn the_sandbox_lives_on(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut req = ExecRequest::program(["/bin/sleep", "30"]);
    req.timeout = Some(Duration::from_millis(100));
    t.run(&id, req).await?;
    let out = t.output(&id, ExecRequest::program(["/bin/echo", "ok"])).await?;
    same_bytes("the next program", out, b"ok\n")
}
