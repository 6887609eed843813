//! A sandbox that this process has to do with.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use sandstorm_agent_client::AgentClient;
use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, SandboxId, SandboxSpec};
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::counters::{self, Counters};
use crate::join;
use crate::verdict::Ended;

#[derive(Debug)]
pub(crate) struct Living {
    pub(crate) id: SandboxId,
    pub(crate) spec: SandboxSpec,
    /// The name of its pod.
    pub(crate) pod: String,
    /// Whether programs get the strict filter of system calls.
    strict_filter: bool,
    /// The connection of the moment. Made when it is needed, and again when it was lost.
    agent: tokio::sync::Mutex<Option<AgentClient>>,
    /// Set while we end it ourselves.
    ending: AtomicBool,
    ended: watch::Sender<Option<Ended>>,
    /// Its pod at the end: nobody else has it by then.
    last: Mutex<Option<Arc<Pod>>>,
    /// How many processes the kernel had ended for memory when that was last looked at.
    memory_kills: AtomicU64,
    /// Microseconds of processor time that had been used before the first program: to bring the agent there takes some.
    cpu_before: AtomicU64,
}

impl Living {
    pub(crate) fn new(id: SandboxId, spec: SandboxSpec, pod: String, strict_filter: bool) -> Arc<Self> {
        Arc::new(Self {
            id,
            spec,
            pod,
            strict_filter,
            agent: tokio::sync::Mutex::default(),
            ending: AtomicBool::new(false),
            ended: watch::Sender::new(None),
            last: Mutex::default(),
            memory_kills: AtomicU64::new(0),
            cpu_before: AtomicU64::new(0),
        })
    }

    /// Its agent. Dropping the future leaves the connection to whoever comes next.
    pub(crate) async fn agent(&self, cluster: &Cluster) -> Result<AgentClient> {
        let mut present = self.agent.lock().await;
        if let Some(agent) = present.as_ref().filter(|agent| agent.lost().now_or_never().is_none()) {
            return Ok(agent.clone());
        }
        if let Some(ended) = self.ended() {
            return Err(Error::new(ErrorKind::Conflict, "the sandbox has ended")
                .with("sandbox", self.id)
                .with("reason", ended.reason));
        }
        let joined = join::join(cluster, &self.pod, &self.spec, self.strict_filter).await;
        let agent = joined.map_err(|e| e.with("sandbox", self.id))?;
        Ok(present.insert(agent).clone())
    }

    /// From here on processor time counts, where it is limited. After a restart it counts from the beginning of the pod.
    pub(crate) async fn begin_counting(&self, cluster: &Cluster) -> Result<()> {
        if self.spec.limits.cpu_time.is_some() {
            let used = counters::read(&self.agent(cluster).await?).await?.cpu();
            self.cpu_before.store(u64::try_from(used.as_micros()).unwrap_or(u64::MAX), Ordering::Release);
        }
        Ok(())
    }

    /// How much of its processor time is left; `None`: it is not limited.
    pub(crate) fn cpu_left(&self, counted: &Counters) -> Option<Duration> {
        let before = Duration::from_micros(self.cpu_before.load(Ordering::Acquire));
        let used = counted.cpu().saturating_sub(before);
        self.spec.limits.cpu_time.map(|budget| budget.saturating_sub(used))
    }

    pub(crate) fn set_ending(&self, ending: bool) {
        self.ending.store(ending, Ordering::Release);
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Its pod as it ended.
    pub(crate) fn see(&self, pod: Arc<Pod>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(pod);
    }

    pub(crate) fn last_seen(&self) -> Option<Arc<Pod>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It ended. `false`: that is known.
    pub(crate) fn end(&self, ended: Ended) -> bool {
        self.ended.send_if_modified(|known| {
            let new = known.is_none();
            known.get_or_insert(ended);
            new
        })
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.ended.borrow().clone()
    }

    /// Waits until it has ended.
    pub(crate) async fn over(&self) -> Ended {
        let mut ended = self.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone().unwrap_or_else(|| Ended::because("the pod is gone")),
            Err(_) => Ended::because("the pod is gone"),
        }
    }

    /// Takes note of a reading; `true`: the kernel ended something for memory since the one before.
    pub(crate) fn note_memory_kills(&self, count: u64) -> bool {
        self.memory_kills.fetch_max(count, Ordering::AcqRel) < count
    }
}
