//! A living sandbox goes on in new ones: files, and the interpreters of its contexts with their memory.
//!
//! Contexts are copied between two cells. They are asked for that in line with the cells that wait, so that what was sent
//! before the fork is done in it too, and go on when the last copy was made. The first copy is made alone: what stands in
//! the way of it stands in the way of all.

mod stillness;

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sandstorm_provider::{Error, ForkOptions, NotCarried, OpContext, Result, Sandbox};
use sandstorm_store::{ContextRow, SandboxRow, UsageDelta};
use sandstorm_types::{
    ContextId, ErrorKind, ExecId, Labels, Lifetime, Problem, SandboxId, SandboxSpec, Timestamp, Unmet,
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use self::stillness::{Carrying, Stillness};
use super::create::Wants;
use super::failure::{invalid, stored};
use super::interpreter::{Coming, Interpreter};
use super::living::Living;
use super::{Caller, Claim, Control, Inner, SandboxView, Scope};
use crate::context::Context;

/// The most copies of one request.
const MOST: u32 = 100;
/// The language whose interpreters can be carried.
pub(super) const CARRIED: &str = "python";
/// Copies that are made at the same time.
const AT_ONCE: usize = 8;

/// Copies to make of a living sandbox.
#[derive(Debug, Clone)]
pub struct NewFork {
    pub count: u32,
    /// The source's unless given.
    pub labels: Option<Labels>,
    /// The source's unless given.
    pub lifetime: Option<Duration>,
    /// Whether contexts that cannot be carried are left out and named, instead of refusing.
    pub allow_partial: bool,
}

impl Default for NewFork {
    fn default() -> Self {
        Self { count: 1, labels: None, lifetime: None, allow_partial: false }
    }
}

/// A copy of a living sandbox.
#[derive(Debug, Clone)]
pub struct ForkView {
    pub sandbox: SandboxView,
    /// Contexts that go on: which one of the source, and what it is called in the copy.
    pub contexts: Vec<(ContextId, ContextId)>,
    /// What the source has and the copy has not.
    pub not_carried: Vec<NotCarried>,
}

/// What all copies of one request have in common.
struct Order {
    caller: Caller,
    cx: OpContext,
    source: SandboxId,
    spec: SandboxSpec,
    idle_timeout: Option<Duration>,
    partial: bool,
}

/// A copy that is made and not ready yet.
struct Unready {
    row: SandboxRow,
    made: Sandbox,
    taken: Vec<Taken>,
    not_carried: Vec<NotCarried>,
}

/// An interpreter that nobody serves yet.
struct Taken {
    /// The context that it is a copy of.
    from: ContextId,
    interpreter: Arc<Interpreter>,
    context: Context,
    coming: tokio::sync::mpsc::Receiver<Coming>,
}

/// Which copies there will be. From when that is on record they are what was made, once they are ready.
fn noted(all: &[Result<Unready>]) -> Result<String> {
    let noted: Vec<Noted> = all.iter().map(Noted::of).collect();
    serde_json::to_string(&noted)
        .map_err(|error| Error::new(ErrorKind::Internal, "a fork has no JSON form").with_source(error))
}

/// A copy as it is on record with the claim of its request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Noted {
    /// None for one that could not be made.
    pub(super) sandbox: Option<SandboxId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    problem: Option<Problem>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    contexts: Vec<(ContextId, ContextId)>,
    /// What, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    not_carried: Vec<(String, String)>,
}

impl Noted {
    fn of(copy: &Result<Unready>) -> Self {
        match copy {
            Ok(copy) => Self {
                sandbox: Some(copy.row.id),
                problem: None,
                contexts: copy.taken.iter().map(|taken| (taken.from, taken.interpreter.id)).collect(),
                not_carried: copy
                    .not_carried
                    .iter()
                    .map(|left| (left.what.clone(), left.why.clone()))
                    .collect(),
            },
            Err(error) => Self {
                sandbox: None,
                problem: Some(Problem { code: error.kind(), detail: error.message().to_owned() }),
                contexts: Vec::new(),
                not_carried: Vec::new(),
            },
        }
    }

    pub(super) fn failure(&self) -> Error {
        match &self.problem {
            Some(Problem { code, detail }) => Error::new(*code, detail.clone()),
            None => Error::new(ErrorKind::Internal, "the record of a fork is damaged"),
        }
    }

    pub(super) fn view(&self, sandbox: SandboxView) -> ForkView {
        let not_carried = self.not_carried.iter().cloned();
        let not_carried = not_carried.map(|(what, why)| NotCarried { what, why }).collect();
        ForkView { sandbox, contexts: self.contexts.clone(), not_carried }
    }
}

impl Control {
    /// Copies of a ready sandbox, each ready when this returns. One that could not be made while others could is told in
    /// its place, and nothing of it is left; when none could, that is the answer. Dropping the future ends what it began.
    #[tracing::instrument(skip_all, fields(sandbox = %id, count = new.count))]
    pub async fn fork_sandbox(
        &self,
        caller: &Caller,
        id: SandboxId,
        new: NewFork,
    ) -> Result<Vec<Result<ForkView>>> {
        self.fork_as(caller, id, new, None).await
    }

    /// The same; with a claim, which copies there will be is noted with it before any is ready.
    pub(super) async fn fork_as(
        &self,
        caller: &Caller,
        id: SandboxId,
        new: NewFork,
        claim: Option<Arc<Claim>>,
    ) -> Result<Vec<Result<ForkView>>> {
        caller.require(Scope::Sandbox)?;
        self.0.accepts_work()?;
        if !(1..=MOST).contains(&new.count) {
            return Err(invalid("a sandbox is forked from 1 to 100 times at once").with("count", new.count));
        }
        let living = self.0.ready(caller.tenant, id).await?;
        if !self.0.provider.capabilities().live_fork {
            let why = "this server cannot copy a living sandbox";
            return Err(Error::unmet(vec![Unmet::new("live_fork", "yes", "no", why)]));
        }
        let gone = CancellationToken::new();
        let order = self.0.order(caller, &living, new.clone(), gone.clone())?;
        let _on_drop = gone.clone().drop_guard();
        let (inner, count) = (Arc::clone(&self.0), new.count);
        // A task of its own, so that it ends what it began when nobody waits for it any more.
        self.0
            .tasks
            .complete(async move {
                let forks = inner.fork(&order, &living, count, claim.as_deref()).await?;
                if !gone.is_cancelled() {
                    return Ok(forks);
                }
                for fork in forks.into_iter().flatten() {
                    inner.end_sandbox(order.caller.tenant, fork.sandbox.id, None).await?;
                }
                Err(Error::new(ErrorKind::Cancelled, "the caller gave up").with_operation("fork"))
            })
            .await
    }
}

impl Inner {
    fn order(
        &self,
        caller: &Caller,
        living: &Living,
        new: NewFork,
        gone: CancellationToken,
    ) -> Result<Order> {
        let row = living.row();
        let mut spec = row.spec.clone();
        if let Some(after) = new.lifetime {
            self.check_lifetime(after)?;
            spec.lifetime = Lifetime { after, ..spec.lifetime };
        }
        if let Some(labels) = new.labels {
            spec.labels = labels;
        }
        let quota = self.quotas.of(caller.tenant).quota.sandboxes;
        let (alive, ..) = self.sandboxes.promised(caller.tenant);
        if alive.saturating_add(new.count) > quota {
            // The store counts exactly, one by one; this is so that a few are not made of many that cannot be.
            return Err(Error::new(ErrorKind::Quota, "the quota of sandboxes has no room for so many")
                .with("alive", alive)
                .with("wanted", new.count)
                .with("allowed", quota)
                .with_retry_after(Duration::from_secs(5)));
        }
        Ok(Order {
            cx: caller.operation().with_cancellation(gone),
            caller: caller.clone(),
            source: living.id,
            spec,
            idle_timeout: row
                .idle_timeout_ms
                .and_then(|ms| u64::try_from(ms).ok())
                .map(Duration::from_millis),
            partial: new.allow_partial,
        })
    }

    async fn fork(
        self: &Arc<Self>,
        order: &Order,
        source: &Arc<Living>,
        count: u32,
        claim: Option<&Claim>,
    ) -> Result<Vec<Result<ForkView>>> {
        let standing = tracing::debug_span!("stand still");
        let still = self.still(&order.cx, source, order.partial).instrument(standing).await?;
        let first = self.copy(order, &still).await?;
        let more = (1..count).map(|_| self.copy(order, &still));
        let more = stream::iter(more).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
        drop(still);
        source.touch();
        // None is ready before all are made: a server that dies on the way leaves none that nobody knows of.
        let all: Vec<_> = std::iter::once(Ok(first)).chain(more).collect();
        let noted = claim.map(|_| noted(&all));
        let kept = match (claim, noted) {
            (Some(claim), Some(Ok(noted))) => claim.keep_note(noted).await,
            (_, Some(Err(error))) => Err(error),
            (_, None) | (None, _) => Ok(()),
        };
        if let Err(error) = kept {
            for copy in all.into_iter().flatten() {
                self.not_made(order.caller.tenant, copy.row.id, &error).await;
            }
            return Err(error);
        }
        let finished = all.into_iter().map(|copy| async move {
            match copy {
                Ok(copy) => self.finish(order, copy).await,
                Err(error) => Err(error),
            }
        });
        Ok(futures_util::future::join_all(finished).await)
    }

    /// Makes one copy, or leaves nothing.
    async fn copy(self: &Arc<Self>, order: &Order, still: &Stillness) -> Result<Unready> {
        let began = std::time::Instant::now();
        let copied = self.make_copy(order, still).await;
        let outcome = copied.as_ref().map_or_else(|error| error.kind().code(), |_| "ok");
        metrics::counter!("sandstorm_sandbox_forks_total", "outcome" => outcome).increment(1);
        metrics::histogram!("sandstorm_sandbox_fork_seconds").record(began.elapsed().as_secs_f64());
        copied
    }

    async fn make_copy(self: &Arc<Self>, order: &Order, still: &Stillness) -> Result<Unready> {
        let Order { caller, cx, spec, .. } = order;
        let given = self.making.begin(SandboxId::random());
        let id = given.id;
        let mut audit = caller.audit("sandbox.fork", id);
        audit.detail = Some(serde_json::json!({ "source": order.source.to_string() }));
        // Each copy may cost as much as what it is a copy of.
        let max_cost = self.spending.of_sandbox(order.source).and_then(|account| account.max_cost());
        // A copy is where its source is.
        let source = self.sandboxes.get(caller.tenant, order.source);
        let wants = match source.is_some_and(|source| self.is_elsewhere(&source.row())) {
            true => Wants::Never,
            false => Wants::Now,
        };
        let intending = self.intend(caller, cx, &given, spec, order.idle_timeout, max_cost, wants, &audit);
        let (row, promise) = intending.instrument(tracing::debug_span!("record the beginning")).await?;
        let built = async {
            let (wanted, create, _) = self.ingredients(cx, spec, row.clone(), promise, given, wants).await?;
            let execs = still.carried.iter().map(|one| (one.still.exec, ExecId::random())).collect();
            let options = ForkOptions { spec: wanted, create, execs, partial: order.partial };
            self.carry(order, still, row, options).await
        };
        let built = built.await;
        if let Err(error) = &built {
            self.not_made(caller.tenant, id, error).await;
        }
        built
    }

    /// Has the provider make the copy and takes its interpreters on.
    async fn carry(
        self: &Arc<Self>,
        order: &Order,
        still: &Stillness,
        row: SandboxRow,
        options: ForkOptions,
    ) -> Result<Unready> {
        let execs = options.execs.clone();
        let forking = tracing::debug_span!("make the copy");
        let forked = self.provider.fork(&order.cx, &order.source, options).instrument(forking).await;
        let forked = forked.map_err(|error| still.of_context(error))?;
        let taking_on =
            still.carried.iter().zip(&execs).filter(|(_, (_, exec))| forked.carried.contains(exec));
        let taking_on = taking_on.map(|(one, (_, exec))| self.take_on(order, &row, one, *exec));
        let meeting = tracing::debug_span!("meet the interpreters");
        let taken = futures_util::future::try_join_all(taking_on).instrument(meeting).await?;
        let mut not_carried = still.left.clone();
        // The provider knows execs; their owner knows them as contexts.
        not_carried.extend(forked.not_carried.into_iter().map(|mut left| {
            let known = still.carried.iter().find(|one| left.what == format!("exec {}", one.still.exec));
            if let Some(one) = known {
                left.what = format!("context {}", one.row.id);
            }
            left
        }));
        Ok(Unready { row, made: forked.sandbox, taken, not_carried })
    }

    /// Makes a copy ready.
    async fn finish(self: &Arc<Self>, order: &Order, copy: Unready) -> Result<ForkView> {
        let Unready { row, made, taken, not_carried } = copy;
        let id = row.id;
        let recording = tracing::debug_span!("record the end");
        let row = match self.made(row, made).instrument(recording).await {
            Ok(row) => row,
            Err(error) => {
                self.not_made(order.caller.tenant, id, &error).await;
                return Err(error);
            }
        };
        let mut contexts = Vec::with_capacity(taken.len());
        for Taken { from, interpreter, context, coming } in taken {
            contexts.push((from, interpreter.id));
            self.serve_context(interpreter, context, coming, None);
            metrics::counter!("sandstorm_contexts_carried_total").increment(1);
        }
        self.add_usage(order.caller.tenant, UsageDelta { sandboxes_created: 1, ..UsageDelta::default() });
        Ok(ForkView { sandbox: self.view(&row), contexts, not_carried })
    }

    /// Writes a copied context down and meets its interpreter.
    async fn take_on(
        &self,
        order: &Order,
        fork: &SandboxRow,
        source: &Carrying,
        exec: ExecId,
    ) -> Result<Taken> {
        let tenant = order.caller.tenant;
        let row = ContextRow {
            id: ContextId::random(),
            tenant,
            sandbox: fork.id,
            language: source.row.language.clone(),
            cwd: source.row.cwd.clone(),
            env: source.row.env.clone(),
            exec,
            created_at: Timestamp::now(),
            ended_at: None,
            // Its log begins with it.
            position: 0,
            next_cell: i64::try_from(source.still.next_cell).unwrap_or(i64::MAX),
            cell_exec: None,
            execution_count: i64::try_from(source.still.execution_count).unwrap_or(i64::MAX),
        };
        let mut audit = order.caller.audit("context.fork", row.id);
        audit.detail = Some(serde_json::json!({ "source": source.row.id.to_string() }));
        let (provider, limits) = (Arc::clone(&self.provider), &fork.spec.limits);
        let (spoken, next_cell) = (self.spoken(fork, exec), source.still.next_cell);
        let adopting = Context::adopt(provider, &order.cx, exec, 0, next_cell, limits, &spoken);
        let (recorded, context) = tokio::join!(self.store.insert_context(&row, &audit), adopting);
        stored(recorded)?;
        let mut context = context?;
        context.renew().await?;
        let count = source.still.execution_count;
        let (language, input) = (row.language.clone(), context.input().clone());
        let (interpreter, coming) = Interpreter::new(row.id, tenant, fork.id, language, input, count);
        Ok(Taken { from: source.row.id, interpreter, context, coming })
    }
}
