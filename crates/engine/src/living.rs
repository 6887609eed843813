//! A sandbox that lives in a jail.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use sandstorm_agent_client::AgentClient;
use sandstorm_jail::OnMemory;
use sandstorm_jail::cgroup::{Counters, Extent};
use sandstorm_jail::launcher::{EndCause as JailEnd, Ended, ZygoteConfig};
use sandstorm_provider::{Error, Result, Sandbox, Usage};
use sandstorm_types::{
    ByteSize, Conflict, ErrorKind, LimitName, LimitSet, NetWall, SandboxId, SandboxSpec, Space, State, Step,
    TenantId, Walls,
};
use tokio::sync::watch;

use crate::disk_space::DiskPromise;
use crate::exec::{Blame, Tally};
use crate::guest::WaitingGuest;
use crate::launcher::{LauncherClient, LauncherError};
use crate::meter::JailMeter;
use crate::network::Egress;
use crate::pool::Zygotes;

/// How long no guest is asked for after one was refused: each time somebody would wait for the refusal.
const NO_GUESTS_FOR: Duration = Duration::from_millis(500);

/// How guest interpreters come into a jail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joinable {
    /// The zygote that they are forks of, by its name at the launcher.
    pub(crate) zygote: String,
    /// Whose: guests of one owner never share a zygote with those of another.
    pub(crate) owner: String,
    /// The program that they are, as it stands in an argument vector.
    pub(crate) interpreter: PathBuf,
}

impl Joinable {
    pub(crate) fn of(zygote: &ZygoteConfig, owner: String) -> Self {
        Self { zygote: zygote.name.clone(), owner, interpreter: zygote.interpreter.clone() }
    }
}

/// One sandbox of this engine.
#[derive(Debug)]
pub(crate) struct Living {
    pub(crate) id: SandboxId,
    /// Nothing of the host's is mounted where its programs write.
    pub(crate) own_places: bool,
    /// The jail's name at the launcher. One that was made ahead has had it before anybody wanted this sandbox.
    pub(crate) jail: String,
    /// How guest interpreters come into it, as soon as there is a zygote for them.
    joinable: OnceLock<Joinable>,
    /// Whose guests may be put into it; `None`: no guests.
    pub(crate) owner: Option<String>,
    /// Which of them are to be had at all.
    pub(crate) zygotes: Arc<Zygotes>,
    /// Guests that were put there ahead and wait for a program.
    guests: Mutex<Vec<WaitingGuest>>,
    /// Its interpreters are copied one at a time: each stands still for that.
    pub(crate) copying: tokio::sync::Mutex<()>,
    /// When the launcher last would not put a guest into it.
    refused_guest: Mutex<Option<Instant>>,
    pub(crate) spec: SandboxSpec,
    pub(crate) agent: AgentClient,
    pub(crate) launcher: LauncherClient,
    /// How its counters are read; `None`: by asking the launcher.
    meter: Mutex<Option<JailMeter>>,
    /// What it is promised of this machine's disk, while it lives.
    disk: Mutex<Option<DiskPromise>>,
    walls: Mutex<Walls>,
    pub(crate) created_at: SystemTime,
    /// Where its execs are written down, if anybody may take it over.
    pub(crate) journals: Option<PathBuf>,
    state: Mutex<State>,
    /// Whether it stands still.
    pub(crate) paused: watch::Sender<bool>,
    /// Whether its agent has told what it held; one that is taken over while it stands still has not.
    met: watch::Sender<bool>,
    /// Whether the launcher was told to end it.
    killed: AtomicBool,
    /// Set once the launcher said that nothing is left.
    pub(crate) ended: watch::Sender<Option<Ended>>,
    /// The way out. It goes with the sandbox.
    pub(crate) egress: Egress,
    pub(crate) blame: Blame,
}

/// What a sandbox is made from.
#[derive(Debug)]
pub(crate) struct Birth {
    pub(crate) id: SandboxId,
    pub(crate) own_places: bool,
    pub(crate) jail: String,
    pub(crate) joinable: Option<Joinable>,
    pub(crate) owner: Option<String>,
    pub(crate) zygotes: Arc<Zygotes>,
    pub(crate) guests: Vec<WaitingGuest>,
    pub(crate) spec: SandboxSpec,
    pub(crate) agent: AgentClient,
    pub(crate) launcher: LauncherClient,
    pub(crate) meter: Option<JailMeter>,
    pub(crate) disk: Option<DiskPromise>,
    pub(crate) walls: Walls,
    pub(crate) created_at: SystemTime,
    pub(crate) journals: Option<PathBuf>,
    pub(crate) paused: bool,
    pub(crate) egress: Egress,
    pub(crate) on_memory: OnMemory,
}

impl Living {
    pub(crate) fn new(birth: Birth) -> Arc<Self> {
        let living = Arc::new(Self {
            id: birth.id,
            own_places: birth.own_places,
            jail: birth.jail,
            joinable: birth.joinable.map_or_else(OnceLock::new, OnceLock::from),
            owner: birth.owner,
            zygotes: birth.zygotes,
            guests: Mutex::new(birth.guests),
            copying: tokio::sync::Mutex::default(),
            refused_guest: Mutex::default(),
            spec: birth.spec,
            agent: birth.agent,
            launcher: birth.launcher,
            meter: Mutex::new(birth.meter),
            disk: Mutex::new(birth.disk),
            walls: Mutex::new(birth.walls),
            created_at: birth.created_at,
            journals: birth.journals,
            state: Mutex::new(State::Creating),
            paused: watch::Sender::new(birth.paused),
            met: watch::Sender::new(true),
            killed: AtomicBool::new(false),
            ended: watch::Sender::new(None),
            egress: birth.egress,
            blame: Blame::new(birth.on_memory),
        });
        living.step(Step::Created);
        if birth.paused {
            living.step(Step::Pause);
            living.step(Step::Paused);
        }
        living
    }

    /// Has the launcher end it; its end is told later. Once is enough.
    pub(crate) async fn kill(&self) -> std::result::Result<(), LauncherError> {
        if !self.killed.load(Ordering::Acquire) {
            self.launcher.kill(&self.jail).await?;
            self.killed.store(true, Ordering::Release);
        }
        Ok(())
    }

    pub(crate) fn set_met(&self, met: bool) {
        self.met.send_replace(met);
    }

    /// Waits until its agent has told what it held.
    pub(crate) async fn met(&self) {
        let mut met = self.met.subscribe();
        let _ = met.wait_for(|met| *met).await;
    }

    pub(crate) fn walls(&self) -> Walls {
        self.walls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The policy of the network changed.
    pub(crate) fn set_net_wall(&self, net: NetWall) {
        self.walls.lock().unwrap_or_else(PoisonError::into_inner).net = net;
    }

    /// The jail's name at the launcher.
    pub(crate) fn name(&self) -> String {
        self.jail.clone()
    }

    /// How guest interpreters come into it. A sandbox that was made while no zygote worked takes the first one that works
    /// again: what begins there then is no different from what begins elsewhere.
    pub(crate) fn joinable(&self) -> Option<&Joinable> {
        if let (None, Some(owner)) = (self.joinable.get(), &self.owner) {
            let later = self.zygotes.for_anything(owner).map(|zygote| Joinable::of(zygote, owner.clone()));
            later.map(|joinable| self.joinable.set(joinable));
        }
        self.joinable.get()
    }

    /// Takes a guest that still waits.
    pub(crate) fn take_guest(&self) -> Option<WaitingGuest> {
        let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| guests.pop()).find(|guest| self.agent.take_guest(guest.number))
    }

    /// The launcher would not put a guest into it.
    pub(crate) fn note_refused_guest(&self) {
        *self.refused_guest.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether a guest can be asked for again.
    pub(crate) fn may_ask_for_guest(&self) -> bool {
        let refused = self.refused_guest.lock().unwrap_or_else(PoisonError::into_inner);
        refused.is_none_or(|at| at.elapsed() >= NO_GUESTS_FOR)
    }

    /// Ends the guests that wait: they would count as processes of whatever else runs here.
    pub(crate) fn dismiss_guests(&self) {
        while let Some(guest) = self.take_guest() {
            self.agent.dismiss(guest.number);
        }
    }

    pub(crate) fn describe(&self, region: Option<&str>) -> Sandbox {
        let walls = self.walls();
        let expires_at = self.created_at.checked_add(self.spec.lifetime.after);
        Sandbox {
            id: self.id,
            state: self.state.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            template: self.spec.template.clone(),
            limits: self.spec.limits,
            labels: self.spec.labels.clone(),
            isolation: walls.tier,
            walls: Some(walls),
            created_at: self.created_at,
            expires_at,
            region: region.map(str::to_owned),
            placement: None,
        }
    }

    /// Takes a step that a caller asked for; one that the state does not allow is a conflict.
    pub(crate) fn try_step(&self, step: Step) -> Result<()> {
        if self.step(step.clone()) {
            return Ok(());
        }
        let from = self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Err(Error::new(ErrorKind::Conflict, "the sandbox cannot change that way")
            .with("sandbox", self.id)
            .with_source(Conflict { from, step }))
    }

    /// Takes a step of the state machine, with one event for each that is taken. A step that it does not allow changes
    /// nothing and gives `false`.
    pub(crate) fn step(&self, step: Step) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(next) = state.after(step) else { return false };
        let reason = if let State::Failed { reason } = &next { Some(reason.as_str()) } else { None };
        tracing::info!(event = "sandbox_state", sandbox = %self.id, from = %state, to = %next, reason, "sandbox state changed");
        *state = next;
        true
    }

    /// Its agent, if there is anybody who would answer.
    pub(crate) fn reach(&self) -> Result<&AgentClient> {
        self.check_ready().map(|()| &self.agent)
    }

    pub(crate) fn check_ready(&self) -> Result<()> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_ready() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Conflict, "the sandbox is not ready")
            .with("sandbox", self.id)
            .with("state", &*state))
    }

    /// Reads what the kernel counted, where this process can. The launcher puts an end of PID 1 down to memory by when it
    /// saw the kernel end something: what is new of that, it has to be asked for.
    pub(crate) fn read_counters(&self, extent: Extent) -> Option<Counters> {
        let meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
        let read = meter.as_ref()?.read(extent)?;
        (Tally::of(&read).memory_kills <= self.blame.known().memory_kills).then_some(read)
    }

    /// It is about to end: nothing of it is held here any more, so that its file system goes with it.
    pub(crate) fn stop_reading(&self) {
        *self.meter.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// It has ended: others may have its part of the disk.
    pub(crate) fn give_disk_back(&self) {
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whose part of the disk it has.
    pub(crate) fn disk_tenant(&self) -> Option<TenantId> {
        let disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        disk.as_ref().and_then(DiskPromise::tenant)
    }

    /// What it has written of what it is promised of this machine's disk.
    pub(crate) fn disk_used(&self) -> u64 {
        if self.spec.space != Space::Disk {
            return 0;
        }
        let meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
        let used = meter.as_ref().and_then(JailMeter::disk_used).unwrap_or_default();
        used.min(self.spec.limits.disk.as_u64())
    }

    /// What the kernel counted, from the living jail or from its last reading.
    pub(crate) async fn counters(&self, extent: Extent) -> Counters {
        if let Some(ended) = &*self.ended.borrow() {
            return ended.counters.clone();
        }
        if let Some(read) = self.read_counters(extent) {
            return read;
        }
        match self.launcher.count(&self.name()).await {
            Ok(Some(counters)) => counters,
            Ok(None) => self.end().await.counters,
            Err(_) => Counters::default(),
        }
    }

    /// Waits until nothing is left of the jail.
    pub(crate) async fn end(&self) -> Ended {
        let mut ended = self.ended.subscribe();
        match ended.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone().unwrap_or_else(|| gone(&self.name())),
            Err(_) => gone(&self.name()),
        }
    }
}

/// The end of a jail of which nobody can tell more.
pub(crate) fn gone(name: &str) -> Ended {
    Ended { name: name.to_owned(), cause: JailEnd::Gone, counters: Counters::default(), stuck: Vec::new() }
}

/// Which limit, if any, ended a jail.
pub(crate) fn limit_of(cause: JailEnd) -> Option<LimitName> {
    match cause {
        JailEnd::Memory => Some(LimitName::Memory),
        JailEnd::CpuTime => Some(LimitName::CpuTime),
        JailEnd::Lifetime => Some(LimitName::Wall),
        JailEnd::Gone | JailEnd::Asked => None,
    }
}

/// Limits that were touched since a program `began` without ending anything. Memory is not among them.
pub(crate) fn limits_hit(counters: &Counters, began: Tally) -> LimitSet {
    [
        (counters.disk_full, LimitName::Disk),
        (counters.inodes_full, LimitName::Inodes),
        (Tally::of(counters).process_refusals > began.process_refusals, LimitName::Processes),
    ]
    .into_iter()
    .filter_map(|(hit, name)| hit.then_some(name))
    .collect()
}

pub(crate) fn usage_of(counters: &Counters) -> Usage {
    Usage {
        cpu: counters.cpu_time.unwrap_or_default(),
        memory: ByteSize::bytes(counters.memory_bytes.unwrap_or(0)),
        // PID 1 is ours.
        processes: u32::try_from(counters.processes.unwrap_or(0).saturating_sub(1)).unwrap_or(u32::MAX),
        peak_memory: ByteSize::bytes(counters.peak_memory_bytes.unwrap_or(0)),
        disk: ByteSize::bytes(counters.disk_used_bytes.unwrap_or(0)),
        inodes: counters.inodes_used.unwrap_or(0),
    }
}

#[cfg(test)]
pub(crate) mod tests;
