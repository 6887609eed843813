//! A sandbox as they show it and as we do, and what is asked of them for one that we want.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use sandstorm_client::{NewSandbox, Sandbox as Theirs};
use sandstorm_provider::{CreateOptions, Metered, Result, Sandbox};
use sandstorm_types::{
    ByteSize, Labels, LimitName, Limits, LimitsPatch, NetworkPolicy, OnEnd, Phase, SandboxId, SandboxSpec,
    State, Template, Timestamp, Unmet, Walls,
};
use serde::Deserialize;
use serde_json::Value;

use super::client::Far;
use super::config::Owner;
use super::error::{plain, senseless};
use super::places::Place;

/// Labels that we add.
const OUR_LABELS: usize = 2;
const MOST_LABELS: usize = 64;

impl Far {
    /// Every reason why such a sandbox cannot be had there.
    pub(super) fn unmet(&self, spec: &SandboxSpec) -> Vec<Unmet> {
        let mut unmet = self.can.unmet(spec);
        let (_, lowered) = spec.limits.clamped(&self.limits.ceiling);
        // Sizes are among the capabilities. A processor time that nobody asks for is theirs to set.
        let told = [LimitName::Memory, LimitName::Disk, LimitName::Cpus];
        let asked = |name: &LimitName| *name != LimitName::CpuTime || spec.limits.cpu_time.is_some();
        unmet.extend(lowered.into_iter().filter(|name| !told.contains(name)).filter(asked).map(|name| {
            let why = "more is asked for than the server allows";
            Unmet::new(name.as_str(), "more than its ceiling", "its ceiling", why)
        }));
        let room = MOST_LABELS - OUR_LABELS;
        let labels = spec.labels.iter().count();
        if labels > room {
            let why = "two labels are needed to find the sandbox again";
            unmet.push(Unmet::new("labels", labels.to_string(), format!("at most {room}"), why));
        }
        unmet
    }

    /// What is asked of them.
    pub(super) fn wanted(&self, spec: &SandboxSpec, opts: &CreateOptions) -> NewSandbox {
        let pauses = self.can.pause && !opts.ephemeral;
        NewSandbox {
            template: Some(spec.template.clone()),
            limits: all(&spec.limits),
            env: spec.env.clone(),
            network: Some(spec.network.clone()),
            labels: self.labels(&spec.labels, opts.id),
            lifetime: Some(self.lease),
            on_end: Some(if pauses { OnEnd::Pause } else { OnEnd::Delete }),
            idle_timeout: Some(self.lease),
            user: Some(spec.user),
            // A server that is older than the word need not know it.
            space: Some(spec.space).filter(|space| !space.is_memory()),
            enforcement: Some(spec.enforcement),
            requirements: spec.requirements.clone(),
            // The choice was made here; a server that has a choice of its own makes it by its own rules.
            routing: None,
        }
    }

    /// The caller's labels and ours. Ports are opened by the server that the caller asked, and not by this one as well.
    pub(super) fn labels(&self, labels: &Labels, id: SandboxId) -> BTreeMap<String, String> {
        let theirs = labels.iter().filter(|(key, _)| *key != Labels::PUBLIC_PORTS);
        let mut all: BTreeMap<_, _> = theirs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        all.extend([self.owner.label(), (self.owner.id_key(), id.to_string())]);
        all
    }

    /// The sandbox as we show it.
    pub(super) fn seen(&self, ours: SandboxId, theirs: &Theirs) -> Result<Sandbox> {
        let labels = theirs.labels.iter().filter(|(key, _)| !self.is_our_label(key));
        let labels: BTreeMap<_, _> = labels.map(|(key, value)| (key.clone(), value.clone())).collect();
        let walls = theirs.more.get("walls").filter(|walls| !walls.is_null());
        Ok(Sandbox {
            id: ours,
            state: state(theirs),
            template: part::<Template>(theirs, "template", "the template cannot be read")?,
            limits: part::<Limits>(theirs, "limits", "the limits cannot be read")?,
            labels: labels.try_into().map_err(|_| senseless("the labels cannot be read"))?,
            isolation: self.can.isolation,
            walls: walls.and_then(|walls| serde_json::from_value::<Walls>(walls.clone()).ok()),
            created_at: moment(theirs.created_at),
            // Theirs is the end of our lease.
            expires_at: None,
            region: self.info.region.clone(),
            placement: None,
        })
    }

    fn is_our_label(&self, key: &str) -> bool {
        key == self.owner.label().0 || key == self.owner.id_key()
    }

    /// Whether what they made is what was asked for.
    pub(super) fn check_made(&self, spec: &SandboxSpec, theirs: &Theirs) -> Result<()> {
        if !matches!(theirs.state, Phase::Ready | Phase::Running) {
            return Err(senseless("the new sandbox is not ready"));
        }
        let limits = part::<Limits>(theirs, "limits", "the limits cannot be read")?;
        // A processor time that nobody asked for is theirs to set.
        let cpu_time = spec.limits.cpu_time.or(limits.cpu_time);
        if limits != (Limits { cpu_time, ..spec.limits }) {
            return Err(senseless("the new sandbox has other limits than asked for"));
        }
        if part::<NetworkPolicy>(theirs, "network", "the network policy cannot be read")? != spec.network {
            return Err(senseless("the new sandbox has another network policy than asked for"));
        }
        Ok(())
    }
}

/// The place of a sandbox that they show.
pub(super) fn place(ours: SandboxId, theirs: &Theirs) -> Result<Place> {
    let limits = part::<Limits>(theirs, "limits", "the limits cannot be read")?;
    Ok(Place::new(ours, theirs.id, limits.output))
}

/// What we call a sandbox of theirs; `None` if it is not ours.
pub(super) fn our_id(owner: &Owner, theirs: &Theirs) -> Option<SandboxId> {
    let (key, value) = owner.label();
    let marked = theirs.labels.get(&key) == Some(&value);
    theirs.labels.get(&owner.id_key()).filter(|_| marked).and_then(|id| id.parse().ok())
}

/// What they counted for a sandbox that has ended. `None`: they do not tell.
pub(super) fn metered(theirs: &Theirs) -> Option<Metered> {
    #[derive(Deserialize)]
    struct Counted {
        wall_ms: u64,
        cpu_ms: u64,
        peak_memory_bytes: u64,
    }
    let counted = theirs.more.get("metered").filter(|counted| !counted.is_null())?;
    let Counted { wall_ms, cpu_ms, peak_memory_bytes } = Counted::deserialize(counted).ok()?;
    Some(Metered {
        wall: Duration::from_millis(wall_ms),
        cpu: Duration::from_millis(cpu_ms),
        peak_memory: ByteSize::bytes(peak_memory_bytes),
    })
}

/// Whether it is on its way out or over.
pub(super) fn is_gone(phase: Phase) -> bool {
    matches!(phase, Phase::Terminating | Phase::Terminated)
}

fn state(theirs: &Theirs) -> State {
    match theirs.state {
        Phase::Creating => State::Creating,
        Phase::Ready | Phase::Running => State::Ready,
        Phase::Pausing => State::Pausing,
        Phase::Paused => State::Paused,
        Phase::Resuming => State::Resuming,
        Phase::Terminating => State::Terminating,
        Phase::Terminated => State::Terminated,
        Phase::Failed => State::Failed { reason: reason(theirs.reason.as_deref()) },
    }
}

/// Why something ended, in their words.
pub(super) fn reason(told: Option<&str>) -> String {
    told.map_or_else(|| "the server gives no reason".to_owned(), plain)
}

/// One field of a sandbox.
pub(super) fn part<T: serde::de::DeserializeOwned>(
    theirs: &Theirs,
    key: &str,
    what: &'static str,
) -> Result<T> {
    let value = theirs.more.get(key).cloned().unwrap_or(Value::Null);
    serde_json::from_value(value).map_err(|error| senseless(what).with_source(error))
}

fn all(limits: &Limits) -> LimitsPatch {
    LimitsPatch {
        wall: Some(limits.wall),
        cpu_time: limits.cpu_time,
        cpus: Some(limits.cpus),
        memory: Some(limits.memory),
        processes: Some(limits.processes),
        open_files: Some(limits.open_files),
        disk: Some(limits.disk),
        inodes: Some(limits.inodes),
        output: Some(limits.output),
    }
}

pub(super) fn moment(at: Timestamp) -> SystemTime {
    let millis = u64::try_from(at.millis()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sandstorm_client::{Client, ServerLimits};
    use sandstorm_provider::{Events, ProviderInfo, Tasks, UnderWay};
    use sandstorm_types::Capabilities;

    use super::*;

    fn far() -> Far {
        let limits = Limits::default();
        Far {
            client: Client::new("http://127.0.0.1:1", None).unwrap(),
            info: ProviderInfo { name: "far".to_owned(), kind: "sandstorm".to_owned(), region: None },
            owner: "me".parse().unwrap(),
            can: Capabilities::default(),
            limits: ServerLimits { default: limits, ceiling: limits, lifetime_max: Duration::from_secs(60) },
            lease: Duration::from_secs(60),
            places: Arc::default(),
            events: Events::default(),
            tasks: Tasks::default(),
            saving: UnderWay::default(),
        }
    }

    #[test]
    fn public_ports_are_opened_here_and_not_there_as_well() {
        let labels = BTreeMap::from([("team".to_owned(), "one".to_owned())]);
        let labels = Labels::try_from(labels).unwrap().with_public_ports(true).unwrap();
        let spec = SandboxSpec { labels, ..SandboxSpec::default() };
        let asked = far().wanted(&spec, &CreateOptions::default()).labels;
        assert_eq!(asked.get("team").map(String::as_str), Some("one"), "{asked:?}");
        assert!(!asked.contains_key(Labels::PUBLIC_PORTS), "{asked:?}");
    }
}
