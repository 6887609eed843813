//! What is done once for each key, and how to find out what became of it.

use std::sync::Arc;

use sandstorm_provider::{Error, Result};
use sandstorm_store::{ExecRow, RunRow};
use sandstorm_types::{
    ContextId, ErrorKind, ExecId, Problem, RunId, RunResult, RunSpec, SandboxId, SnapshotId, State,
};
use tokio::time::Instant;

use super::{Claim, Found, LOOK, Once, PATIENCE, unknown};
use crate::outcome::Outcome;
use crate::server::ended::Ended;
use crate::server::failure::{conflict, stored};
use crate::server::fork::Noted;
use crate::server::snapshots::{LeftOut, SnapshotBecame};
use crate::server::{
    Caller, ContextView, Control, ExecView, ForkView, Installed, NewContext, NewExec, NewFork, NewInstall,
    NewSandbox, NewSnapshot, SandboxView, Scope, SnapshotView, Verb,
};

/// A run to its end.
#[derive(Debug)]
pub struct OneRun(pub RunSpec);

/// A program, piece of code or cell to its end.
#[derive(Debug)]
pub struct OneExec {
    pub sandbox: SandboxId,
    pub new: NewExec,
}

/// One that goes on in the background.
#[derive(Debug)]
pub struct OneStart {
    pub sandbox: SandboxId,
    pub new: NewExec,
}

#[derive(Debug)]
pub struct OneSandbox(pub NewSandbox);

/// Copies of a sandbox: all of them, or none.
#[derive(Debug)]
pub struct OneFork {
    pub source: SandboxId,
    pub new: NewFork,
}

/// Packages in a sandbox that lives.
#[derive(Debug)]
pub struct OneInstall {
    pub sandbox: SandboxId,
    pub new: NewInstall,
}

/// A saved sandbox.
#[derive(Debug)]
pub struct OneSnapshot {
    pub sandbox: SandboxId,
    pub new: NewSnapshot,
}

#[derive(Debug)]
pub struct OneContext {
    pub sandbox: SandboxId,
    pub new: NewContext,
}

/// Looks again and again at what another server has to bring to an end.
struct Looking(Instant);

impl Looking {
    fn begin() -> Self {
        Self(Instant::now() + PATIENCE)
    }

    async fn wait(&self) -> Result<()> {
        if Instant::now() >= self.0 {
            let message =
                "what the first request with this idempotency key began is not in the hands of this server";
            return Err(conflict(message).with_retry_after(std::time::Duration::from_secs(5)));
        }
        tokio::time::sleep(LOOK).await;
        Ok(())
    }
}

impl Once for OneRun {
    type Made = Outcome;
    type Place = RunId;

    fn place(&self, claim: &Claim) -> RunId {
        RunId::from_bits(claim.bits())
    }

    async fn make(self, control: &Control, caller: &Caller, claim: Option<&Arc<Claim>>) -> Result<Outcome> {
        let id = claim.map(|claim| RunId::from_bits(claim.bits()));
        Claim::while_wanted(claim.map(|claim| &**claim), control.run_as(caller, self.0, id)).await
    }

    async fn find(
        control: &Control,
        caller: &Caller,
        id: &RunId,
        _claim: &Claim,
        _failed: Option<&Error>,
    ) -> Result<Found<Outcome>> {
        caller.require(Scope::Run)?;
        let looking = Looking::begin();
        loop {
            if let Some(run) = control.0.runs.get(caller.tenant, *id) {
                run.over.cancelled().await;
            }
            match stored(control.0.store.run(caller.tenant, *id).await)? {
                None => return Ok(Found::Nothing),
                Some(row) if row.ended_at.is_some() => {
                    return Ok(Found::Made(result_of(row).map(Outcome::from)));
                }
                Some(_) => looking.wait().await?,
            }
        }
    }
}

fn result_of(row: RunRow) -> Result<RunResult> {
    let problem = row.problem.and_then(|problem| serde_json::from_value::<Problem>(problem).ok());
    if let Some(Problem { code, detail }) = problem {
        return Err(Error::new(code, detail));
    }
    let result = row.result.and_then(|result| serde_json::from_value(result).ok());
    result.ok_or_else(|| Error::new(ErrorKind::Internal, "the record of a run is damaged"))
}

/// Where an exec is looked for.
#[derive(Debug)]
pub struct ExecPlace {
    sandbox: SandboxId,
    exec: ExecId,
    /// By the client, who may have chosen one that is taken.
    chosen: bool,
}

impl ExecPlace {
    fn of(sandbox: SandboxId, new: &NewExec, claim: &Claim) -> Self {
        let exec = new.id.unwrap_or_else(|| ExecId::from_bits(claim.bits()));
        Self { sandbox, exec, chosen: new.id.is_some() }
    }

    /// The record of an exec that began, and with `to_its_end` ended.
    async fn find(
        &self,
        control: &Control,
        caller: &Caller,
        to_its_end: bool,
        failed: Option<&Error>,
    ) -> Result<Option<ExecRow>> {
        let Self { sandbox, exec, chosen } = *self;
        caller.require_inside(sandbox, Verb::Run)?;
        if chosen && failed.is_some_and(|error| error.kind() == ErrorKind::Conflict) {
            // Another's, and by its id it cannot be begun again.
            return Ok(None);
        }
        let looking = Looking::begin();
        loop {
            let execution = control.0.executions.get(sandbox, exec);
            let execution = execution.filter(|execution| execution.row.tenant == caller.tenant);
            if let Some(execution) = execution.as_ref().filter(|_| to_its_end) {
                execution.wait_end().await;
            }
            match stored(control.0.store.exec(caller.tenant, sandbox, exec).await)? {
                Some(row) if row.ended_at.is_some() || !to_its_end => return Ok(Some(row)),
                // One that ended without a record was refused before it began.
                None if execution.as_ref().is_none_or(|execution| execution.end().is_some()) => {
                    return Ok(None);
                }
                _ => looking.wait().await?,
            }
        }
    }
}

fn problem_of(problem: Problem) -> Error {
    Error::new(problem.code, problem.detail)
}

impl Once for OneExec {
    type Made = Outcome;
    type Place = ExecPlace;

    fn place(&self, claim: &Claim) -> ExecPlace {
        ExecPlace::of(self.sandbox, &self.new, claim)
    }

    async fn make(self, control: &Control, caller: &Caller, claim: Option<&Arc<Claim>>) -> Result<Outcome> {
        let Self { sandbox, mut new } = self;
        if let Some(claim) = claim {
            new.id.get_or_insert(ExecId::from_bits(claim.bits()));
        }
        control.exec_wanted(caller, sandbox, new, claim.map(|claim| &**claim)).await
    }

    async fn find(
        control: &Control,
        caller: &Caller,
        place: &ExecPlace,
        _claim: &Claim,
        failed: Option<&Error>,
    ) -> Result<Found<Outcome>> {
        let Some(row) = place.find(control, caller, true, failed).await? else { return Ok(Found::Nothing) };
        let Some(ended) = row.result.and_then(Ended::from_json) else {
            return Err(Error::new(ErrorKind::Internal, "the record of an exec is damaged"));
        };
        Ok(Found::Made(match ended.problem {
            Some(problem) => Err(problem_of(problem)),
            None => Ok(ended.result.into()),
        }))
    }
}

impl Once for OneStart {
    type Made = ExecView;
    type Place = ExecPlace;

    fn place(&self, claim: &Claim) -> ExecPlace {
        ExecPlace::of(self.sandbox, &self.new, claim)
    }

    async fn make(self, control: &Control, caller: &Caller, claim: Option<&Arc<Claim>>) -> Result<ExecView> {
        let Self { sandbox, mut new } = self;
        if let Some(claim) = claim {
            new.id.get_or_insert(ExecId::from_bits(claim.bits()));
        }
        Ok(control.exec(caller, sandbox, new).await?.view)
    }

    async fn find(
        control: &Control,
        caller: &Caller,
        place: &ExecPlace,
        _claim: &Claim,
        failed: Option<&Error>,
    ) -> Result<Found<ExecView>> {
        let Some(row) = place.find(control, caller, false, failed).await? else { return Ok(Found::Nothing) };
        let ended = row.result.clone().and_then(Ended::from_json);
        let problem = ended.as_ref().and_then(|ended| ended.problem.clone());
        Ok(Found::Made(match problem {
            Some(problem) => Err(problem_of(problem)),
            None => Ok(control.0.exec_view_of(&row, ended.as_ref())),
        }))
    }
}

impl Once for OneSandbox {
    type Made = SandboxView;
    type Place = SandboxId;

    fn place(&self, claim: &Claim) -> SandboxId {
        SandboxId::from_bits(claim.bits())
    }

    async fn make(
        self,
        control: &Control,
        caller: &Caller,
        claim: Option<&Arc<Claim>>,
    ) -> Result<SandboxView> {
        let id = claim.map_or_else(SandboxId::random, |claim| SandboxId::from_bits(claim.bits()));
        let given = control.0.making.begin(id);
        control.create_as(caller, given, self.0, None).await
    }

    async fn find(
        control: &Control,
        caller: &Caller,
        id: &SandboxId,
        _claim: &Claim,
        _failed: Option<&Error>,
    ) -> Result<Found<SandboxView>> {
        caller.require(Scope::Sandbox)?;
        let looking = Looking::begin();
        loop {
            let being_made = control.0.making.contains(*id);
            match control.sandbox_once_made(caller, *id).await? {
                Became::Nothing if !being_made => return Ok(Found::Nothing),
                Became::Nothing | Became::Coming => looking.wait().await?,
                Became::Ready(view) => return Ok(Found::Made(Ok(*view))),
                Became::Undone => return Ok(Found::Undone),
            }
        }
    }
}

/// What became of a sandbox that was to be made.
enum Became {
    Nothing,
    Coming,
    /// It was ready once, whatever it is now.
    Ready(Box<SandboxView>),
    /// It ended before it was ready.
    Undone,
}

impl Control {
    async fn sandbox_once_made(&self, caller: &Caller, id: SandboxId) -> Result<Became> {
        let Some(row) = self.0.row(caller.tenant, id).await? else { return Ok(Became::Nothing) };
        if row.state == State::Creating {
            return Ok(Became::Coming);
        }
        let steps = stored(self.0.store.transitions(caller.tenant, id).await)?;
        match steps.iter().any(|step| step.to == State::Ready) {
            true => Ok(Became::Ready(Box::new(self.0.view(&row)))),
            false => Ok(Became::Undone),
        }
    }
}

impl Once for OneFork {
    type Made = Vec<Result<ForkView>>;
    type Place = ();

    fn place(&self, _claim: &Claim) {}

    async fn make(
        self,
        control: &Control,
        caller: &Caller,
        claim: Option<&Arc<Claim>>,
    ) -> Result<Vec<Result<ForkView>>> {
        control.fork_as(caller, self.source, self.new, claim.cloned()).await
    }

    /// Which copies there are to be is noted when all are made and none is ready: without a note there is none.
    async fn find(
        control: &Control,
        caller: &Caller,
        (): &(),
        claim: &Claim,
        _failed: Option<&Error>,
    ) -> Result<Found<Vec<Result<ForkView>>>> {
        caller.require(Scope::Sandbox)?;
        let Some(note) = claim.note() else { return Ok(Found::Undone) };
        let damaged = |error: serde_json::Error| {
            Error::new(ErrorKind::Internal, "the record of a fork is damaged").with_source(error)
        };
        let noted: Vec<Noted> = serde_json::from_str(&note).map_err(damaged)?;
        let (mut forks, mut whole) = (Vec::with_capacity(noted.len()), true);
        let looking = Looking::begin();
        for copy in &noted {
            let Some(id) = copy.sandbox else {
                forks.push(Err(copy.failure()));
                continue;
            };
            let became = loop {
                match control.sandbox_once_made(caller, id).await? {
                    Became::Coming => looking.wait().await?,
                    became => break became,
                }
            };
            match became {
                Became::Ready(view) => forks.push(Ok(copy.view(*view))),
                // It may have been ready: it ended so long ago that nobody knows. The others stay what they are.
                Became::Nothing => return Err(unknown()),
                Became::Coming | Became::Undone => whole = false,
            }
        }
        if whole {
            return Ok(Found::Made(Ok(forks)));
        }
        // All or none: the others take their places with those that are made now.
        for fork in forks.into_iter().flatten() {
            control.0.end_sandbox(caller.tenant, fork.sandbox.id, None).await?;
        }
        Ok(Found::Undone)
    }
}

impl Once for OneInstall {
    type Made = Installed;
    type Place = ();

    fn place(&self, _claim: &Claim) {}

    async fn make(
        self,
        control: &Control,
        caller: &Caller,
        _claim: Option<&Arc<Claim>>,
    ) -> Result<Installed> {
        control.install(caller, self.sandbox, self.new).await
    }

    /// To install the same again comes to the same, so what has no answer is done again.
    async fn find(
        _control: &Control,
        caller: &Caller,
        (): &(),
        _claim: &Claim,
        _failed: Option<&Error>,
    ) -> Result<Found<Installed>> {
        caller.require(Scope::Sandbox)?;
        Ok(Found::Undone)
    }
}

impl Once for OneSnapshot {
    type Made = SnapshotView;
    type Place = SnapshotId;

    fn place(&self, claim: &Claim) -> SnapshotId {
        SnapshotId::from_bits(claim.bits())
    }

    async fn make(
        self,
        control: &Control,
        caller: &Caller,
        claim: Option<&Arc<Claim>>,
    ) -> Result<SnapshotView> {
        let id = claim.map_or_else(SnapshotId::random, |claim| SnapshotId::from_bits(claim.bits()));
        control.create_snapshot_as(caller, self.sandbox, id, self.new, claim.cloned()).await
    }

    async fn find(
        control: &Control,
        caller: &Caller,
        id: &SnapshotId,
        claim: &Claim,
        _failed: Option<&Error>,
    ) -> Result<Found<SnapshotView>> {
        caller.require(Scope::Sandbox)?;
        let looking = Looking::begin();
        loop {
            match control.snapshot_once_made(caller, *id).await? {
                SnapshotBecame::Nothing => return Ok(Found::Nothing),
                SnapshotBecame::Undone => return Ok(Found::Undone),
                SnapshotBecame::Coming => looking.wait().await?,
                SnapshotBecame::Ready(view) => {
                    let left_out =
                        claim.note().map_or_else(|| Ok(LeftOut::default()), |note| LeftOut::read(&note));
                    return Ok(Found::Made(Ok(SnapshotView { left_out: left_out?.into(), ..*view })));
                }
            }
        }
    }
}

impl Once for OneContext {
    type Made = ContextView;
    type Place = (SandboxId, ContextId);

    fn place(&self, claim: &Claim) -> (SandboxId, ContextId) {
        (self.sandbox, ContextId::from_bits(claim.bits()))
    }

    async fn make(
        self,
        control: &Control,
        caller: &Caller,
        claim: Option<&Arc<Claim>>,
    ) -> Result<ContextView> {
        let id = claim.map_or_else(ContextId::random, |claim| ContextId::from_bits(claim.bits()));
        control.create_context_as(caller, self.sandbox, id, self.new).await
    }

    async fn find(
        control: &Control,
        caller: &Caller,
        &(sandbox, id): &(SandboxId, ContextId),
        _claim: &Claim,
        _failed: Option<&Error>,
    ) -> Result<Found<ContextView>> {
        caller.require_inside(sandbox, Verb::Run)?;
        Ok(match control.0.context_once_made(caller.tenant, sandbox, id).await? {
            None => Found::Nothing,
            Some(None) => Found::Undone,
            Some(Some(view)) => Found::Made(Ok(view)),
        })
    }
}
