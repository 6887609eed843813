//! Follows one program to its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use sandstorm_agent::protocol::{Ending, Stream as AgentStream, ToAgent};
use sandstorm_agent_client::program::check_walls;
use sandstorm_agent_client::{TaskEvent, TaskHandle};
use sandstorm_egress::Watch;
use sandstorm_jail::cgroup::Extent;
use sandstorm_provider::{EndCause, ExecEnd, ExecLog, ExecStatus, Usage};
use sandstorm_types::{LimitName, PerStream, Stream};
use tokio_util::sync::CancellationToken;

use super::blame::{Memory, Tally};
use super::clock::WallClock;
use super::space::Full;
use super::{Followed, Sent};
use crate::living::{Living, limit_of, limits_hit, usage_of};

/// How long an agent may take to report the end of a program that was killed.
const LAST_WORDS: Duration = Duration::from_secs(2);

pub(super) struct Follower {
    living: Arc<Living>,
    handle: TaskHandle,
    log: ExecLog,
    kill: CancellationToken,
    sent: Sent,
    began: Tally,
    /// What the network refused meanwhile.
    network: Watch,
    /// Bytes of each stream that are in the log already and come once more.
    known: [u64; 3],
    /// Set when an event could not be kept.
    broken: CancellationToken,
    /// Whether something waits for space where journals are.
    full: Full,
}

impl Follower {
    /// `known`: bytes of each stream that are in the log already and come once more.
    pub(super) fn new(followed: &Followed, handle: TaskHandle, known: [u64; 3], network: Watch) -> Self {
        Self {
            living: Arc::clone(&followed.living),
            handle,
            log: followed.log.clone(),
            kill: followed.kill.clone(),
            sent: followed.sent.clone(),
            began: followed.began,
            network,
            known,
            broken: CancellationToken::new(),
            full: Full::default(),
        }
    }

    pub(super) async fn run(mut self, clock: WallClock) {
        let time = clock.run_out(self.living.paused.subscribe());
        let flooded = self.log.flooded().clone();
        let (kill, broken) = (self.kill.clone(), self.broken.clone());
        let cause = tokio::select! {
            ended = self.follow() => {
                // It may have ended while its flood was on the way here.
                let limit = flooded.is_cancelled().then_some(EndCause::Limit(LimitName::Output));
                return self.close(ended, limit).await;
            }
            () = time => EndCause::Limit(LimitName::Wall),
            () = flooded.cancelled() => EndCause::Limit(LimitName::Output),
            () = kill.cancelled() => EndCause::Caller,
            () = broken.cancelled() => EndCause::Sandbox,
        };
        let _ = self.handle.input.say(ToAgent::Signal { id: self.handle.id, signal: 9 });
        let ended = tokio::time::timeout(LAST_WORDS, self.drain()).await.unwrap_or(None);
        if self.full.waits() {
            // What waits for space is let go of: the program was ended, and whoever ended it waits for that.
            self.log.miss();
        }
        self.close(ended, Some(cause)).await;
    }

    /// Passes output on until the program ends. `None`: its sandbox ended first.
    async fn follow(&mut self) -> Option<(Ending, Usage)> {
        while let Some(event) = self.handle.next().await {
            if let Some(ended) = self.keep(event).await {
                return Some(ended);
            }
            self.log.pace().await;
        }
        None
    }

    /// After a kill: what it still wrote is kept up to the limit, but nobody is waited for.
    async fn drain(&mut self) -> Option<(Ending, Usage)> {
        while let Some(event) = self.handle.next().await {
            if let Some(ended) = self.keep(event).await {
                return Some(ended);
            }
        }
        None
    }

    /// Keeps what an event brings. `Some`: the program ended.
    async fn keep(&mut self, event: TaskEvent) -> Option<(Ending, Usage)> {
        let kept = match event {
            TaskEvent::Output { stream, bytes } => {
                let bytes = self.unknown(stream, bytes);
                self.write(stream, bytes).await
            }
            TaskEvent::Exited { ending, usage } => return Some((ending, usage_from(usage))),
            // The program was not executed although its walls stood, such as a script without an interpreter.
            TaskEvent::Failed(failure) => {
                let message = self.handle.named.not_executed(failure.errno);
                self.write(AgentStream::Error, Bytes::from(message)).await
            }
            TaskEvent::Started(walls) => check_walls(&walls).map_err(io::Error::other),
            TaskEvent::Closed => Ok(()),
        };
        if let Err(error) = kept {
            self.fail(&error);
        }
        None
    }

    /// Writes output down. Without space for it the agent has no credit back meanwhile, and the program waits in its pipe.
    async fn write(&mut self, stream: AgentStream, bytes: Bytes) -> io::Result<()> {
        loop {
            let bytes = bytes.clone();
            let written = match stream {
                AgentStream::Output => self.log.write(Stream::Stdout, bytes),
                AgentStream::Error => self.log.write(Stream::Stderr, bytes),
                AgentStream::Side => self.log.write_channel(bytes),
            };
            match written {
                Err(error) if Full::is(&error) && self.is_kept() => self.full.wait(&error).await,
                written => {
                    self.full.over();
                    return written;
                }
            }
        }
    }

    /// Whether the journal is still wanted: it goes with its sandbox.
    fn is_kept(&self) -> bool {
        self.living.journals.as_ref().is_some_and(|dir| dir.exists())
    }

    /// The bytes without those that the log has already.
    fn unknown(&mut self, stream: AgentStream, mut bytes: Bytes) -> Bytes {
        let known = &mut self.known[stream as usize];
        let skipped = usize::try_from(*known).unwrap_or(usize::MAX).min(bytes.len());
        *known -= skipped as u64;
        bytes.advance(skipped);
        bytes
    }

    /// What happened cannot be kept: nobody may be told wrong, so the program ends and its listeners hear why.
    fn fail(&mut self, error: &io::Error) {
        tracing::error!(sandbox = %self.living.id, %error, "an exec cannot be followed any more");
        self.log.fail(format!("what the program did could not be kept: {error}"));
        self.broken.cancel();
    }

    /// Decides what ended it, from the kernel's counters, and closes the log.
    async fn close(mut self, ended: Option<(Ending, Usage)>, forced: Option<EndCause>) {
        let counters = self.living.counters(Extent::Verdict).await;
        self.living.blame.note(Tally::of(&counters));
        let jail_limit = match (&ended, forced) {
            // The sandbox went first: its launcher knows why.
            (None, None) => limit_of(self.living.end().await.cause),
            _ => self.living.ended.borrow().as_ref().and_then(|ended| limit_of(ended.cause)),
        };
        let mut limits_hit = limits_hit(&counters, self.began);
        let cause = match (forced, jail_limit, &ended) {
            (Some(forced), ..) => forced,
            (None, Some(limit), _) => EndCause::Limit(limit),
            (None, None, Some((Ending::Signal(signal), _))) if self.sent.has(*signal) => EndCause::Caller,
            (None, None, _) => {
                let ending = ended.as_ref().map(|(ending, _)| *ending);
                match self.living.blame.memory(self.began, Tally::of(&counters), ending) {
                    Memory::EndedIt => EndCause::Limit(LimitName::Memory),
                    memory => {
                        if memory == Memory::Touched {
                            limits_hit = limits_hit.with(LimitName::Memory);
                        }
                        if ended.is_some() { EndCause::Program } else { EndCause::Sandbox }
                    }
                }
            }
        };
        let mut usage = usage_of(&counters);
        if counters.cpu_time.is_none()
            && let Some((_, own)) = &ended
        {
            (usage.cpu, usage.peak_memory) = (own.cpu, own.peak_memory);
        }
        let end = ExecEnd {
            status: match ended {
                Some((Ending::Code(code), _)) => ExecStatus::Code(code),
                Some((Ending::Signal(signal), _)) => ExecStatus::Signal(signal),
                None => ExecStatus::Signal(9),
            },
            cause,
            limits_hit,
            denied: self.network.seen(),
            written: PerStream::default(),
            truncated: PerStream::default(),
            usage,
        };
        // Nobody hears of an end that a later host would not know.
        while let Err(error) = self.log.end(end.clone()) {
            if !Full::is(&error) || !self.is_kept() {
                self.fail(&error);
                break;
            }
            self.full.wait(&error).await;
        }
        // The end is kept here now; of a program that was killed the agent may not have seen it yet.
        self.handle.forget(ended.is_none());
    }
}

fn usage_from(usage: sandstorm_agent::protocol::TaskUsage) -> Usage {
    Usage {
        cpu: Duration::from_micros(usage.user_microseconds.saturating_add(usage.system_microseconds)),
        peak_memory: sandstorm_types::ByteSize::bytes(usage.peak_memory_bytes),
        ..Usage::default()
    }
}
