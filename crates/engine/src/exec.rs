//! Programs in a sandbox: started, followed, ended, and found again by the next host.

mod adopt;
mod attended;
mod before;
mod blame;
mod clock;
mod follower;
mod guest;
pub(crate) mod space;
mod start;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use sandstorm_agent::protocol::{Tag, ToAgent};
use sandstorm_agent_client::program::terminal_size;
use sandstorm_agent_client::{AgentError, TaskHandle, TaskInput, lost};
use sandstorm_egress::Watch;
use sandstorm_provider::{ChannelInput, Error, ExecInput, ExecLog, ExecSignal, Result, Tails};
use sandstorm_types::{ErrorKind, ExecId, SandboxId};
use tokio_util::sync::CancellationToken;

pub(crate) use adopt::{Found, Waiting};
pub(crate) use blame::{Blame, Tally};
use clock::WallClock;
use follower::Follower;
pub(crate) use start::{start, start_copy};

/// What the tasks that follow programs are called.
const FOLLOWING: &str = "exec";

/// Of all programs of this process that have ended, whatever sandboxes they were in: memory is the process's.
static TAILS: Tails = Tails::new(16 << 20);

use crate::journal::ExecJournal;
use crate::living::Living;

/// A program that the engine follows.
#[derive(Debug, Clone)]
pub(crate) struct Followed {
    pub(crate) sandbox: SandboxId,
    pub(crate) log: ExecLog,
    pub(crate) journal: Option<ExecJournal>,
    pub(crate) input: ExecInput,
    pub(crate) channel: Option<ChannelInput>,
    /// The guest interpreter that runs it, by its number in the sandbox.
    pub(crate) guest: Option<u32>,
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
        (began, guest): (Tally, Option<u32>),
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
            guest,
            living: Arc::clone(living),
            began,
            task: Arc::default(),
            kill: CancellationToken::new(),
            sent: Sent::default(),
            ended_at: Arc::default(),
        }
    }

    /// Follows it to its end. `known`: bytes of each stream that are in the log and come once more. `network`: what was
    /// refused since it began.
    fn follow(
        &self,
        handle: TaskHandle,
        known: [u64; 3],
        left: Duration,
        network: Watch,
    ) -> impl Future<Output = ()> + Send + use<> {
        // Set once: each program is followed once.
        let _ = self.task.set(handle.input.clone());
        let clock = WallClock { left, journal: self.journal.clone() };
        let follower = Follower::new(self, handle, known, network);
        let (ended_at, log) = (Arc::clone(&self.ended_at), self.log.clone());
        async move {
            follower.run(clock).await;
            ended_at.store(now(), Ordering::Relaxed);
            TAILS.keep(&log);
        }
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

/// Seconds by a clock that nobody sets. There is room before its beginning for what ended under an earlier host.
fn now() -> u64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    (1 << 32) + BEGAN.elapsed().as_secs()
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

fn tag_of(exec: ExecId) -> Tag {
    exec.bits().to_be_bytes()
}
