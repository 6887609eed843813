//! What an earlier server left: the provider says what is there, the store what should be.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sandstorm_provider::{OpContext, Result, Sandbox};
use sandstorm_store::{ContextRow, ExecEnd, ExecRow, LedgerBill, LedgerEntry, OpenEntry, RunEnd, SandboxRow};
use sandstorm_types::{ErrorKind, ExecId, SandboxId, State, Timestamp, Usd, Walls};

use super::Inner;
use super::cell_log::CellLog;
use super::ended::Ended;
use super::events::ending;
use super::execs::{CELL, UNLIMITED};
use super::executions::{Execution, Stage};
use super::failure::stored;
use super::follower::Story;
use super::fork::CARRIED;
use super::interpreter::{Interpreter, Left};
use super::living::Living;
use super::run_record;
use crate::context::Context;

const LOST: &str = "lost while the server was down";
/// Sandboxes that are seen to at the same time.
const AT_ONCE: usize = 32;

impl Inner {
    /// Settles everything. Adopted sandboxes stay, lost ones fail, strangers end.
    pub(super) async fn recover(self: &Arc<Self>) -> Result<()> {
        let began = std::time::Instant::now();
        let missed = stored(self.store.catch_up().await)?;
        if missed > 0 {
            tracing::info!(missed, "recorded what an earlier server began and did not live to record");
        }
        self.spending.begin(&self.store).await?;
        let mut open = self.open_accounts().await?;
        self.claim_unowned().await?;
        let own = self.own_names();
        let rows = stored(self.store.living_sandboxes().await)?;
        // Of a store that several servers share, the others' are the others'.
        let (rows, others): (Vec<SandboxRow>, Vec<SandboxRow>) =
            rows.into_iter().partition(|row| own.contains(&row.provider.as_str()));
        if !others.is_empty() && !self.store.is_shared() {
            let count = others.len();
            tracing::warn!(count, "sandboxes are on record at providers that are not configured any more");
        }
        self.meet(&rows);
        let (present, silent) = self.present_or_silent().await?;
        let mut present: HashMap<SandboxId, Sandbox> =
            present.into_iter().map(|sandbox| (sandbox.id, sandbox)).collect();
        let mut execs: HashMap<SandboxId, Vec<ExecRow>> = HashMap::new();
        for row in stored(self.store.running_execs().await)? {
            execs.entry(row.sandbox).or_default().push(row);
        }
        let mut contexts: HashMap<SandboxId, Vec<ContextRow>> = HashMap::new();
        for row in stored(self.store.living_contexts().await)? {
            contexts.entry(row.sandbox).or_default().push(row);
        }
        let (known, mut adopted) = (rows.len(), 0);
        let mut work = Vec::new();
        for row in rows {
            if let Some(entry) = open.remove(&row.id.to_string()) {
                let life = stored(self.store.transitions(row.tenant, row.id).await)?;
                self.spending.adopt(&self.store, &row, self.holder(&row), entry, &life).await?;
            }
            let there = present.remove(&row.id);
            let (execs, contexts) =
                (execs.remove(&row.id).unwrap_or_default(), contexts.remove(&row.id).unwrap_or_default());
            adopted += usize::from(there.is_some());
            // Nobody knows what became of those at a provider that does not answer: they are taken as there.
            let there = there.is_some() || silent.contains(&row.provider);
            work.push(self.settle(row, there, execs, contexts));
        }
        stream::iter(work).for_each_concurrent(AT_ONCE, |settled| settled).await;
        self.end_leftovers(execs, contexts).await?;
        let strangers = present.len();
        stream::iter(present.into_keys())
            .for_each_concurrent(AT_ONCE, |id| async move {
                match self.store.held_elsewhere(id).await {
                    Ok(None) => {}
                    Ok(Some(_)) => return,
                    Err(error) => {
                        tracing::error!(sandbox = %id, %error, "whose a sandbox is could not be looked up");
                        return;
                    }
                }
                let cx = OpContext::new(sandstorm_types::TenantId::LOCAL);
                if let Err(error) = self.provider.destroy(&cx, &id).await {
                    tracing::error!(sandbox = %id, %error, "a sandbox that nobody knows could not be ended");
                }
            })
            .await;
        self.end_unfinished_runs(&open).await?;
        if self.store.is_shared() {
            // From here on the records say what became of requests that were not answered.
            stored(self.store.release_earlier_claims().await)?;
        }
        let millis = began.elapsed().as_millis() as u64;
        if known + strangers > 0 {
            tracing::info!(known, adopted, strangers, millis, "took over what an earlier server left");
        }
        Ok(())
    }

    /// Records from before they belonged to a server.
    async fn claim_unowned(&self) -> Result<()> {
        if !self.store.is_shared() {
            return Ok(());
        }
        // What is in this server's own hands is its own, whoever else there is.
        let (present, _) = self.present_or_silent().await?;
        let present: Vec<SandboxId> = present.into_iter().map(|sandbox| sandbox.id).collect();
        let claimed = stored(self.store.claim_unowned(&present, Timestamp::now()).await)?;
        if claimed > 0 {
            tracing::info!(claimed, "sandboxes from before records had a server are this server's now");
        }
        Ok(())
    }

    /// Ends the records of what was in sandboxes that have ended: a server that was stopped for good leaves such.
    async fn end_leftovers(
        &self,
        execs: HashMap<SandboxId, Vec<ExecRow>>,
        contexts: HashMap<SandboxId, Vec<ContextRow>>,
    ) -> Result<()> {
        for (sandbox, rows) in execs {
            let Some(tenant) = rows.first().map(|row| row.tenant) else { continue };
            let row = stored(self.store.sandbox(tenant, sandbox).await)?;
            if let Some(row) = row.filter(|row| row.state.is_final()) {
                self.end_execs(&row, rows, None).await;
            }
        }
        for (sandbox, rows) in contexts {
            let Some(tenant) = rows.first().map(|row| row.tenant) else { continue };
            let row = stored(self.store.sandbox(tenant, sandbox).await)?;
            if row.is_some_and(|row| row.state.is_final()) {
                self.end_contexts(tenant, sandbox).await;
            }
        }
        Ok(())
    }

    async fn settle(
        self: &Arc<Self>,
        row: SandboxRow,
        there: bool,
        execs: Vec<ExecRow>,
        contexts: Vec<ContextRow>,
    ) {
        let (tenant, id) = (row.tenant, row.id);
        let done = match (&row.state, there) {
            (State::Creating, _) => self.lose(&row, execs, "the server ended while it was being made").await,
            (State::Terminating, _) => {
                self.end_execs(&row, execs, None).await;
                self.end_sandbox(tenant, id, None).await
            }
            (_, false) => self.lose(&row, execs, LOST).await,
            (_, true) => self.adopt(row, execs, contexts).await,
        };
        if let Err(error) = done {
            tracing::error!(sandbox = %id, %error, "a sandbox could not be taken over");
        }
    }

    async fn lose(self: &Arc<Self>, row: &SandboxRow, execs: Vec<ExecRow>, reason: &str) -> Result<()> {
        self.end_execs(row, execs, Some(reason)).await;
        self.fail_sandbox(row.tenant, row.id, reason).await
    }

    /// Takes a sandbox over as the provider has it.
    async fn adopt(
        self: &Arc<Self>,
        row: SandboxRow,
        execs: Vec<ExecRow>,
        contexts: Vec<ContextRow>,
    ) -> Result<()> {
        let (tenant, id) = (row.tenant, row.id);
        let memory = self.admission.of(&row.spec.limits, row.spec.space);
        let promise = self.admission.count(memory);
        let layers = self.kept_layers(&row.spec);
        let living = Arc::new(Living::new(row, promise, memory, layers));
        living.was_recorded_before(self.clock_was_set());
        living.lives_at_most(self.settings.longest_lifetime);
        if self.is_elsewhere(&living.row()) {
            living.share.is_elsewhere();
        }
        let transitions = stored(self.store.transitions(tenant, id).await)?;
        if let Some(last) = transitions.last() {
            living.set_since(self.by_present_clock(last.at));
        }
        // What was used before this server came was accounted for by the one before it.
        if let Ok(usage) = self.provider.usage(&OpContext::new(tenant), &id).await {
            let cpu_ms = u64::try_from(usage.cpu.as_millis()).unwrap_or(u64::MAX);
            living.accounted_cpu_ms.store(cpu_ms, std::sync::atomic::Ordering::Release);
            living.see_cpu_ms(cpu_ms);
        }
        self.sandboxes.add(Arc::clone(&living));
        if let Err(error) = self.follow_provider(tenant, id).await {
            if !self.is_elsewhere(&living.row()) {
                return Err(error);
            }
            tracing::warn!(sandbox = %id, %error, "the state of a sandbox elsewhere is not known yet");
        }
        if self.can(&living.row()).network_change {
            // A change may have been written down by a server that did not live to make it.
            let policy = living.row().spec.network.clone();
            if let Err(error) = self.provider.set_network(&OpContext::new(tenant), &id, policy).await {
                tracing::debug!(sandbox = %id, %error, "a network policy could not be set again");
            }
        }
        let (cells, programs): (Vec<_>, Vec<_>) = execs.into_iter().partition(|row| row.kind == CELL);
        for row in programs {
            let log = row.id;
            let execution = Execution::new(row, &living, Stage::Log { log, complaints: false }, None);
            self.executions.add(&execution);
            self.follow_again(&execution, Story::default());
        }
        let mut cells: HashMap<ExecId, ExecRow> = cells.into_iter().map(|row| (row.id, row)).collect();
        for context in contexts {
            let cell = context.cell_exec.and_then(|cell| cells.remove(&cell));
            self.adopt_context(&living, context, cell).await;
        }
        // Cells that waited for their turn: what they were is known to nobody any more.
        let row = living.row();
        self.end_execs(
            &row,
            cells.into_values().collect(),
            Some("the server ended before the cell was begun"),
        )
        .await;
        self.clock.arm(&living, self.settings.paused_for);
        Ok(())
    }

    /// Takes an interpreter over, with the cell that it runs. One that cannot be had is lost, and shown so.
    async fn adopt_context(self: &Arc<Self>, living: &Arc<Living>, row: ContextRow, cell: Option<ExecRow>) {
        let cx = OpContext::new(row.tenant).with_timeout(Duration::from_secs(5));
        let limits = living.row().spec.limits;
        let number = u64::try_from(row.next_cell).unwrap_or(1);
        let next = if row.cell_exec.is_some() { number + 1 } else { number };
        let provider = Arc::clone(&self.provider);
        let (spoken, at) = (self.spoken(&living.row(), row.exec), row.position as u64);
        let adopted = Context::adopt(provider, &cx, row.exec, at, next, &limits, &spoken).await;
        let adopted = match adopted {
            Ok(mut context) => {
                // A copy in which nothing ran yet: whoever made it may have died before it was renewed.
                let is_new = row.position == 0 && row.cell_exec.is_none() && row.language == CARRIED;
                let renewed = if is_new { context.renew().await } else { Ok(()) };
                renewed.map(|()| context)
            }
            lost => lost,
        };
        let context = match adopted {
            Ok(context) => context,
            Err(error) => {
                tracing::warn!(context = %row.id, %error, "a context is lost");
                let cells = cell.into_iter().collect();
                return self.end_execs(&living.row(), cells, Some("the context was lost")).await;
            }
        };
        let count = u64::try_from(row.execution_count).unwrap_or(0);
        let (language, input) = (row.language.clone(), context.input().clone());
        let (interpreter, coming) = Interpreter::new(row.id, row.tenant, row.sandbox, language, input, count);
        let left = cell.map(|cell| {
            let spent = Timestamp::now().since(self.by_present_clock(cell.started_at));
            let timeout = cell.timeout_ms.and_then(|millis| u64::try_from(millis).ok());
            let usual = if cell.background { UNLIMITED } else { limits.wall };
            let timeout = timeout.map_or(usual, Duration::from_millis).saturating_sub(spent);
            let log = CellLog::new(cell.id, limits.output.as_u64(), self.runner.spools.clone());
            let execution = Execution::new(cell, living, Stage::Nowhere, Some(log));
            execution.set_input(interpreter.input.clone());
            if !execution.row.lasting {
                // Whoever waited for it went with the old server, which is as good as a disconnect.
                execution.cancel.cancel();
            }
            self.executions.add(&execution);
            Left { execution, number, timeout }
        });
        self.serve_context(interpreter, context, coming, left);
    }

    /// Ends the records of execs that are gone with their sandbox.
    pub(super) async fn end_execs(&self, sandbox: &SandboxRow, execs: Vec<ExecRow>, reason: Option<&str>) {
        let walls: Option<Walls> = sandbox.walls.clone().and_then(|walls| serde_json::from_value(walls).ok());
        for row in execs {
            let (info, walls) = (self.holder(sandbox), walls.clone().unwrap_or_default());
            let ended = match reason {
                Some(reason) => {
                    let error = sandstorm_provider::Error::new(ErrorKind::Provider, reason.to_owned());
                    Ended::by_problem(row.id, info, walls, &error)
                }
                None => Ended::killed(row.id, info, walls),
            };
            let status = ended.result.status;
            let end = ExecEnd {
                status: status.name().to_owned(),
                result: ended.stored_text(),
                at: Timestamp::now(),
            };
            let told = ending(Some(row.id), None, Some(status).filter(|_| reason.is_none()));
            if let Err(error) = self.store.end_exec(row.tenant, row.id, &end, &told).await {
                tracing::error!(exec = %row.id, %error, "the end of an exec could not be stored");
            }
        }
    }

    /// What has no bill yet, by what it is about.
    async fn open_accounts(&self) -> Result<HashMap<String, OpenEntry>> {
        let open = stored(self.store.open_entries().await)?;
        Ok(open.into_iter().map(|open| (open.entry.object.clone(), open)).collect())
    }

    async fn end_unfinished_runs(&self, open: &HashMap<String, OpenEntry>) -> Result<()> {
        for row in stored(self.store.unfinished_runs().await)? {
            let problem = serde_json::to_value(run_record::interrupted()).ok();
            // Nobody measured it, so it costs what was expected.
            let bill = open.get(&row.id.to_string()).map(|open| as_estimated(&open.entry));
            let (at, attempts) = (Timestamp::now(), Vec::new());
            let end = RunEnd { status: None, result: None, problem, at, bill, attempts };
            self.end_run(row.tenant, row.id, &end, None).await;
        }
        Ok(())
    }
}

pub(super) fn as_estimated(entry: &LedgerEntry) -> LedgerBill {
    LedgerBill {
        provider: entry.provider.clone(),
        region: entry.region.clone(),
        ended_at: Timestamp::now(),
        wall_ms: 0,
        cpu_ms: 0,
        peak_memory_bytes: 0,
        priced: true,
        metered: false,
        charge: entry.estimate,
        credit: Usd::ZERO,
        margin: Usd::ZERO,
        snapshots: Usd::ZERO,
    }
}
