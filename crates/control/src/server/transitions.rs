//! Changes of state that take time: ending, failing, pausing, resuming. The intent is stored, then done, then stored as
//! done.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_provider::{Error, OpContext, Result};
use sandstorm_store::{Audit, SandboxChanges, SandboxRow};
use sandstorm_types::{ErrorKind, SandboxId, State, Step, TenantId, Timestamp, Transition, Unmet};

use super::Inner;
use super::steps::Stepped;

/// How long the provider may take to end or change a sandbox.
const PATIENCE: Duration = Duration::from_secs(30);

impl Inner {
    /// Ends a sandbox from whatever state it is in. One that ended is success.
    pub(super) async fn end_sandbox(
        self: &Arc<Self>,
        tenant: TenantId,
        id: SandboxId,
        audit: Option<&Audit>,
    ) -> Result<()> {
        let stepped = self.step(tenant, id, Step::Terminate, SandboxChanges::default(), audit).await?;
        match stepped {
            Stepped::Refused(row) if row.state.is_final() => return Ok(()),
            // Begun earlier and not finished.
            Stepped::Refused(row) if row.state == State::Terminating => {}
            other => drop(other.done()?),
        }
        if let Some(living) = self.sandboxes.get(tenant, id) {
            // The last reading, or what it used since the one before would be nobody's.
            self.sample(&living).await;
        }
        let cx = OpContext::new(tenant).with_timeout(PATIENCE);
        if let Err(error) = self.provider.destroy(&cx, &id).await {
            tracing::error!(sandbox = %id, %error, "a sandbox could not be ended and will be tried again");
            if let Some(living) = self.sandboxes.get(tenant, id) {
                self.clock.arm(&living, self.settings.paused_for);
            }
            return Err(error);
        }
        self.settle_contents(tenant, id, None).await;
        let account = self.spending.of_sandbox(id);
        let stepped = self.step(tenant, id, Step::Terminated, SandboxChanges::default(), None).await?;
        match stepped {
            // Somebody else was faster.
            Stepped::Refused(row) if row.state.is_final() => return Ok(()),
            other => drop(other.done()?),
        }
        if let Some(account) = account {
            self.settle_costs(&account, account.unsettled(id));
        }
        Ok(())
    }

    /// A sandbox that ended by itself, or that could not be made.
    pub(super) async fn fail_sandbox(
        self: &Arc<Self>,
        tenant: TenantId,
        id: SandboxId,
        reason: &str,
    ) -> Result<()> {
        if self.row(tenant, id).await?.is_some_and(|row| row.state == State::Terminating) {
            // It is being ended anyway, by somebody who sees to it.
            return Ok(());
        }
        let step = Step::Fail { reason: reason.to_owned() };
        let account = self.spending.of_sandbox(id);
        let failed = self.step(tenant, id, step, SandboxChanges::default(), None).await?;
        let cx = OpContext::new(tenant).with_timeout(PATIENCE);
        if let Err(error) = self.provider.destroy(&cx, &id).await {
            tracing::warn!(sandbox = %id, %error, "what is left of a failed sandbox could not be removed");
        }
        if let Stepped::To(_) = failed {
            self.settle_contents(tenant, id, Some(reason)).await;
            if let Some(account) = account {
                self.settle_costs(&account, account.unsettled(id));
            }
        }
        Ok(())
    }

    /// Pauses or resumes. What is so already is success.
    pub(super) async fn transition(
        self: &Arc<Self>,
        cx: &OpContext,
        id: SandboxId,
        to: Transition,
        audit: Option<&Audit>,
    ) -> Result<SandboxRow> {
        let tenant = cx.tenant();
        let (there, under_way) = match to {
            Transition::Pause | Transition::PauseFiles => (State::Paused, State::Pausing),
            Transition::Resume => (State::Ready, State::Resuming),
        };
        if !self.provider.capabilities().pause {
            let unmet = Unmet::new("pause", "yes", "no", "this host cannot freeze a sandbox");
            return Err(Error::unmet(vec![unmet]));
        }
        if to == Transition::PauseFiles && !self.provider.capabilities().pause_files {
            let why = "nobody here can end what runs in a sandbox and keep its files";
            return Err(Error::unmet(vec![Unmet::new("pause_files", "yes", "no", why)]));
        }
        if to == Transition::Resume {
            self.spending.may_go_on(id)?;
        }
        // A copy that is being made needs programs that move.
        let living = self.sandboxes.get(tenant, id);
        let _copied = match &living {
            Some(living) if to != Transition::Resume => Some(living.forking.lock().await),
            _ => None,
        };
        // Programs that go on need what they were promised; without any it goes on resting.
        let _working = match &living {
            Some(living) if to == Transition::Resume && living.execs() > 0 => Some(living.work().await?),
            _ => None,
        };
        match self.step(tenant, id, to.first_step(), SandboxChanges::default(), audit).await? {
            Stepped::Refused(row) if row.state == there => return Ok(row),
            // Begun by somebody who did not finish: gone on with.
            Stepped::Refused(row) if row.state == under_way => {}
            other => drop(other.done()?),
        }
        let changed = self.provider.transition(&cx.clone().with_timeout(PATIENCE), &id, to).await;
        if let Err(error) = changed {
            self.follow_provider(tenant, id).await?;
            return Err(error);
        }
        if to == Transition::PauseFiles {
            // Their interpreters ended with everything else. Who comes back makes others.
            self.end_contexts(tenant, id).await;
        }
        let mut changes = SandboxChanges::default();
        if to == Transition::Resume {
            changes.expires_at = self.fresh_lifetime(tenant, id);
        }
        match self.step(tenant, id, to.last_step(), changes, None).await? {
            Stepped::Refused(row) if row.state == there => Ok(row),
            other => other.done(),
        }
    }

    /// A sandbox that was paused at the end of its lifetime has a new one from here, or it would end at once.
    fn fresh_lifetime(&self, tenant: TenantId, id: SandboxId) -> Option<Option<Timestamp>> {
        let living = self.sandboxes.get(tenant, id)?;
        living.touch();
        let row = living.row();
        let fresh = Timestamp::now().after(row.spec.lifetime.after);
        living.expires_at().is_some_and(|end| end < fresh).then_some(Some(fresh))
    }

    /// Brings the state to what the provider says, after a change that was broken off.
    pub(super) async fn follow_provider(self: &Arc<Self>, tenant: TenantId, id: SandboxId) -> Result<()> {
        let cx = OpContext::new(tenant).with_timeout(PATIENCE);
        let observed = match self.provider.get(&cx, &id).await {
            Ok(sandbox) => sandbox.state,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return self.fail_sandbox(tenant, id, "the sandbox is gone").await;
            }
            Err(error) => return Err(error),
        };
        let steps: &[Step] = match (self.row(tenant, id).await?.map(|row| row.state.clone()), &observed) {
            (Some(State::Pausing), State::Paused) => &[Step::Paused],
            // The machine has no way back: through `paused` it comes to where the sandbox is.
            (Some(State::Pausing), State::Ready) => &[Step::Paused, Step::Resume, Step::Resumed],
            (Some(State::Resuming), State::Ready) => &[Step::Resumed],
            (Some(State::Resuming), State::Paused) => &[Step::Resumed, Step::Pause, Step::Paused],
            (Some(State::Ready), State::Paused) => &[Step::Pause, Step::Paused],
            (Some(State::Paused), State::Ready) => &[Step::Resume, Step::Resumed],
            _ => &[],
        };
        for step in steps {
            if let Stepped::Refused(_) =
                self.step(tenant, id, step.clone(), SandboxChanges::default(), None).await?
            {
                break;
            }
        }
        Ok(())
    }
}
