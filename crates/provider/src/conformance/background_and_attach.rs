//! Programs that outlive their listener, and listeners that come later.

use sandstorm_types::{ErrorKind, ExecId, PerStream};

use super::trial::{Trial, Verdict, fails, read_output, same, same_bytes};
use super::{Case, case};
use crate::{AttachFrom, EndCause, Exec, ExecRequest, ExecSignal, ExecStatus};

pub(super) const CASES: &[Case] = &[
    case!("background_and_attach", background_outlives_its_listener, needs [exec, exec_background, exec_attach]),
    case!("background_and_attach", foreground_ends_with_its_listener, needs [exec, exec_attach]),
    case!("background_and_attach", listeners_start_at_their_offset, needs [exec, exec_background, exec_attach]),
    case!("background_and_attach", output_is_kept_after_the_end, needs [exec, exec_attach]),
    case!("background_and_attach", leaving_an_attached_program_does_not_end_it, needs [exec, exec_background, exec_attach]),
    case!("background_and_attach", unknown_programs_are_not_found, needs[exec_attach]),
];

fn background(line: &str) -> ExecRequest {
    let mut req = ExecRequest::shell(line);
    req.background = true;
    req
}

async fn attach(t: &Trial<'_>, exec: &ExecId, stdout: u64) -> Verdict<Exec> {
    Ok(t.provider.attach(&t.cx, exec, AttachFrom::Offset(PerStream { stdout, stderr: 0 })).await?)
}

async fn background_outlives_its_listener(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let exec = t.provider.exec(&t.cx, &id, background("echo one; sleep 0.3; echo two")).await?;
    let exec_id = exec.id;
    drop(exec);
    let done = attach(t, &exec_id, 0).await?.collect().await?;
    same_bytes("the output", done.stdout, b"one\ntwo\n")?;
    same("the status", done.end.status, ExecStatus::Code(0))
}

async fn foreground_ends_with_its_listener(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    for attended in [false, true] {
        let req = ExecRequest { attended, ..ExecRequest::program(["/bin/sleep", "30"]) };
        let exec = t.provider.exec(&t.cx, &id, req).await?;
        let later = attach(t, &exec.id, 0).await?;
        drop(exec);
        let done = later.collect().await?;
        same("the status", done.end.status, ExecStatus::Signal(9))?;
        same("the cause", done.end.cause, EndCause::Caller)?;
    }
    Ok(())
}

async fn listeners_start_at_their_offset(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut exec = t.provider.exec(&t.cx, &id, background("echo one; sleep 0.3; echo two")).await?;
    read_output(&mut exec, 4).await?;
    let (one, two) = (attach(t, &exec.id, 4).await?, attach(t, &exec.id, 2).await?);
    same_bytes("the output from 4 on", one.collect().await?.stdout, b"two\n")?;
    same_bytes("the output from 2 on", two.collect().await?.stdout, b"e\ntwo\n")
}

async fn output_is_kept_after_the_end(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let exec = t.provider.exec(&t.cx, &id, ExecRequest::shell("echo out; echo err >&2; exit 7")).await?;
    let exec_id = exec.id;
    let first = exec.collect().await?;
    for _ in 0..2 {
        let again = attach(t, &exec_id, 0).await?.collect().await?;
        same("what a later listener hears", &again, &first)?;
    }
    Ok(())
}

async fn leaving_an_attached_program_does_not_end_it(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let exec = t.provider.exec(&t.cx, &id, background("sleep 0.3; echo done")).await?;
    drop(attach(t, &exec.id, 0).await?);
    same_bytes("the output", exec.collect().await?.stdout, b"done\n")
}

async fn unknown_programs_are_not_found(t: &Trial<'_>) -> Verdict {
    let exec = ExecId::random();
    fails("attach", t.provider.attach(&t.cx, &exec, AttachFrom::START).await, ErrorKind::NotFound)?;
    fails("signal", t.provider.signal(&t.cx, &exec, ExecSignal::Kill).await, ErrorKind::NotFound)
}
