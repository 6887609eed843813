//! Steps in the life of a sandbox: stored, then seen by everybody else.

use std::sync::Arc;

use sandstorm_provider::{Error, Result};
use sandstorm_store::{Audit, SandboxChanges, SandboxRow, StepOutcome};
use sandstorm_types::{ErrorKind, SandboxId, State, Step, TenantId, Timestamp};

use super::Inner;
use super::failure::{conflict, not_found, stored};
use super::living::Living;

/// How often a step is tried again that somebody else's step came before.
const TRIES: usize = 50;

/// What became of a step.
#[derive(Debug)]
pub(super) enum Stepped {
    To(SandboxRow),
    /// The state machine has no such arrow from where it is.
    Refused(SandboxRow),
}

impl Stepped {
    /// The new row, or a conflict that says what stood in the way.
    pub(super) fn done(self) -> Result<SandboxRow> {
        match self {
            Self::To(row) => Ok(row),
            Self::Refused(row) => Err(in_the_way(row.id, &row.state)),
        }
    }
}

/// Says which state of a sandbox stands in the way, and what the caller does about it.
pub(super) fn in_the_way(id: SandboxId, state: &State) -> Error {
    let resume = || format!("`sandstorm sandbox resume {id}` or POST /v1/sandboxes/{id}/resume");
    conflict(match state {
        State::Creating | State::Resuming => format!("the sandbox is {state}; try again when it is ready"),
        State::Ready => format!("the sandbox is {state}"),
        State::Pausing => format!("the sandbox is {state}; when it is paused, resume it with {}", resume()),
        State::Paused => {
            format!("the sandbox is {state} and nothing in it runs; resume it with {}", resume())
        }
        State::Terminating | State::Terminated => {
            format!("the sandbox is {state} and cannot be used again; make another one")
        }
        State::Failed { reason } => format!("the sandbox has failed ({reason}); make another one"),
    })
}

impl Inner {
    /// The row of a tenant's sandbox, living or ended.
    pub(super) async fn row(&self, tenant: TenantId, id: SandboxId) -> Result<Option<Arc<SandboxRow>>> {
        if let Some(living) = self.sandboxes.get(tenant, id) {
            return Ok(Some(living.row()));
        }
        Ok(stored(self.store.sandbox(tenant, id).await)?.map(Arc::new))
    }

    /// A tenant's sandbox that takes execs and file operations, marked as used.
    pub(super) async fn ready(&self, tenant: TenantId, id: SandboxId) -> Result<Arc<Living>> {
        match self.sandboxes.get(tenant, id) {
            Some(living) if living.row().state.is_ready() => {
                living.touch();
                Ok(living)
            }
            Some(living) => Err(in_the_way(id, &living.row().state)),
            None => match stored(self.store.sandbox(tenant, id).await)? {
                Some(row) => {
                    self.keep_off(id).await?;
                    Err(in_the_way(id, &row.state))
                }
                None => Err(not_found("sandbox")),
            },
        }
    }

    /// Takes a step from wherever the sandbox is now.
    pub(super) async fn step(
        &self,
        tenant: TenantId,
        id: SandboxId,
        step: Step,
        changes: SandboxChanges,
        audit: Option<&Audit>,
    ) -> Result<Stepped> {
        for _ in 0..TRIES {
            let Some(row) = stored(self.store.sandbox(tenant, id).await)? else {
                return Err(not_found("sandbox"));
            };
            if let Some(stepped) = self.try_step(&row, step.clone(), changes.clone(), audit).await? {
                return Ok(stepped);
            }
        }
        Err(Error::new(ErrorKind::Conflict, "the sandbox changes too quickly"))
    }

    /// The same for whoever has its row, which is read only if it has changed since.
    pub(super) async fn step_from(
        &self,
        row: &SandboxRow,
        step: Step,
        changes: SandboxChanges,
    ) -> Result<Stepped> {
        match self.try_step(row, step.clone(), changes.clone(), None).await? {
            Some(stepped) => Ok(stepped),
            None => self.step(row.tenant, row.id, step, changes, None).await,
        }
    }

    /// Takes a step from where a row says that the sandbox is. `None`: it is not there any more.
    async fn try_step(
        &self,
        row: &SandboxRow,
        step: Step,
        changes: SandboxChanges,
        audit: Option<&Audit>,
    ) -> Result<Option<Stepped>> {
        let (tenant, id) = (row.tenant, row.id);
        let mut changes = changes;
        if matches!(step, Step::Terminated | Step::Fail { .. }) {
            changes.bill = self.spending.bill(row);
            changes.attempts.extend(self.spending.failed_attempts(id));
        }
        let outcome =
            self.store.step_sandbox(tenant, id, row.revision, step, Timestamp::now(), changes, audit);
        match stored(outcome.await)? {
            StepOutcome::Stepped(row, _) => {
                tracing::info!(sandbox = %id, state = %row.state, "sandbox changed state");
                metrics::counter!("sandstorm_sandbox_transitions_total", "to" => row.state.to_string())
                    .increment(1);
                self.saw(&row);
                Ok(Some(Stepped::To(row)))
            }
            StepOutcome::Conflict(row) => Ok(Some(Stepped::Refused(row))),
            StepOutcome::Lost => Ok(None),
            StepOutcome::Missing => Err(not_found("sandbox")),
        }
    }

    /// Takes a newer row in and wakes who waits for events and clocks.
    pub(super) fn saw(&self, row: &SandboxRow) {
        self.spending.saw(row);
        if row.state.is_final() {
            if let Some(living) = self.sandboxes.remove(row.id) {
                living.learn(row.clone());
                self.account_memory(&living);
            }
        } else if let Some(living) = self.sandboxes.of_any_tenant(row.id) {
            living.learn(row.clone());
            self.clock.arm(&living, self.settings.paused_for);
        }
        self.events.wake(row.tenant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_in_the_way_names_the_way_out() {
        let id = SandboxId::from_bits(0);
        let said = |state: State| in_the_way(id, &state).to_string();
        assert_eq!(
            said(State::Paused),
            format!(
                "the sandbox is paused and nothing in it runs; resume it with `sandstorm sandbox resume {id}` or POST \
                 /v1/sandboxes/{id}/resume"
            )
        );
        assert_eq!(said(State::Creating), "the sandbox is creating; try again when it is ready");
        assert_eq!(
            said(State::Terminated),
            "the sandbox is terminated and cannot be used again; make another one"
        );
        assert_eq!(
            said(State::Failed { reason: "out of money".to_owned() }),
            "the sandbox has failed (out of money); make another one"
        );
    }
}
