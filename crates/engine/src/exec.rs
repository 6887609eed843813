//! Programs in a sandbox: started, followed, ended, and found again by the next host.

mod adopt;
mod blame;
mod clock;
mod follower;
mod input;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use sandstorm_agent::protocol::{PayloadWalls, Program, StartFailure, Tag, Task, TerminalSize, ToAgent};
use sandstorm_provider::{
    ChannelInput, Error, Exec, ExecInput, ExecLog, ExecRequest, ExecSignal, Keep, Result, Stdin, Tasks,
    TtySize,
};
use sandstorm_types::{ErrorKind, ExecId, SandboxId, User};
use serde_bytes::ByteBuf;
use tokio_util::sync::CancellationToken;

pub(crate) use adopt::{Found, Waiting};
pub(crate) use blame::{Blame, Tally};
use clock::WallClock;
use follower::Follower;

use crate::agent::{AgentError, TaskEvent, TaskHandle, TaskInput};
use crate::files;
use crate::journal::{About, ExecJournal};
use crate::living::Living;

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
    pub(crate) sandbox: SandboxId,
    pub(crate) log: ExecLog,
    pub(crate) journal: Option<ExecJournal>,
    pub(crate) input: ExecInput,
    pub(crate) channel: Option<ChannelInput>,
    living: Arc<Living>,
    began: Tally,
    /// The way to its task, once there is one: a program of a sandbox that stands still is found before its task.
    task: Arc<OnceLock<TaskInput>>,
    /// Cancelled when a caller wants the program ended.
    kill: CancellationToken,
    sent: Sent,
    /// Seconds since 1970 at which it ended; 0 while it has not.
    ended_at: Arc<AtomicU64>,
}

impl Followed {
    fn new(
        living: &Arc<Living>,
        began: Tally,
        log: ExecLog,
        journal: Option<ExecJournal>,
        (input, channel): (ExecInput, Option<ChannelInput>),
    ) -> Self {
        Self {
            sandbox: living.id,
            log,
            journal,
            input,
            channel,
            living: Arc::clone(living),
            began,
            task: Arc::default(),
            kill: CancellationToken::new(),
            sent: Sent::default(),
            ended_at: Arc::default(),
        }
    }

    /// Follows it to its end in a task of its own. `known`: bytes of each stream that are in the log and come once more.
    fn follow(&self, handle: TaskHandle, known: [u64; 3], left: Duration, tasks: &Tasks) {
        // Set once: each program is followed once.
        let _ = self.task.set(handle.input.clone());
        let clock = WallClock { left, journal: self.journal.clone() };
        let follower = Follower::new(self, handle, known);
        let ended_at = Arc::clone(&self.ended_at);
        tasks.start("exec", async move {
            follower.run(clock).await;
            ended_at.store(now(), Ordering::Relaxed);
        });
    }

    /// Passes a message on; one that has ended takes it in silence.
    pub(crate) async fn signal(&self, signal: ExecSignal) -> Result<()> {
        if let ExecSignal::Forget { before } = signal {
            return self.log.forget(before).map_err(|error| {
                Error::new(ErrorKind::Internal, "the log of the exec cannot be cut").with_source(error)
            });
        }
        if self.log.has_ended() {
            return Ok(());
        }
        // What stands still hears nothing, and a caller who believes that it did is told wrong.
        self.living.check_ready()?;
        let Some(task) = self.task.get() else { return Err(lost(AgentError::Gone)) };
        let id = task.id;
        match signal {
            ExecSignal::Kill => {
                self.kill.cancel();
                Ok(())
            }
            // Behind what was written before.
            ExecSignal::CloseStdin => self.input.close().await,
            ExecSignal::Resize(size) => {
                task.say(ToAgent::Resize { id, size: terminal_size(size) }).map_err(lost)
            }
            ExecSignal::Interrupt
            | ExecSignal::Terminate
            | ExecSignal::Number(_)
            | ExecSignal::Forget { .. } => {
                let number = signal.number().unwrap_or_default();
                self.sent.note(number);
                task.say(ToAgent::Signal { id, signal: number }).map_err(lost)
            }
        }
    }

    /// How long ago it ended; `None` while it has not.
    pub(crate) fn ended_for(&self) -> Option<Duration> {
        match self.ended_at.load(Ordering::Relaxed) {
            0 => None,
            at => Some(Duration::from_secs(now().saturating_sub(at))),
        }
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
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

/// Starts a program. Dropping the future before it resolves ends what was started.
pub(crate) async fn start(
    living: &Arc<Living>,
    mut request: ExecRequest,
    tasks: &Tasks,
) -> Result<(Exec, Followed)> {
    living.check_ready()?;
    living.agent.ready().await.map_err(lost)?;
    lay_out_large(living, &mut request).await?;
    let limit = request.output.unwrap_or(living.spec.limits.output);
    let keep = match (request.replay, request.lasting) {
        (true, _) => Keep::UpTo(limit),
        (false, false) => Keep::UntilTaken,
        (false, true) => Keep::UntilForgotten,
    };
    let timeout = request.timeout.unwrap_or(living.spec.limits.wall);
    let program = program(living, &request);
    let began = living.tally().await;
    let mut starting = Starting {
        handle: None,
        journal: match &living.journals {
            // What nobody can take over needs no journal: a log that flows keeps nothing anyway.
            Some(dir) if keep != Keep::UntilTaken => {
                let about = About {
                    limit: request.replay.then(|| limit.as_u64()),
                    lasting: request.lasting,
                    input: request.stdin == Stdin::Stream,
                    channel: request.channel,
                    began,
                };
                let journal = ExecJournal::create(dir.join(request.id.bare()), about).map_err(unwritten)?;
                journal.set_clock(timeout, true).map_err(unwritten)?;
                Some(journal)
            }
            _ => None,
        },
    };
    // Without a journal the next host would not know it.
    let tag = (request.lasting && starting.journal.is_some()).then(|| tag_of(request.id));
    let mut handle = living.agent.start(Task::Program(program), tag).map_err(lost)?;
    let started = wait_for_start(&mut handle).await;
    starting.handle = Some(handle);
    started?;
    let log = match &starting.journal {
        Some(journal) => ExecLog::journaled(keep, Box::new(journal.clone())).map_err(unwritten)?,
        None => ExecLog::new(keep),
    };
    let (input, channel, feeding) = input::of_request(request.stdin, request.channel);
    let (handle, journal) = starting.succeed()?;
    let followed = Followed::new(living, began, log, journal, (input.clone(), channel.clone()));
    // A foreground program ends when nobody listens any more.
    let guard = (!request.background).then(|| Box::new(followed.kill.clone().drop_guard()) as Box<_>);
    let events = followed.log.paced_events(guard);
    feeding.feed(&handle.input, tasks);
    followed.follow(handle, [0; 3], timeout, tasks);
    Ok((Exec { id: request.id, first: 0, events, input, channel }, followed))
}

/// A program on its way: unless it succeeds, nothing is left of it.
struct Starting {
    handle: Option<TaskHandle>,
    journal: Option<ExecJournal>,
}

impl Starting {
    fn succeed(mut self) -> Result<(TaskHandle, Option<ExecJournal>)> {
        let journal = self.journal.take();
        self.handle.take().map(|handle| (handle, journal)).ok_or_else(|| lost(AgentError::Gone))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(handle) = &self.handle {
            handle.forget(true);
        }
        if let Some(journal) = &self.journal {
            journal.remove();
        }
    }
}

fn tag_of(exec: ExecId) -> Tag {
    exec.bits().to_be_bytes()
}

fn unwritten(error: std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::AlreadyExists => ErrorKind::Conflict,
        std::io::ErrorKind::StorageFull => ErrorKind::Capacity,
        _ => ErrorKind::Internal,
    };
    Error::new(kind, "the journal of the exec cannot be written").with_source(error)
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
        Some(TaskEvent::Started(walls)) => check_walls(&walls),
        Some(TaskEvent::Failed(failure)) => Err(start_failure(&failure)),
        Some(_) => Err(lost(AgentError::Protocol("an event before the start"))),
        None => Err(lost(AgentError::Gone)),
    }
}

fn check_walls(walls: &PayloadWalls) -> Result<()> {
    if walls.capabilities == 0 && walls.no_new_privs && walls.seccomp_mode == 2 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Isolation, "the program measured more rights than it should have")
        .with("measured", format!("{walls:?}")))
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
