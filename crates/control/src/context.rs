//! Contexts: living interpreters whose variables persist between pieces of code.
//!
//! A context is an ordinary program in a sandbox, the language's kernel, spoken to on a descriptor of its own or, where a
//! provider has none, in lines on its streams. What it prints is the user's output and is never mistaken for what it says;
//! what it says is still said by user code and is bounded and checked here. The protocol is that of
//! `crates/language/kernels/README.md`.

mod cell;
mod consumed;
mod line_reader;
mod line_writer;
mod message;
mod nonce;
mod position;
mod transport;
mod wire;

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use sandstorm_language::{Language, Toolchain};
use sandstorm_provider::{
    AttachFrom, Command, Error, Exec, ExecEvent, ExecInput, ExecRequest, ExecSignal, OpContext, Provider,
    Result, Stdin,
};
use sandstorm_types::{EnvError, EnvMap, EnvName, ErrorKind, ExecId, GuestPath, Limits, SandboxId};
use tokio_util::sync::CancellationToken;

pub(crate) use cell::Listener;
pub use cell::{Cell, CellStatus, ContextEvent, Told};
use message::{FromKernel, ToKernel};
pub use nonce::Nonce;
pub(crate) use position::Position;
pub use transport::Spoken;
use transport::{Heard, Transport};
use wire::WireError;

use crate::compile::{environment, guest_path};
use crate::spool::HEAD;

/// A living interpreter. Dropping it ends it, unless it was started as lasting.
pub struct Context {
    provider: Arc<dyn Provider>,
    cx: OpContext,
    exec: ExecId,
    events: BoxStream<'static, Result<ExecEvent>>,
    transport: Transport,
    /// Number of the next event.
    next_event: u64,
    /// Bytes of the next event that an earlier host has used.
    skip: usize,
    next_cell: u64,
    /// Bytes of output that one cell may give back.
    output: u64,
    /// Bytes of each stream of a cell that are kept in memory.
    head: usize,
    /// What was asked of a copy before its first cell, and not heard of yet.
    renewing: Option<String>,
}

/// How to start a context.
#[derive(Debug, Clone)]
pub struct StartContext {
    /// The id of the interpreter's exec.
    pub exec: ExecId,
    /// Whether the interpreter outlives this process, to be taken over by [`Context::adopt`].
    pub lasting: bool,
    /// The workspace unless given.
    pub cwd: Option<GuestPath>,
    pub env: EnvMap,
    pub spoken: Spoken,
}

impl Default for StartContext {
    fn default() -> Self {
        let (exec, spoken) = (ExecId::random(), Spoken::default());
        Self { exec, lasting: false, cwd: None, env: EnvMap::new(), spoken }
    }
}

/// Ends what a context is doing, from elsewhere.
#[derive(Debug, Clone)]
pub struct Interrupter(CancellationToken);

impl Interrupter {
    pub fn interrupt(&self) {
        self.0.cancel();
    }

    /// Waits until it was asked for.
    pub(crate) async fn interrupted(&self) {
        self.0.cancelled().await;
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
        start: StartContext,
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
        for (name, value) in start.env.iter() {
            let name: EnvName = name.parse().map_err(|e: EnvError| invalid(e.to_string()))?;
            request.env.insert(name, value.to_owned()).map_err(|e| invalid(e.to_string()))?;
        }
        match &start.spoken {
            Spoken::Channel => {
                let (name, three) = (EnvName::ours("KERNEL_FD"), "3".to_owned());
                request.env.insert(name, three).map_err(|e| invalid(e.to_string()))?;
                request.channel = true;
            }
            Spoken::Lines(nonce) => request.command = with_nonce(nonce, &request),
        }
        request.id = start.exec;
        request.cwd = Some(start.cwd.unwrap_or_else(GuestPath::workspace));
        request.stdin = Stdin::Stream;
        request.replay = false;
        request.lasting = start.lasting;
        request.background = start.lasting;
        // A context has no time limit of its own; its cells and its sandbox have.
        request.timeout = Some(std::time::Duration::from_secs(365 * 86_400));
        let exec = provider.exec(cx, sandbox, request).await?;
        let mut context = Self::over(provider, cx, exec, limits, &start.spoken)?;
        match cx.run("start a context", context.first_message()).await {
            Ok(FromKernel::Ready { protocol: 1, .. }) => Ok(context),
            Ok(_) => Err(broken("it did not begin as a kernel does")),
            Err(error) => Err(match context.transport.complaint() {
                Some(complaint) => {
                    let what = format!("{} could not be started where the sandbox is", language.title);
                    Error::new(error.kind(), format!("{what}: {complaint}")).with_source(error)
                }
                None => error,
            }),
        }
    }

    /// Takes over a lasting context whose host died. `at` and `next_cell` are what [`Context::position`] and
    /// [`Context::next_cell`] were; a cell that was under way then is followed by [`Context::resume_cell`].
    pub async fn adopt(
        provider: Arc<dyn Provider>,
        cx: &OpContext,
        exec: ExecId,
        at: u64,
        next_cell: u64,
        limits: &Limits,
        spoken: &Spoken,
    ) -> Result<Self> {
        let at = Position::unpack(at);
        let exec = provider.attach(cx, &exec, AttachFrom::Seq(at.event)).await?;
        if exec.first != at.event {
            return Err(broken("what it said meanwhile is lost"));
        }
        let mut context = Self::over(provider, cx, exec, limits, spoken)?;
        if let Transport::Lines(lines) = &mut context.transport {
            lines.writer.begin_anew();
        }
        Ok(Self { skip: at.skip, next_cell, ..context })
    }

    fn over(
        provider: Arc<dyn Provider>,
        cx: &OpContext,
        exec: Exec,
        limits: &Limits,
        spoken: &Spoken,
    ) -> Result<Self> {
        let transport = Transport::to(&exec, spoken)?;
        Ok(Self {
            provider,
            cx: OpContext::new(cx.tenant()),
            exec: exec.id,
            events: exec.events,
            transport,
            next_event: exec.first,
            skip: 0,
            next_cell: 1,
            output: limits.output.as_u64(),
            head: usize::MAX,
            renewing: None,
        })
    }

    /// Keeps only the beginning of what a cell prints, for a host whose listener has all of it.
    pub(crate) fn keep_heads(&mut self) {
        self.head = HEAD;
    }

    /// The interpreter's exec.
    pub fn exec(&self) -> ExecId {
        self.exec
    }

    /// Standard input of the code that runs here.
    pub fn input(&self) -> &ExecInput {
        self.transport.input()
    }

    /// Where the events of the next cell begin, as a number to keep for [`Context::adopt`]. It grows from cell to cell.
    pub fn position(&self) -> u64 {
        let next = Position { event: self.next_event, skip: self.skip };
        if self.skip > 0 { next.pack() } else { self.transport.position(self.next_event).pack() }
    }

    /// The number that the next cell gets.
    pub fn next_cell(&self) -> u64 {
        self.next_cell
    }

    /// What came of the cells so far is stored: their events are not needed any more.
    pub async fn commit(&mut self) -> Result<()> {
        if !self.transport.commits() {
            return Ok(());
        }
        let before = Position::unpack(self.position()).event;
        self.signal(ExecSignal::Forget { before }).await
    }

    /// Waits for what is heard next. Dropping the future loses nothing.
    async fn next(&mut self) -> Result<Heard> {
        loop {
            if let Some(heard) = self.transport.take().map_err(broken_by)? {
                return Ok(heard);
            }
            self.hear().await?;
        }
    }

    /// Waits for the next event and takes it in.
    async fn hear(&mut self) -> Result<()> {
        // However much it says, whoever waits beside it has a turn, too.
        tokio::task::coop::consume_budget().await;
        let event = match &mut self.transport {
            Transport::Channel(_) => self.events.next().await,
            Transport::Lines(lines) => tokio::select! {
                // First what is seldom ready: code that prints without end would leave an interrupt no turn.
                biased;
                lost = lines.writer.work() => return Err(lost),
                event = self.events.next() => event,
            },
        };
        let event = match event {
            Some(Ok(ExecEvent::Exited(_))) | None => return Err(broken("the interpreter ended")),
            Some(event) => event?,
        };
        let number = self.next_event;
        self.next_event += 1;
        let skip = std::mem::take(&mut self.skip);
        self.transport.push(number, event, skip);
        Ok(())
    }

    async fn first_message(&mut self) -> Result<FromKernel> {
        loop {
            if let Heard::Message(message) = self.next().await? {
                return Ok(message);
            }
        }
    }

    async fn say(&mut self, message: &ToKernel<'_>) -> Result<()> {
        self.transport.say(message).await
    }

    /// Interrupts what runs. Where a kernel is spoken to in lines its first process only passes them on, and is not the one
    /// to get a signal.
    async fn interrupt(&mut self) -> Result<()> {
        match &mut self.transport {
            Transport::Channel(_) => self.signal(ExecSignal::Interrupt).await,
            Transport::Lines(lines) => {
                lines.writer.interrupt();
                Ok(())
            }
        }
    }

    /// Borrows nothing, so that whoever owns the context can wait for it in a task: its events cannot be shared.
    fn signal(&self, signal: ExecSignal) -> impl Future<Output = Result<()>> + Send + use<> {
        let (provider, cx, exec) = (Arc::clone(&self.provider), self.cx.clone(), self.exec);
        async move { provider.signal(&cx, &exec, signal).await }
    }

    /// Ends the interpreter: politely, so that its exit handlers run, then for good.
    pub async fn shut_down(mut self) -> Result<()> {
        let _ = self.say(&ToKernel::Shutdown).await;
        let patience = std::time::Duration::from_secs(2);
        let _ = tokio::time::timeout(patience, async { while self.next().await.is_ok() {} }).await;
        self.signal(ExecSignal::Kill).await
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("exec", &self.exec).finish_non_exhaustive()
    }
}

/// The command with the nonce among its variables. Ours have a name that no API takes from a caller, so `env` sets it.
fn with_nonce(nonce: &Nonce, request: &ExecRequest) -> Command {
    let variable = format!("{}={}", EnvName::ours("KERNEL_NONCE"), nonce.as_str());
    Command::Program(["env".to_owned(), variable].into_iter().chain(request.argv()).collect())
}

fn broken(why: &'static str) -> Error {
    Error::new(ErrorKind::Provider, format!("the context is gone: {why}"))
}

fn broken_by(error: WireError) -> Error {
    Error::new(ErrorKind::Provider, "the context is gone").with_source(error)
}
