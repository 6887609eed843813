//! Living interpreters of a sandbox. Cells are execs: see [`super::ExecWork::Cell`].

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ring::hmac;
use sandstorm_language::{Catalogue, Language, Toolchain};
use sandstorm_provider::{Error, ExecSignal, OpContext, Result};
use sandstorm_store::{ContextChanges, ContextRow, SandboxRow};
use sandstorm_types::{
    ContextId, EnvMap, ErrorKind, ExecId, GuestPath, LanguageName, SandboxId, TenantId, Timestamp,
};

use super::failure::{conflict, invalid, not_found, stored};
use super::interpreter::Interpreter;
use super::living::Living;
use super::{Caller, Control, Inner, Pepper, Verb};
use crate::context::{Context, Nonce, Spoken, StartContext};

/// How long an interpreter may take to start.
const START: Duration = Duration::from_secs(30);
/// The most contexts of one sandbox.
const MOST: usize = 64;

#[derive(Debug, Clone)]
pub struct NewContext {
    pub language: LanguageName,
    pub cwd: Option<GuestPath>,
    pub env: EnvMap,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextView {
    pub id: ContextId,
    pub sandbox: SandboxId,
    pub language: LanguageName,
    pub cwd: GuestPath,
    pub created_at: Timestamp,
    /// `idle`, `busy`, or `lost` when its interpreter ended; a lost one can be restarted or deleted.
    pub state: &'static str,
    /// Cells that ran since it started.
    pub execution_count: u64,
}

impl Control {
    /// The proper name of a language of which a sandbox can have contexts. What its runtime lacks is told where one is
    /// created.
    pub async fn language_of_contexts(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        language: &LanguageName,
    ) -> Result<Option<LanguageName>> {
        caller.require_inside(sandbox, Verb::Run)?;
        let row = self.0.row(caller.tenant, sandbox).await?.ok_or_else(|| not_found("sandbox"))?;
        let language = Catalogue::embedded().get(language.as_str()).ok();
        let able = language.filter(|known| known.has_contexts() && self.0.can_be_spoken_to(known, &row));
        able.map(|known| known.name.parse::<LanguageName>().map_err(|_| damaged())).transpose()
    }

    #[tracing::instrument(skip_all, fields(%sandbox))]
    pub async fn create_context(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        new: NewContext,
    ) -> Result<ContextView> {
        self.create_context_as(caller, sandbox, ContextId::random(), new).await
    }

    /// The same under an id that was chosen before.
    pub(super) async fn create_context_as(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        id: ContextId,
        new: NewContext,
    ) -> Result<ContextView> {
        caller.require_inside(sandbox, Verb::Run)?;
        self.0.accepts_work()?;
        let living = self.0.ready(caller.tenant, sandbox).await?;
        let working = living.work().await?;
        let (inner, caller) = (Arc::clone(&self.0), caller.clone());
        // To the end once begun: what nobody waits for any more is listed and can be deleted.
        let creating = async move {
            let _working = working;
            inner.create_context(&caller, &living, id, new).await
        };
        self.0.tasks.complete(creating).await
    }

    pub async fn contexts(&self, caller: &Caller, sandbox: SandboxId) -> Result<Vec<ContextView>> {
        caller.require_inside(sandbox, Verb::Run)?;
        self.0.row(caller.tenant, sandbox).await?.ok_or_else(|| not_found("sandbox"))?;
        let rows = stored(self.0.store.contexts(caller.tenant, sandbox).await)?;
        rows.into_iter().map(|row| self.0.context_view(row)).collect()
    }

    pub async fn context(&self, caller: &Caller, sandbox: SandboxId, id: ContextId) -> Result<ContextView> {
        caller.require_inside(sandbox, Verb::Run)?;
        let row = self.0.context_row(caller.tenant, sandbox, id).await?;
        self.0.context_view(row)
    }

    /// Ends the running cell and keeps the variables. Nothing running is success.
    #[tracing::instrument(skip_all, fields(%sandbox, context = %id))]
    pub async fn interrupt_context(&self, caller: &Caller, sandbox: SandboxId, id: ContextId) -> Result<()> {
        caller.require_inside(sandbox, Verb::Run)?;
        self.0.context_row(caller.tenant, sandbox, id).await?;
        self.0.ready(caller.tenant, sandbox).await?;
        if let Some(interpreter) = self.0.interpreters.get(sandbox, id) {
            interpreter.interrupt();
        }
        Ok(())
    }

    /// A new interpreter under the same id; variables are gone.
    #[tracing::instrument(skip_all, fields(%sandbox, context = %id))]
    pub async fn restart_context(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        id: ContextId,
    ) -> Result<ContextView> {
        caller.require_inside(sandbox, Verb::Run)?;
        self.0.accepts_work()?;
        let living = self.0.ready(caller.tenant, sandbox).await?;
        let working = living.work().await?;
        let (inner, cx, tenant) = (Arc::clone(&self.0), caller.operation(), caller.tenant);
        let audit = caller.audit("context.restart", id);
        self.0
            .tasks
            .complete(async move {
                let _working = working;
                let _alone = living.contexts.lock().await;
                let row = inner.context_row(tenant, sandbox, id).await?;
                stored(inner.store.record_audit(&audit).await)?;
                inner.end_interpreter(&row).await;
                let exec = ExecId::random();
                let changes = ContextChanges {
                    exec: Some(exec),
                    position: Some(0),
                    next_cell: Some(1),
                    cell_exec: Some(None),
                    execution_count: Some(0),
                    ended_at: None,
                };
                let row = stored(inner.store.update_context(tenant, id, &changes).await)?;
                let row = row.ok_or_else(|| not_found("context"))?;
                inner.start_interpreter(&cx, &living, &row).await?;
                inner.context_view(row)
            })
            .await
    }

    /// Idempotent.
    #[tracing::instrument(skip_all, fields(%sandbox, context = %id))]
    pub async fn delete_context(&self, caller: &Caller, sandbox: SandboxId, id: ContextId) -> Result<()> {
        caller.require_inside(sandbox, Verb::Run)?;
        self.0.row(caller.tenant, sandbox).await?.ok_or_else(|| not_found("sandbox"))?;
        let row = stored(self.0.store.context(caller.tenant, sandbox, id).await)?;
        let Some(row) = row else { return Err(not_found("context")) };
        if row.ended_at.is_some() {
            return Ok(());
        }
        // A frozen interpreter cannot be ended politely, nor may a context be ended behind a pause.
        let living = self.0.ready(caller.tenant, sandbox).await?;
        let (inner, tenant) = (Arc::clone(&self.0), caller.tenant);
        let audit = caller.audit("context.delete", id);
        self.0
            .tasks
            .complete(async move {
                let _alone = living.contexts.lock().await;
                stored(inner.store.record_audit(&audit).await)?;
                inner.end_interpreter(&row).await;
                inner.context_ended(tenant, id).await
            })
            .await
    }
}

impl Inner {
    async fn create_context(
        self: &Arc<Self>,
        caller: &Caller,
        living: &Arc<Living>,
        id: ContextId,
        new: NewContext,
    ) -> Result<ContextView> {
        let _alone = living.contexts.lock().await;
        self.kernel_toolchain(&new.language, living)?;
        if stored(self.store.contexts(caller.tenant, living.id).await)?.len() >= MOST {
            return Err(conflict("the sandbox has as many contexts as it may have").with("allowed", MOST));
        }
        let env: std::collections::BTreeMap<_, _> = new.env.iter().collect();
        let row = ContextRow {
            id,
            tenant: caller.tenant,
            sandbox: living.id,
            language: new.language.to_string(),
            cwd: new.cwd.unwrap_or_else(GuestPath::workspace).to_string(),
            env: serde_json::to_value(env).map_err(|e| {
                Error::new(ErrorKind::Internal, "an environment has no JSON form").with_source(e)
            })?,
            exec: ExecId::random(),
            created_at: Timestamp::now(),
            ended_at: None,
            position: 0,
            next_cell: 1,
            cell_exec: None,
            execution_count: 0,
        };
        stored(self.store.insert_context(&row, &caller.audit("context.create", row.id)).await)?;
        if let Err(error) = self.start_interpreter(&caller.operation(), living, &row).await {
            self.context_ended(row.tenant, row.id).await?;
            return Err(error);
        }
        self.context_view(row)
    }

    /// The context that was to be made under an id, if it came to be: `None` when there is no record of one, and nothing
    /// behind a record when it never spoke; then nothing is left of it.
    pub(super) async fn context_once_made(
        &self,
        tenant: TenantId,
        sandbox: SandboxId,
        id: ContextId,
    ) -> Result<Option<Option<ContextView>>> {
        let living = self.sandboxes.get(tenant, sandbox);
        // Whoever starts one holds this until it runs or has failed.
        let _alone = match &living {
            Some(living) => Some(living.contexts.lock().await),
            None => None,
        };
        let Some(row) = stored(self.store.context(tenant, sandbox, id).await)? else { return Ok(None) };
        if row.position > 0 || self.interpreters.get(sandbox, id).is_some() {
            return self.context_view(row).map(Some).map(Some);
        }
        if row.ended_at.is_none() {
            self.end_interpreter(&row).await;
            self.context_ended(tenant, id).await?;
        }
        Ok(Some(None))
    }

    /// Starts the interpreter that a row describes.
    async fn start_interpreter(
        self: &Arc<Self>,
        cx: &OpContext,
        living: &Arc<Living>,
        row: &ContextRow,
    ) -> Result<()> {
        let language: LanguageName = row.language.parse().map_err(|_| damaged())?;
        let (language, toolchain) = self.kernel_toolchain(&language, living)?;
        let env: EnvMap = serde_json::from_value(row.env.clone()).map_err(|_| damaged())?;
        let start = StartContext {
            exec: row.exec,
            lasting: true,
            cwd: Some(row.cwd.parse().map_err(|_| damaged())?),
            env,
            spoken: self.spoken(&living.row(), row.exec),
        };
        let limits = living.row().spec.limits;
        let cx = cx.clone().with_timeout(START);
        let provider = Arc::clone(&self.provider);
        let context = Context::start(provider, &cx, &row.sandbox, language, &toolchain, &limits, start).await;
        let context = match context {
            Ok(context) => context,
            Err(error) => {
                // It may have begun and not have come to its first word.
                let last = OpContext::new(row.tenant);
                let _ = self.provider.signal(&last, &row.exec, ExecSignal::Kill).await;
                return Err(error);
            }
        };
        let changes =
            ContextChanges { position: Some(context.position() as i64), ..ContextChanges::default() };
        stored(self.store.update_context(row.tenant, row.id, &changes).await)?;
        let input = context.input().clone();
        let (interpreter, coming) =
            Interpreter::new(row.id, row.tenant, row.sandbox, row.language.clone(), input, 0);
        self.serve_context(interpreter, context, coming, None);
        metrics::counter!("sandstorm_contexts_started_total").increment(1);
        Ok(())
    }

    /// Ends the interpreter of a context, if it still has one.
    async fn end_interpreter(&self, row: &ContextRow) {
        if let Some(interpreter) = self.interpreters.get(row.sandbox, row.id) {
            interpreter.shut_down.cancel();
            interpreter.over.cancelled().await;
        }
        // One that is lost to this server may run all the same.
        let cx = OpContext::new(row.tenant);
        let _ = self.provider.signal(&cx, &row.exec, ExecSignal::Kill).await;
    }

    /// Lets go of all contexts of a sandbox that is gone.
    pub(super) async fn end_contexts(&self, tenant: TenantId, sandbox: SandboxId) {
        for interpreter in self.interpreters.of_sandbox(sandbox) {
            interpreter.abandon.cancel();
        }
        match self.store.contexts(tenant, sandbox).await {
            Ok(rows) => {
                for row in rows {
                    if let Err(error) = self.context_ended(tenant, row.id).await {
                        tracing::warn!(context = %row.id, %error, "the end of a context could not be stored");
                    }
                }
            }
            Err(error) => {
                tracing::warn!(%sandbox, %error, "contexts of a sandbox that is gone cannot be read")
            }
        }
    }

    async fn context_ended(&self, tenant: TenantId, id: ContextId) -> Result<()> {
        let changes = ContextChanges { ended_at: Some(Timestamp::now()), ..ContextChanges::default() };
        stored(self.store.update_context(tenant, id, &changes).await).map(drop)
    }

    async fn context_row(&self, tenant: TenantId, sandbox: SandboxId, id: ContextId) -> Result<ContextRow> {
        let row = stored(self.store.context(tenant, sandbox, id).await)?;
        row.filter(|row| row.ended_at.is_none()).ok_or_else(|| not_found("context"))
    }

    /// Why a cell finds no interpreter: there is no such context, or it is lost.
    pub(super) async fn no_interpreter(
        &self,
        tenant: TenantId,
        sandbox: SandboxId,
        id: ContextId,
    ) -> Result<Error> {
        self.context_row(tenant, sandbox, id).await?;
        Ok(conflict("the context is lost: restart it or delete it"))
    }

    /// What a context is started with: programs of this machine, or by their bare names where those mean nothing.
    fn kernel_toolchain(
        &self,
        name: &LanguageName,
        living: &Living,
    ) -> Result<(&'static Language, Toolchain)> {
        let language = Catalogue::embedded().get(name.as_str()).map_err(|e| invalid(e.to_string()))?;
        if language.has_contexts() && !self.can_be_spoken_to(language, &living.row()) {
            let title = &language.title;
            return Err(invalid(format!(
                "{title} has no contexts in this sandbox: its provider offers no channel to speak to them"
            )));
        }
        if self.is_elsewhere(&living.row()) {
            return Ok((language, language.bare_toolchain()));
        }
        let toolchain = language.detect(&self.runner.toolchains.roots).map_err(|missing| {
            let what = missing.absent.join(", ");
            invalid(format!("{} is not installed: {what} not found", language.title))
                .with("install", missing.install.command())
        })?;
        Ok((language, toolchain))
    }

    /// Whether there is a way between us and the interpreters of a language in a sandbox.
    fn can_be_spoken_to(&self, language: &Language, sandbox: &SandboxRow) -> bool {
        self.can(sandbox).exec_channel || language.has_contexts_without_channels()
    }

    /// How the interpreter `exec` of a sandbox is spoken to. The nonce of one that is spoken to in lines is known from its id,
    /// so that nothing is stored and whoever has the same state directory knows it.
    pub(super) fn spoken(&self, sandbox: &SandboxRow, exec: ExecId) -> Spoken {
        if self.can(sandbox).exec_channel {
            return Spoken::Channel;
        }
        Spoken::Lines(nonce(&self.settings.pepper, exec))
    }

    fn context_view(&self, row: ContextRow) -> Result<ContextView> {
        let interpreter = self.interpreters.get(row.sandbox, row.id);
        let (state, count) = match &interpreter {
            Some(interpreter) if interpreter.is_busy() => {
                ("busy", interpreter.execution_count.load(Ordering::Acquire))
            }
            Some(interpreter) => ("idle", interpreter.execution_count.load(Ordering::Acquire)),
            None => ("lost", u64::try_from(row.execution_count).unwrap_or(0)),
        };
        Ok(ContextView {
            id: row.id,
            sandbox: row.sandbox,
            language: row.language.parse().map_err(|_| damaged())?,
            cwd: row.cwd.parse().map_err(|_| damaged())?,
            created_at: row.created_at,
            state,
            execution_count: count,
        })
    }
}

fn nonce(pepper: &Pepper, exec: ExecId) -> Nonce {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &pepper.0);
    let mut mac = hmac::Context::with_key(&key);
    mac.update(b"sandstorm kernel nonce\0");
    mac.update(&exec.bits().to_be_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&mac.sign().as_ref()[..16]);
    Nonce::new(bytes)
}

fn damaged() -> Error {
    Error::new(ErrorKind::Internal, "the record of a context is damaged")
}
