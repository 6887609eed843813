//! Follows one program to its end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sandstorm_agent::protocol::{Ending, Stream as AgentStream, TaskUsage, ToAgent};
use sandstorm_agent_client::{TaskEvent, TaskHandle};
use sandstorm_provider::{EndCause, ExecEnd, ExecStatus, Usage};
use sandstorm_types::{ByteSize, LimitName, LimitSet, PerStream, Stream};

use crate::cluster::Cluster;
use crate::counters;
use crate::exec::Running;
use crate::living::Living;

/// How long an agent may take to report the end of a program that was killed.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long the cluster may take to say that a pod ended whose agent is gone.
const NEWS: Duration = Duration::from_secs(10);

/// How often, at most and at least, it is looked at how much processor time is left.
const SHORTEST_LOOK: Duration = Duration::from_millis(200);
const LONGEST_LOOK: Duration = Duration::from_secs(3600);

pub(crate) struct Follower {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) living: Arc<Living>,
    pub(crate) running: Arc<Running>,
    pub(crate) handle: TaskHandle,
}

impl Follower {
    pub(crate) async fn run(mut self, timeout: Duration) {
        let flooded = self.running.log.flooded().clone();
        let kill = self.running.kill.clone();
        let used_up = cpu_used_up(Arc::clone(&self.cluster), Arc::clone(&self.living));
        let forced = tokio::select! {
            ended = self.follow() => {
                // It may have ended while its flood was on the way here.
                let limit = flooded.is_cancelled().then_some(EndCause::Limit(LimitName::Output));
                return self.close(ended, limit).await;
            }
            () = tokio::time::sleep(timeout) => EndCause::Limit(LimitName::Wall),
            () = used_up => EndCause::Limit(LimitName::CpuTime),
            () = flooded.cancelled() => EndCause::Limit(LimitName::Output),
            () = kill.cancelled() => EndCause::Caller,
        };
        let _ = self.handle.input.say(ToAgent::Signal { id: self.handle.id, signal: 9 });
        let ended = tokio::time::timeout(LAST_WORDS, self.drain()).await.unwrap_or(None);
        self.close(ended, Some(forced)).await;
    }

    /// Passes output on until the program ends. `None`: the agent went first.
    async fn follow(&mut self) -> Option<(Ending, Usage)> {
        while let Some(event) = self.handle.next().await {
            if let Some(ended) = self.keep(event) {
                return Some(ended);
            }
            self.running.log.pace().await;
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

    fn keep(&self, event: TaskEvent) -> Option<(Ending, Usage)> {
        let log = &self.running.log;
        let kept = match event {
            TaskEvent::Output { stream: AgentStream::Output, bytes } => log.write(Stream::Stdout, bytes),
            TaskEvent::Output { stream: AgentStream::Error, bytes } => log.write(Stream::Stderr, bytes),
            TaskEvent::Output { stream: AgentStream::Side, bytes } => log.write_channel(bytes),
            TaskEvent::Exited { ending, usage } => return Some((ending, used(usage))),
            // The program was not executed although its walls stood, such as a script without an interpreter.
            TaskEvent::Failed(failure) => {
                let message = self.handle.named.not_executed(failure.errno);
                log.write(Stream::Stderr, Bytes::from(message))
            }
            TaskEvent::Started(_) | TaskEvent::Closed => Ok(()),
        };
        if let Err(error) = kept {
            log.fail(format!("what the program did could not be kept: {error}"));
        }
        None
    }

    /// Decides what ended it, and closes the log.
    async fn close(self, ended: Option<(Ending, Usage)>, forced: Option<EndCause>) {
        let ending = ended.map(|(ending, _)| ending);
        let cause = match (forced, ending) {
            (Some(forced), _) => Some(forced),
            (None, Some(ending)) => Some(self.cause(ending).await),
            (None, None) => self.cause_of_loss().await,
        };
        match cause {
            Some(cause) => {
                let (status, usage) = match ended {
                    Some((Ending::Code(code), usage)) => (ExecStatus::Code(code), usage),
                    Some((Ending::Signal(signal), usage)) => (ExecStatus::Signal(signal), usage),
                    None => (ExecStatus::Signal(9), Usage::default()),
                };
                let end = ExecEnd {
                    status,
                    cause,
                    limits_hit: LimitSet::EMPTY,
                    denied: Vec::new(),
                    written: PerStream::default(),
                    truncated: PerStream::default(),
                    usage,
                };
                if let Err(error) = self.running.log.end(end) {
                    self.running.log.fail(format!("the end of the program could not be kept: {error}"));
                }
            }
            None => self.running.log.fail("the connection to the sandbox was lost"),
        }
        self.running.note_end();
        self.handle.forget(ended.is_none());
    }

    async fn cause(&self, ending: Ending) -> EndCause {
        match ending {
            Ending::Code(0) => EndCause::Program,
            Ending::Signal(signal) if self.running.sent.has(signal) => EndCause::Caller,
            // A shell tells the end of its child as a code.
            Ending::Signal(_) | Ending::Code(_) => match self.limit_that_was_met().await {
                Some(limit) => EndCause::Limit(limit),
                None => EndCause::Program,
            },
        }
    }

    /// What the kernel may have ended a program for, by what it counted.
    async fn limit_that_was_met(&self) -> Option<LimitName> {
        let agent = self.living.agent(&self.cluster).await.ok()?;
        let read = counters::read(&agent).await.ok()?;
        if self.living.note_memory_kills(read.memory_kills) {
            return Some(LimitName::Memory);
        }
        (self.living.cpu_left(&read) == Some(Duration::ZERO)).then_some(LimitName::CpuTime)
    }

    /// The agent is gone. If the pod is too, it says why; else nobody knows what became of the program.
    async fn cause_of_loss(&self) -> Option<EndCause> {
        let ended = tokio::time::timeout(NEWS, self.living.over()).await.ok()?;
        Some(ended.limit.map_or(EndCause::Sandbox, EndCause::Limit))
    }
}

/// Waits until the processor time of a sandbox is used up; where it is not limited, for ever.
async fn cpu_used_up(cluster: Arc<Cluster>, living: Arc<Living>) {
    if living.spec.limits.cpu_time.is_none() {
        return std::future::pending().await;
    }
    let cpus = f64::from(living.spec.limits.cpus.milli().max(1)) / 1000.0;
    loop {
        let read = match living.agent(&cluster).await {
            Ok(agent) => counters::read(&agent).await,
            Err(error) => Err(error),
        };
        let left = read.ok().and_then(|read| living.cpu_left(&read));
        if left == Some(Duration::ZERO) {
            return;
        }
        // What is left cannot be used up faster than all processors of the pod allow.
        let soonest = left.map_or(SHORTEST_LOOK, |left| left.min(LONGEST_LOOK).div_f64(cpus));
        tokio::time::sleep(soonest.clamp(SHORTEST_LOOK, LONGEST_LOOK)).await;
    }
}

fn used(usage: TaskUsage) -> Usage {
    Usage {
        cpu: Duration::from_micros(usage.user_microseconds.saturating_add(usage.system_microseconds)),
        peak_memory: ByteSize::bytes(usage.peak_memory_bytes),
        ..Usage::default()
    }
}
