//! Programs in a sandbox: started, followed, ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sandstorm_agent::protocol::{
    Ending, InputStream, Program, StartFailure, Stream as AgentStream, Task, TerminalSize, ToAgent,
};
use sandstorm_provider::{
    EndCause, Error, Exec, ExecEnd, ExecInput, ExecLog, ExecRequest, ExecSignal, ExecStatus, InputFrame,
    Result, Stdin, TtySize, Usage,
};
use sandstorm_types::{ErrorKind, ExecId, LimitName, PerStream, Stream, User};
use serde_bytes::ByteBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::agent::{AgentError, TaskEvent, TaskHandle, TaskInput};
use crate::files;
use crate::living::{Living, limit_of, limits_hit, usage_of};
use crate::tasks::Tasks;

/// How long an agent may take to report the end of a program that was killed.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Bytes of files that travel in the message that starts a program.
const FILES_WITH_PROGRAM: usize = 128 * 1024;

/// What every program starts with, unless the caller says otherwise.
const ENVIRONMENT: [(&str, &str); 5] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/home/user"),
    ("USER", "user"),
    ("LOGNAME", "user"),
    ("LANG", "C.UTF-8"),
];

/// A program that the engine follows.
#[derive(Debug, Clone)]
pub(crate) struct Followed {
    pub(crate) sandbox: sandstorm_types::SandboxId,
    pub(crate) log: ExecLog,
    pub(crate) input: ExecInput,
    task: TaskInput,
    /// Cancelled when a caller wants the program ended.
    kill: CancellationToken,
    sent: Sent,
}

impl Followed {
    /// Passes a message on; one that has ended takes it in silence.
    pub(crate) async fn signal(&self, signal: ExecSignal) -> Result<()> {
        if self.log.has_ended() {
            return Ok(());
        }
        let id = self.task.id;
        match signal {
            ExecSignal::Kill => {
                self.kill.cancel();
                Ok(())
            }
            // Behind what was written before.
            ExecSignal::CloseStdin => self.input.close().await,
            ExecSignal::Resize(size) => {
                self.task.say(ToAgent::Resize { id, size: terminal_size(size) }).map_err(lost)
            }
            ExecSignal::Interrupt | ExecSignal::Terminate | ExecSignal::Number(_) => {
                let number = signal.number().unwrap_or_default();
                self.sent.note(number);
                self.task.say(ToAgent::Signal { id, signal: number }).map_err(lost)
            }
        }
    }
}

/// Which signals callers sent: one of them ending the program was the caller's doing.
#[derive(Debug, Clone, Default)]
struct Sent(Arc<AtomicU64>);

impl Sent {
    fn note(&self, signal: i32) {
        self.0.fetch_or(Self::bit(signal), Ordering::Relaxed);
    }

    fn has(&self, signal: i32) -> bool {
        self.0.load(Ordering::Relaxed) & Self::bit(signal) != 0
    }

    fn bit(signal: i32) -> u64 {
        u32::try_from(signal).ok().and_then(|n| 1u64.checked_shl(n)).unwrap_or(0)
    }
}

/// Starts a program. Dropping the future before it resolves may leave the program running until its sandbox ends.
pub(crate) async fn start(
    living: &Arc<Living>,
    mut request: ExecRequest,
    tasks: &Tasks,
) -> Result<(Exec, Followed)> {
    living.check_ready()?;
    lay_out_large(living, &mut request).await?;
    let program = program(living, &request);
    let mut handle = living.agent.start(Task::Program(program)).map_err(lost)?;
    wait_for_start(&mut handle).await?;

    let log = if request.replay {
        ExecLog::new(request.output.unwrap_or(living.spec.limits.output))
    } else {
        ExecLog::flowing()
    };
    let kill = CancellationToken::new();
    let (input, frames) = match request.stdin {
        Stdin::Stream => ExecInput::channel(16),
        Stdin::Empty | Stdin::Given(_) => (ExecInput::none(), mpsc::channel(1).1),
    };
    let sent = Sent::default();
    let channel = request.channel.then(|| side_channel(&handle, tasks));
    let (channel, side) = channel.unzip();
    feed(&handle, request.stdin, frames, tasks).await?;
    let followed = Followed {
        sandbox: living.id,
        log: log.clone(),
        input: input.clone(),
        task: handle.input.clone(),
        kill: kill.clone(),
        sent: sent.clone(),
    };
    // A foreground program ends when nobody listens any more.
    let guard = (!request.background).then(|| Box::new(kill.clone().drop_guard()) as Box<_>);
    let events = log.paced_events(guard);
    let timeout = request.timeout.unwrap_or(living.spec.limits.wall);
    let follower = Follower { living: Arc::clone(living), handle, log, kill, timeout, side, sent };
    tasks.start("exec", follower.run());
    let exec = Exec { id: ExecId::random(), events, input, channel };
    Ok((exec, followed))
}

fn program(living: &Living, request: &ExecRequest) -> Program {
    let mut env: std::collections::BTreeMap<String, String> =
        ENVIRONMENT.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    if request.tty.is_some() {
        env.insert("TERM".to_owned(), "xterm-256color".to_owned());
    }
    for (name, value) in living.spec.env.iter().chain(request.env.iter()) {
        env.insert(name.to_string(), value.to_owned());
    }
    Program {
        argv: request.argv(),
        env: env.into_iter().collect(),
        cwd: request.cwd.as_ref().map_or_else(|| "/workspace".to_owned(), |cwd| cwd.as_str().to_owned()),
        root: request.user.unwrap_or(living.spec.user) == User::Root,
        terminal: request.tty.map(terminal_size),
        side_channel: request.channel,
        last: request.last,
        files: request
            .files
            .iter()
            .map(|(path, content)| (ByteBuf::from(path.as_str().as_bytes()), ByteBuf::from(content.as_ref())))
            .collect(),
    }
}

/// Files that fit travel with the program; larger ones go before it.
async fn lay_out_large(living: &Living, request: &mut ExecRequest) -> Result<()> {
    let total: usize = request.files.iter().map(|(path, content)| path.as_str().len() + content.len()).sum();
    if total > FILES_WITH_PROGRAM {
        for (path, content) in std::mem::take(&mut request.files) {
            files::write(living, &path, content.into()).await?;
        }
    }
    Ok(())
}

fn terminal_size(size: TtySize) -> TerminalSize {
    TerminalSize { rows: size.rows, columns: size.cols }
}

/// A program that began has measured its walls; what it measured must be what was promised.
async fn wait_for_start(handle: &mut TaskHandle) -> Result<()> {
    match handle.next().await {
        Some(TaskEvent::Started(walls))
            if walls.capabilities == 0 && walls.no_new_privs && walls.seccomp_mode == 2 =>
        {
            Ok(())
        }
        Some(TaskEvent::Started(walls)) => {
            Err(Error::new(ErrorKind::Isolation, "the program measured more rights than it should have")
                .with("measured", format!("{walls:?}")))
        }
        Some(TaskEvent::Failed(failure)) => Err(start_failure(&failure)),
        Some(_) => Err(lost(AgentError::Protocol("an event before the start"))),
        None => Err(lost(AgentError::Gone)),
    }
}

fn start_failure(failure: &StartFailure) -> Error {
    let cause = std::io::Error::from_raw_os_error(failure.errno);
    let kind = match failure.step.as_str() {
        "execute" | "working directory" | "arguments" | "program" => ErrorKind::InvalidRequest,
        "files" => ErrorKind::FileSystem,
        "fork" | "streams" | "status pipe" => ErrorKind::Capacity,
        _ => ErrorKind::Isolation,
    };
    Error::new(kind, "the program could not be started").with("step", &failure.step).with_source(cause)
}

pub(crate) fn lost(error: AgentError) -> Error {
    if error == AgentError::TooLong {
        return Error::new(ErrorKind::InvalidRequest, "arguments, variables and files are too long together");
    }
    Error::new(ErrorKind::Provider, "the sandbox cannot be reached").with_source(error)
}

/// Passes standard input on, from the request or as the caller writes it.
async fn feed(
    handle: &TaskHandle,
    stdin: Stdin,
    frames: mpsc::Receiver<InputFrame>,
    tasks: &Tasks,
) -> Result<()> {
    let input = handle.input.clone();
    match stdin {
        Stdin::Empty => input.close().map_err(lost),
        Stdin::Given(bytes) => {
            tasks.start("exec input", async move {
                // The program may end without reading all of it: that is its right.
                let _ = input.write(&bytes).await;
                let _ = input.close();
            });
            Ok(())
        }
        Stdin::Stream => {
            tasks.start("exec input", pass_on(input, frames));
            Ok(())
        }
    }
}

async fn pass_on(input: TaskInput, mut frames: mpsc::Receiver<InputFrame>) {
    while let Some(frame) = frames.recv().await {
        let passed = match frame {
            InputFrame::Data(bytes) => input.write(&bytes).await,
            InputFrame::Close => {
                let _ = input.close();
                return;
            }
        };
        if passed.is_err() {
            return;
        }
    }
}

/// The caller's end of descriptor 3, and the way in for what comes from there.
fn side_channel(handle: &TaskHandle, tasks: &Tasks) -> (sandstorm_provider::Duplex, mpsc::Sender<Bytes>) {
    let (theirs, ours) = tokio::io::duplex(64 * 1024);
    let (mut reading, writing) = tokio::io::split(ours);
    let input = TaskInput { to: InputStream::Side, ..handle.input.clone() };
    tasks.start("side channel in", async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = reading.read(&mut buffer).await {
            if input.write(&buffer[..n]).await.is_err() {
                return;
            }
        }
        let _ = input.close();
    });
    let (sender, receiver) = mpsc::channel(16);
    tasks.start("side channel out", write_side(writing, receiver));
    (sandstorm_provider::Duplex::new(theirs), sender)
}

async fn write_side(mut writing: tokio::io::WriteHalf<DuplexStream>, mut receiver: mpsc::Receiver<Bytes>) {
    while let Some(bytes) = receiver.recv().await {
        if writing.write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _ = writing.shutdown().await;
}

/// Follows one program to its end.
struct Follower {
    living: Arc<Living>,
    handle: TaskHandle,
    log: ExecLog,
    kill: CancellationToken,
    timeout: Duration,
    side: Option<mpsc::Sender<Bytes>>,
    sent: Sent,
}

impl Follower {
    async fn run(mut self) {
        let deadline = tokio::time::sleep(self.timeout);
        let flooded = self.log.flooded().clone();
        let kill = self.kill.clone();
        let cause = tokio::select! {
            ended = self.follow() => return self.close(ended, None).await,
            () = deadline => EndCause::Limit(LimitName::Wall),
            () = flooded.cancelled() => EndCause::Limit(LimitName::Output),
            () = kill.cancelled() => EndCause::Caller,
        };
        let _ = self.handle.input.say(ToAgent::Signal { id: self.handle.id, signal: 9 });
        let ended = tokio::time::timeout(LAST_WORDS, self.drain()).await.unwrap_or(None);
        self.close(ended, Some(cause)).await;
    }

    /// Passes output on until the program ends. `None`: its sandbox ended first.
    async fn follow(&mut self) -> Option<(Ending, Usage)> {
        while let Some(event) = self.handle.next().await {
            if let TaskEvent::Output { stream: AgentStream::Side, bytes } = event {
                if let Some(side) = &self.side {
                    let _ = side.send(bytes).await;
                }
            } else if let Some(ended) = self.keep(event) {
                return Some(ended);
            }
            self.log.pace().await;
        }
        None
    }

    /// After a kill: what it still wrote is kept up to the limit, but nobody is waited for.
    async fn drain(&mut self) -> Option<(Ending, Usage)> {
        while let Some(event) = self.handle.next().await {
            if let Some(ended) = self.keep(event) {
                return Some(ended);
            }
        }
        None
    }

    /// Keeps what an event brings. `Some`: the program ended.
    fn keep(&mut self, event: TaskEvent) -> Option<(Ending, Usage)> {
        match event {
            TaskEvent::Output { stream: AgentStream::Output, bytes } => self.log.write(Stream::Stdout, bytes),
            TaskEvent::Output { stream: AgentStream::Error, bytes } => self.log.write(Stream::Stderr, bytes),
            TaskEvent::Exited { ending, usage } => return Some((ending, usage_from(usage))),
            // The program was not executed although its walls stood, such as a script without an interpreter.
            TaskEvent::Failed(failure) => {
                let message = format!("{}\n", std::io::Error::from_raw_os_error(failure.errno));
                self.log.write(Stream::Stderr, Bytes::from(message));
            }
            TaskEvent::Output { stream: AgentStream::Side, .. }
            | TaskEvent::Started(_)
            | TaskEvent::Closed => {}
        }
        None
    }

    /// Decides what ended it, from the kernel's counters, and closes the log.
    async fn close(self, ended: Option<(Ending, Usage)>, forced: Option<EndCause>) {
        let counters = self.living.counters().await;
        let over_memory = counters.memory_kills.is_some_and(|kills| kills > 0);
        let jail_limit = match (&ended, forced) {
            // The sandbox went first: its launcher knows why.
            (None, None) => limit_of(self.living.end().await.cause),
            _ => self.living.ended.borrow().as_ref().and_then(|ended| limit_of(ended.cause)),
        };
        let cause = match (forced, jail_limit) {
            (Some(forced), _) => forced,
            (None, Some(limit)) => EndCause::Limit(limit),
            // Whatever the program made of it: a shell turns the end of its child into an exit code, and the launcher,
            // which ends the whole sandbox for it, may not have got there yet.
            (None, None) if over_memory => EndCause::Limit(LimitName::Memory),
            (None, None) => match ended {
                None => EndCause::Sandbox,
                Some((Ending::Signal(signal), _)) if self.sent.has(signal) => EndCause::Caller,
                Some(_) => EndCause::Program,
            },
        };
        let mut usage = usage_of(&counters);
        if counters.cpu_time.is_none()
            && let Some((_, own)) = &ended
        {
            (usage.cpu, usage.peak_memory) = (own.cpu, own.peak_memory);
        }
        self.log.end(ExecEnd {
            status: match ended {
                Some((Ending::Code(code), _)) => ExecStatus::Code(code),
                Some((Ending::Signal(signal), _)) => ExecStatus::Signal(signal),
                None => ExecStatus::Signal(9),
            },
            cause,
            limits_hit: limits_hit(&counters),
            written: PerStream::default(),
            truncated: PerStream::default(),
            usage,
        });
    }
}

fn usage_from(usage: sandstorm_agent::protocol::TaskUsage) -> Usage {
    Usage {
        cpu: Duration::from_micros(usage.user_microseconds.saturating_add(usage.system_microseconds)),
        peak_memory: sandstorm_types::ByteSize::bytes(usage.peak_memory_bytes),
        ..Usage::default()
    }
}
