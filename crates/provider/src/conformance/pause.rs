//! Sandboxes stand still and go on.

use std::time::Duration;

use sandstorm_types::{ErrorKind, State, Transition};

use super::trial::{Trial, Verdict, ensure, fails, read_output, same, same_bytes};
use super::{Case, case};
use crate::ExecRequest;

pub(super) const CASES: &[Case] = &[
    case!("pause", pauses_and_resumes, needs [pause, exec, files]),
    case!("pause", programs_stand_still, needs [pause, exec]),
    case!("pause", only_files_are_kept, needs [pause_files, exec, files]),
];

async fn pauses_and_resumes(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "kept", "x").await?;
    let resume = t.provider.transition(&t.cx, &id, Transition::Resume).await;
    fails("resuming what is not paused", resume, ErrorKind::Conflict)?;
    same("the state", t.provider.transition(&t.cx, &id, Transition::Pause).await?.state, State::Paused)?;
    same("the state that get shows", t.provider.get(&t.cx, &id).await?.state, State::Paused)?;
    let pause = t.provider.transition(&t.cx, &id, Transition::Pause).await;
    fails("pausing twice", pause, ErrorKind::Conflict)?;
    let exec = t.provider.exec(&t.cx, &id, ExecRequest::program(["/bin/true"])).await;
    fails("running a program while paused", exec, ErrorKind::Conflict)?;
    same("the state", t.provider.transition(&t.cx, &id, Transition::Resume).await?.state, State::Ready)?;
    same_bytes("a file from before", t.output(&id, ExecRequest::program(["/bin/cat", "kept"])).await?, b"x")
}

async fn programs_stand_still(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    let mut exec = t.provider.exec(&t.cx, &id, ExecRequest::shell("echo up; sleep 2; echo done")).await?;
    read_output(&mut exec, 3).await?;
    t.provider.transition(&t.cx, &id, Transition::Pause).await?;
    let early = tokio::time::timeout(Duration::from_millis(3500), read_output(&mut exec, 5)).await;
    ensure!(early.is_err(), "a program of a paused sandbox went on: {early:?}");
    t.provider.transition(&t.cx, &id, Transition::Resume).await?;
    same_bytes("the output afterwards", exec.collect().await?.stdout, b"done\n")
}

async fn only_files_are_kept(t: &Trial<'_>) -> Verdict {
    let id = t.sandbox().await?;
    t.write(&id, "kept", "x").await?;
    let mut exec = t.provider.exec(&t.cx, &id, ExecRequest::shell("echo up; sleep 600")).await?;
    read_output(&mut exec, 3).await?;
    let paused = t.provider.transition(&t.cx, &id, Transition::PauseFiles).await?;
    same("the state", paused.state, State::Paused)?;
    let ended = tokio::time::timeout(Duration::from_secs(60), exec.collect()).await;
    ensure!(ended.is_ok(), "a program lives on where only files are kept");
    let again = t.provider.transition(&t.cx, &id, Transition::PauseFiles).await;
    fails("pausing twice", again, ErrorKind::Conflict)?;
    same("the state", t.provider.transition(&t.cx, &id, Transition::Resume).await?.state, State::Ready)?;
    same_bytes("a file from before", t.output(&id, ExecRequest::program(["/bin/cat", "kept"])).await?, b"x")
}
