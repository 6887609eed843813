//! Signals reach programs and are told as what they are.

use std::time::Duration;

use tokio::time::Instant;

use super::trial::{Trial, Verdict, ensure, read_output, same, same_bytes};
use super::{Case, case};
use crate::{EndCause, ExecRequest, ExecSignal, ExecStatus};

pub(super) const CASES: &[Case] = &[
    case!("signals", kill_ends_at_once, needs[exec]),
    case!("signals", each_signal_is_told_by_its_number, needs [exec, exec_signals]),
    case!("signals", a_signal_after_the_end_is_no_failure, needs[exec]),
];

async fn ended_by(t: &Trial<'_>, signal: ExecSignal, number: i32) -> Verdict {
    let id = t.sandbox().await?;
    // The word says that the program is up: before that a signal would meet the starter.
    let mut exec =
        t.provider.exec(&t.cx, &id, ExecRequest::shell("echo up; sleep 30; echo survived")).await?;
    read_output(&mut exec, 3).await?;
    let start = Instant::now();
    let id = exec.id;
    let collecting = exec.collect();
    tokio::pin!(collecting);
    // A shell that is just starting its child can miss a signal, on any machine: it is sent again, as a person would.
    let done = loop {
        t.provider.signal(&t.cx, &id, signal).await?;
        tokio::select! {
            done = &mut collecting => break done?,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    };
    ensure!(start.elapsed() < Duration::from_secs(25), "{signal:?} took {:?}", start.elapsed());
    same_bytes("the output after the signal", done.stdout, b"")?;
    same("the status", done.end.status, ExecStatus::Signal(number))?;
    same("the cause", done.end.cause, EndCause::Caller)
}

async fn kill_ends_at_once(t: &Trial<'_>) -> Verdict {
    ended_by(t, ExecSignal::Kill, 9).await
}

async fn each_signal_is_told_by_its_number(t: &Trial<'_>) -> Verdict {
    ended_by(t, ExecSignal::Interrupt, 2).await?;
    ended_by(t, ExecSignal::Terminate, 15).await?;
    ended_by(t, ExecSignal::Number(10), 10).await
}

async fn a_signal_after_the_end_is_no_failure(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let exec = t.provider.exec(&t.cx, &id, ExecRequest::program(["/bin/true"])).await?;
    let exec_id = exec.id;
    exec.collect().await?;
    Ok(t.provider.signal(&t.cx, &exec_id, ExecSignal::Kill).await?)
}
