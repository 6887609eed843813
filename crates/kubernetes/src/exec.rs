//! Programs in a pod: started, followed, steered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sandstorm_agent::protocol::{Task, ToAgent};
use sandstorm_agent_client::program::{self, check_walls, start_failure, terminal_size};
use sandstorm_agent_client::{AgentError, TaskEvent, TaskHandle, TaskInput, lost, of_request};
use sandstorm_provider::{
    AttachFrom, ChannelInput, Error, Exec, ExecInput, ExecLog, ExecRequest, ExecSignal, Keep, Result,
};
use sandstorm_types::{ErrorKind, ExecId, SandboxId};
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::follower::Follower;
use crate::living::Living;

/// A program that is followed, or was.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) sandbox: SandboxId,
    pub(crate) log: ExecLog,
    input: ExecInput,
    channel: Option<ChannelInput>,
    task: TaskInput,
    pub(crate) kill: CancellationToken,
    pub(crate) sent: Sent,
    /// Milliseconds after `began` at which it ended; 0 while it has not.
    ended_at: AtomicU64,
    began: Instant,
}

impl Running {
    pub(crate) fn ended_for(&self) -> Option<Duration> {
        match self.ended_at.load(Ordering::Acquire) {
            0 => None,
            at => Some(self.began.elapsed().saturating_sub(Duration::from_millis(at))),
        }
    }

    pub(crate) fn note_end(&self) {
        let at = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.ended_at.store(at.max(1), Ordering::Release);
    }

    /// Bytes that its log has, about.
    pub(crate) fn kept_bytes(&self) -> u64 {
        let written = self.log.written();
        written.stdout.saturating_add(written.stderr)
    }

    pub(crate) fn listen(&self, id: ExecId, from: AttachFrom) -> Exec {
        let (first, events) = self.log.events(from);
        Exec { id, first, events, input: self.input.clone(), channel: self.channel.clone() }
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
            other => {
                let number = other.number().unwrap_or_default();
                self.sent.note(number);
                self.task.say(ToAgent::Signal { id, signal: number }).map_err(lost)
            }
        }
    }
}

/// Which signals callers sent: one of them ending the program was the caller's doing.
#[derive(Debug, Default)]
pub(crate) struct Sent(AtomicU64);

impl Sent {
    fn note(&self, signal: i32) {
        self.0.fetch_or(Self::bit(signal), Ordering::Relaxed);
    }

    pub(crate) fn has(&self, signal: i32) -> bool {
        self.0.load(Ordering::Relaxed) & Self::bit(signal) != 0
    }

    fn bit(signal: i32) -> u64 {
        u32::try_from(signal).ok().and_then(|n| 1u64.checked_shl(n)).unwrap_or(0)
    }
}

impl Cluster {
    /// Starts a program. Dropping the future before it resolves ends what was started.
    pub(crate) async fn exec(self: &Arc<Self>, id: &SandboxId, mut request: ExecRequest) -> Result<Exec> {
        let living = self.living(id).await?;
        let reserved = self.places.reserve(request.id)?;
        let agent = living.agent(self).await?;
        program::lay_out_large(&agent, &mut request).await?;
        let program = program::program(&living.spec, &mut request);
        let limit = request.output.unwrap_or(living.spec.limits.output);
        let (keep, streamed) = (Keep::of(&request, limit), request.is_streamed());
        let timeout = request.timeout.unwrap_or(living.spec.limits.wall);
        let (input, channel, mut feeding) = of_request(request.stdin, request.channel);
        let mut handle = feeding.start(&agent, Task::Program(program), None).map_err(lost)?;
        wait_for_start(&mut handle).await?;
        feeding.started();
        let running = Arc::new(Running {
            sandbox: *id,
            log: ExecLog::new(keep),
            input: input.clone(),
            channel: channel.clone(),
            task: handle.input.clone(),
            kill: CancellationToken::new(),
            sent: Sent::default(),
            ended_at: AtomicU64::new(0),
            began: Instant::now(),
        });
        if streamed {
            running.log.pass_on_beyond();
        }
        // A foreground program ends when nobody listens any more.
        let guard = (!request.background).then(|| Box::new(running.kill.clone().drop_guard()) as Box<_>);
        let events = running.log.paced_events(guard);
        feeding.feed(&handle.input, &self.tasks);
        let exec = Exec { id: request.id, first: 0, events, input, channel };
        self.start_following(living, Arc::clone(&running), handle, timeout);
        reserved.fill(running);
        Ok(exec)
    }

    fn start_following(
        self: &Arc<Self>,
        living: Arc<Living>,
        running: Arc<Running>,
        handle: TaskHandle,
        timeout: Duration,
    ) {
        let follower = Follower { cluster: Arc::clone(self), living, running, handle };
        self.tasks.start("exec", follower.run(timeout));
    }
}

async fn wait_for_start(handle: &mut TaskHandle) -> Result<()> {
    let event = handle.next().await;
    match event {
        Some(TaskEvent::Started(walls)) => check_walls(&walls),
        Some(TaskEvent::Failed(failure)) => Err(start_failure(&failure, &handle.named)),
        Some(_) => Err(lost(AgentError::Protocol("an event before the start"))),
        None => Err(lost(AgentError::Gone)),
    }
}
