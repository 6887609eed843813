//! Sandboxes: made, listed, extended, paused, ended.

use std::time::Duration;

use sandstorm_provider::Result;
use sandstorm_store::{SandboxChanges, SandboxFilter, SandboxRow};
use sandstorm_types::{
    Enforcement, EnvMap, Labels, LimitsPatch, NetworkPolicy, OnEnd, Phase, SandboxId, SandboxSpec, Space,
    State, Template, Timestamp, Transition, Usd, User, Walls,
};

use super::cursor::{self, List, Place};
use super::failure::{invalid, not_found, stored};
use super::steps::in_the_way;
use super::{Caller, Control, Inner, Scope, Verb};

/// Items of a page unless said otherwise, and at most.
pub(super) const PAGE: u32 = 100;
pub(super) const LARGEST_PAGE: u32 = 1000;

/// A sandbox to make. What is not said is the operator's default.
#[derive(Debug, Clone, Default)]
pub struct NewSandbox {
    pub template: Template,
    pub limits: LimitsPatch,
    pub env: EnvMap,
    pub network: NetworkPolicy,
    pub labels: Labels,
    pub lifetime: Option<Duration>,
    pub on_end: Option<OnEnd>,
    pub idle_timeout: Option<Duration>,
    pub user: User,
    /// Where what it writes lies.
    pub space: Space,
    /// The operator's choice unless given.
    pub enforcement: Option<Enforcement>,
    /// It is not made if it is expected to cost more, and ended before it does.
    pub max_cost: Option<Usd>,
    /// Packages by language, mounted read-only.
    pub requirements:
        std::collections::BTreeMap<sandstorm_types::LanguageName, Vec<sandstorm_types::Requirement>>,
    /// Where it should go, where there is a choice.
    pub routing: Option<Box<sandstorm_types::Routing>>,
    /// Whether interpreters will live in it: not every place has them.
    pub contexts: bool,
}

/// A sandbox as its owner sees it.
#[derive(Debug, Clone)]
pub struct SandboxView {
    pub id: SandboxId,
    pub phase: Phase,
    /// Why it failed.
    pub reason: Option<String>,
    pub spec: SandboxSpec,
    pub idle_timeout: Option<Duration>,
    pub walls: Option<Walls>,
    pub provider: String,
    pub isolator: String,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub execs_running: usize,
    /// What was counted for one that has ended, as it is billed. Lists leave it out.
    pub metered: Option<MeteredView>,
}

/// What was counted for a sandbox; one that was never made took no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeteredView {
    pub wall_ms: u64,
    pub cpu_ms: u64,
    pub peak_memory_bytes: u64,
}

/// Which sandboxes to list.
#[derive(Debug, Clone, Default)]
pub struct SandboxQuery {
    pub phases: Vec<Phase>,
    pub labels: Labels,
    /// Also those that ended, while they are kept.
    pub include_ended: bool,
    pub limit: Option<u32>,
    /// From an earlier page; bound to the tenant and the filters, authenticated.
    pub cursor: Option<String>,
}

/// A page of a list, newest first.
#[derive(Debug, Clone)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next_cursor: Option<String>,
}

impl Control {
    pub async fn sandbox(&self, caller: &Caller, id: SandboxId) -> Result<SandboxView> {
        caller.require_inside(id, Verb::Look)?;
        let row = self.0.row(caller.tenant, id).await?.ok_or_else(|| not_found("sandbox"))?;
        let mut view = self.0.view(&row);
        if row.state.is_final() {
            let bill = self.0.store.bill_of(row.tenant, row.created_at, &row.id.to_string()).await;
            // Of one that is somewhere else again, only what is said there.
            view.metered = stored(bill)?.filter(|bill| bill.metered).map(|bill| MeteredView {
                wall_ms: bill.wall_ms,
                cpu_ms: bill.cpu_ms,
                peak_memory_bytes: bill.peak_memory_bytes,
            });
        }
        Ok(view)
    }

    pub async fn sandboxes(&self, caller: &Caller, query: SandboxQuery) -> Result<Page<SandboxView>> {
        caller.require(Scope::Sandbox)?;
        let SandboxQuery { phases, labels, include_ended, limit, cursor } = query;
        let filters = format!("sandboxes {phases:?} {labels:?} {include_ended}");
        let list = List { tenant: caller.tenant, filters: &filters };
        let pepper = &self.0.settings.pepper;
        let before = match cursor {
            Some(cursor) => {
                let Place { at, id } = cursor::decode(pepper, list, &cursor)?;
                Some((at, SandboxId::from_bits(id)))
            }
            None => None,
        };
        let limit = limit.unwrap_or(PAGE).clamp(1, LARGEST_PAGE);
        let states = states_of(&phases);
        // Those that ended are meant when a phase names them.
        let include_ended =
            include_ended || phases.iter().any(|phase| matches!(phase, Phase::Terminated | Phase::Failed));
        let mut filter = SandboxFilter { states, labels, include_ended, before, limit: limit + 1 };
        let mut items = Vec::new();
        let mut more = false;
        loop {
            let rows = stored(self.0.store.list_sandboxes(caller.tenant, &filter).await)?;
            let whole = rows.len() as u64 == u64::from(filter.limit);
            filter.before = rows.last().map(|row| (row.created_at, row.id));
            for row in rows {
                // `ready` and `running` are one state in the store.
                let view = self.0.view(&row);
                if !phases.is_empty() && !phases.contains(&view.phase) {
                    continue;
                }
                if items.len() as u64 == u64::from(limit) {
                    more = true;
                    break;
                }
                items.push(view);
            }
            if more || !whole {
                break;
            }
        }
        let last = items.last().filter(|_| more);
        let next_cursor =
            last.map(|view| cursor::encode(pepper, list, Place { at: view.created_at, id: view.id.bits() }));
        Ok(Page { items, next_cursor })
    }

    /// Idempotent for one that ended; `NotFound` for one that never was or is another's. Works in every state.
    #[tracing::instrument(skip_all, fields(sandbox = %id))]
    pub async fn delete_sandbox(&self, caller: &Caller, id: SandboxId) -> Result<()> {
        caller.require(Scope::Sandbox)?;
        let audit = caller.audit("sandbox.delete", id);
        let (inner, tenant) = (self.0.clone(), caller.tenant);
        self.0.tasks.complete(async move { inner.end_sandbox(tenant, id, Some(&audit)).await }).await
    }

    /// Its lifetime ends `by` from now, whatever it was.
    #[tracing::instrument(skip_all, fields(sandbox = %id))]
    pub async fn extend_sandbox(&self, caller: &Caller, id: SandboxId, by: Duration) -> Result<SandboxView> {
        caller.require(Scope::Sandbox)?;
        self.0.check_lifetime(by)?;
        let row = self.0.row(caller.tenant, id).await?.ok_or_else(|| not_found("sandbox"))?;
        if row.state.is_final() || row.state == State::Terminating {
            return Err(in_the_way(id, &row.state));
        }
        let changes = SandboxChanges {
            expires_at: Some(Some(Timestamp::now().after(by))),
            ..SandboxChanges::default()
        };
        self.0.update(caller, id, changes, "sandbox.extend").await
    }

    /// Its lifetime ends now: it is paused or ended, as it was to be at the end of its lifetime, before this returns.
    #[tracing::instrument(skip_all, fields(sandbox = %id))]
    pub async fn expire_sandbox(&self, caller: &Caller, id: SandboxId) -> Result<()> {
        caller.require(Scope::Sandbox)?;
        let row = self.0.row(caller.tenant, id).await?.ok_or_else(|| not_found("sandbox"))?;
        if row.state.is_final() || row.state == State::Terminating {
            return Err(in_the_way(id, &row.state));
        }
        match self.0.pause_at_end(&row) {
            Some(pause) => self.change(caller, id, pause, "sandbox.pause").await.map(drop),
            None => self.delete_sandbox(caller, id).await,
        }
    }

    /// Pausing a paused sandbox is success; so is resuming a ready one.
    #[tracing::instrument(skip_all, fields(sandbox = %id))]
    pub async fn pause_sandbox(&self, caller: &Caller, id: SandboxId) -> Result<SandboxView> {
        self.change(caller, id, Transition::Pause, "sandbox.pause").await
    }

    /// Ends what runs in it and pauses it with its files; needs `pause_files`.
    #[tracing::instrument(skip_all, fields(sandbox = %id))]
    pub async fn pause_sandbox_files(&self, caller: &Caller, id: SandboxId) -> Result<SandboxView> {
        self.change(caller, id, Transition::PauseFiles, "sandbox.pause").await
    }

    #[tracing::instrument(skip_all, fields(sandbox = %id))]
    pub async fn resume_sandbox(&self, caller: &Caller, id: SandboxId) -> Result<SandboxView> {
        self.change(caller, id, Transition::Resume, "sandbox.resume").await
    }

    async fn change(&self, caller: &Caller, id: SandboxId, to: Transition, act: &str) -> Result<SandboxView> {
        match to {
            Transition::Resume => caller.require_inside(id, Verb::Wake)?,
            _ => caller.require(Scope::Sandbox)?,
        }
        self.0.accepts_work()?;
        let (inner, cx, audit) = (self.0.clone(), caller.operation(), caller.audit(act, id));
        let row =
            self.0.tasks.complete(async move { inner.transition(&cx, id, to, Some(&audit)).await }).await?;
        Ok(self.0.view(&row))
    }

    /// Takes effect at once; connections that the new policy forbids end.
    #[tracing::instrument(skip_all, fields(sandbox = %id))]
    pub async fn set_network(
        &self,
        caller: &Caller,
        id: SandboxId,
        policy: NetworkPolicy,
    ) -> Result<SandboxView> {
        caller.require(Scope::Sandbox)?;
        let living = self.0.ready(caller.tenant, id).await?;
        let mut spec = living.row().spec.clone();
        spec.network = policy.clone();
        self.0.admits(&spec)?;
        let (control, caller) = (self.clone(), caller.clone());
        self.0
            .tasks
            .complete(async move {
                // The intent first: should the server die between the two, the next one makes it true.
                let changes = SandboxChanges { spec: Some(spec), ..SandboxChanges::default() };
                let before = living.row().spec.clone();
                let view = control.0.update(&caller, id, changes, "sandbox.set_network").await?;
                let set = control.0.provider.set_network(&caller.operation(), &id, policy).await;
                if let Err(error) = set {
                    let back = SandboxChanges { spec: Some(before), ..SandboxChanges::default() };
                    control.0.update(&caller, id, back, "sandbox.set_network.undo").await?;
                    return Err(error);
                }
                Ok(view)
            })
            .await
    }
}

impl Control {
    /// Opens its ports to everybody who knows its id, or closes them again; who came in without a key is out within a second.
    #[tracing::instrument(skip_all, fields(sandbox = %id, public))]
    pub async fn set_public_ports(
        &self,
        caller: &Caller,
        id: SandboxId,
        public: bool,
    ) -> Result<SandboxView> {
        caller.require(Scope::Sandbox)?;
        let row = self.0.row(caller.tenant, id).await?.ok_or_else(|| not_found("sandbox"))?;
        if row.state.is_final() || row.state == State::Terminating {
            return Err(in_the_way(id, &row.state));
        }
        let mut spec = row.spec.clone();
        let labels = spec.labels.with_public_ports(public);
        spec.labels =
            labels.map_err(|error| invalid("the sandbox has no room for the label").with_source(error))?;
        let changes = SandboxChanges { spec: Some(spec), ..SandboxChanges::default() };
        self.0.update(caller, id, changes, "sandbox.set_public_ports").await
    }
}

/// The states of the store that these phases are shown for.
fn states_of(phases: &[Phase]) -> Vec<String> {
    let name = |phase: &Phase| match phase {
        Phase::Running => Phase::Ready.name(),
        phase => phase.name(),
    };
    let mut states: Vec<String> = phases.iter().map(|phase| name(phase).to_owned()).collect();
    states.sort();
    states.dedup();
    states
}

impl Inner {
    pub(super) fn view(&self, row: &SandboxRow) -> SandboxView {
        let living = self.sandboxes.get(row.tenant, row.id);
        let execs = living.as_ref().map_or(0, |living| living.execs());
        let reason = match &row.state {
            State::Failed { reason } => Some(reason.clone()),
            _ => None,
        };
        let millis = |millis: i64| Duration::from_millis(u64::try_from(millis).unwrap_or(0));
        SandboxView {
            id: row.id,
            phase: row.state.phase(execs),
            reason,
            spec: row.spec.clone(),
            idle_timeout: row.idle_timeout_ms.map(millis),
            walls: row.walls.clone().and_then(|walls| serde_json::from_value(walls).ok()),
            provider: row.provider.clone(),
            isolator: self.holder(row).kind.clone(),
            created_at: row.created_at,
            expires_at: living.map_or(row.expires_at, |living| living.expires_at()),
            ended_at: row.ended_at,
            execs_running: execs,
            metered: None,
        }
    }

    pub(super) fn check_lifetime(&self, lifetime: Duration) -> Result<()> {
        let longest = self.settings.longest_lifetime;
        if lifetime.is_zero() || lifetime > longest {
            return Err(invalid("a lifetime is longer than nothing and not longer than the server allows")
                .with("longest", format!("{} s", longest.as_secs())));
        }
        Ok(())
    }

    async fn update(
        &self,
        caller: &Caller,
        id: SandboxId,
        changes: SandboxChanges,
        act: &str,
    ) -> Result<SandboxView> {
        let audit = caller.audit(act, id);
        let row = stored(self.store.update_sandbox(caller.tenant, id, changes, Some(&audit)).await)?;
        let row = row.ok_or_else(|| not_found("sandbox"))?;
        if let Some(living) = self.sandboxes.get(caller.tenant, id) {
            living.touch();
        }
        self.saw(&row);
        Ok(self.view(&row))
    }
}
