//! Contexts: living interpreters whose variables persist between pieces of code.
//!
//! A context is an ordinary program in a sandbox, the language's kernel, spoken to on a descriptor of its own. What it
//! prints is the user's output and is never mistaken for what it says; what it says is still said by user code and is
//! bounded and checked here. The protocol is that of `crates/language/kernels/README.md`.

mod cell;
mod message;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use sandstorm_language::{Language, Toolchain};
use sandstorm_provider::{
    Duplex, Error, ExecEvent, ExecInput, ExecRequest, ExecSignal, OpContext, Provider, Result, Stdin,
};
use sandstorm_types::{ContextId, EnvName, ErrorKind, ExecId, GuestPath, Limits, SandboxId};
use tokio::io::{ReadHalf, WriteHalf};
use tokio_util::sync::CancellationToken;

pub use cell::{Cell, CellStatus, ContextEvent};
use message::{FromKernel, ToKernel};
use wire::Wire;

use crate::compile::{environment, guest_path};

/// A living interpreter. Dropping it ends it.
pub struct Context {
    id: ContextId,
    provider: Arc<dyn Provider>,
    cx: OpContext,
    exec: ExecId,
    events: BoxStream<'static, Result<ExecEvent>>,
    input: ExecInput,
    wire: Wire<ReadHalf<Duplex>>,
    sender: WriteHalf<Duplex>,
    next_cell: u64,
    /// Bytes of output that one cell may give back.
    output: u64,
}

/// Ends what a context is doing, from elsewhere.
#[derive(Debug, Clone)]
pub struct Interrupter(CancellationToken);

impl Interrupter {
    pub fn interrupt(&self) {
        self.0.cancel();
    }
}

impl Context {
    /// Starts the kernel of a language in a sandbox that exists.
    pub async fn start(
        provider: Arc<dyn Provider>,
        cx: &OpContext,
        sandbox: &SandboxId,
        language: &Language,
        toolchain: &Toolchain,
        limits: &Limits,
    ) -> Result<Self> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidRequest, message);
        let plan = language
            .kernel_plan(toolchain)
            .map_err(|e| invalid(e.to_string()))?
            .ok_or_else(|| invalid(format!("{} has no contexts", language.title)))?;
        let mut request = ExecRequest::program(plan.argv);
        for file in &plan.files {
            request.files.push((guest_path(&file.path)?, Bytes::from_static(file.text.as_bytes())));
        }
        request.env = environment(&plan.env)?;
        request.env.insert(EnvName::ours("KERNEL_FD"), "3".to_owned()).map_err(|e| invalid(e.to_string()))?;
        request.cwd = Some(GuestPath::workspace());
        request.stdin = Stdin::Stream;
        request.channel = true;
        request.replay = false;
        // A context has no time limit of its own; its cells and its sandbox have.
        request.timeout = Some(std::time::Duration::from_secs(365 * 86_400));
        let exec = provider.exec(cx, sandbox, request).await?;
        let channel =
            exec.channel.ok_or_else(|| Error::new(ErrorKind::Internal, "the program has no channel"))?;
        let (reading, sender) = tokio::io::split(channel);
        let mut context = Self {
            id: ContextId::random(),
            provider,
            cx: OpContext::new(cx.tenant()),
            exec: exec.id,
            events: exec.events,
            input: exec.input,
            wire: Wire::new(reading),
            sender,
            next_cell: 1,
            output: limits.output.as_u64(),
        };
        match cx.run("start a context", context.hear()).await? {
            FromKernel::Ready { protocol: 1, .. } => Ok(context),
            _ => Err(broken("it did not begin as a kernel does")),
        }
    }

    pub fn id(&self) -> ContextId {
        self.id
    }

    /// Standard input of the code that runs here.
    pub fn input(&self) -> &ExecInput {
        &self.input
    }

    /// Waits for the kernel's next message. Dropping the future loses nothing.
    async fn hear(&mut self) -> Result<FromKernel> {
        self.wire.next().await.map_err(broken_by)
    }

    async fn say(&mut self, message: &ToKernel<'_>) -> Result<()> {
        wire::send(&mut self.sender, message).await.map_err(broken_by)
    }

    async fn signal(&self, signal: ExecSignal) -> Result<()> {
        self.provider.signal(&self.cx, &self.exec, signal).await
    }

    /// Ends the interpreter: politely, so that its exit handlers run, then for good.
    pub async fn shut_down(mut self) -> Result<()> {
        let _ = self.say(&ToKernel::Shutdown).await;
        let patience = std::time::Duration::from_secs(2);
        let _ = tokio::time::timeout(patience, async { while self.hear().await.is_ok() {} }).await;
        self.signal(ExecSignal::Kill).await
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("id", &self.id).field("exec", &self.exec).finish_non_exhaustive()
    }
}

fn broken(why: &'static str) -> Error {
    Error::new(ErrorKind::Provider, format!("the context is gone: {why}"))
}

fn broken_by(error: wire::WireError) -> Error {
    Error::new(ErrorKind::Provider, "the context is gone").with_source(error)
}
