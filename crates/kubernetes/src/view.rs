//! A pod as a sandbox.

use std::time::SystemTime;

use k8s_openapi::api::core::v1::Pod;
use sandstorm_provider::Sandbox;
use sandstorm_types::{LimitName, LimitSet, SandboxId, SandboxSpec, State};

use crate::config::{Config, Scratch};
use crate::verdict::{Standing, standing};
use crate::{marks, walls};

/// The sandbox that a pod is; `None`: what it says about itself cannot be read.
pub(crate) fn sandbox(config: &Config, id: SandboxId, pod: &Pod) -> Option<Sandbox> {
    let spec = marks::spec_of(&pod.metadata)?;
    let walls = walls::report(config, &spec, pod);
    Some(Sandbox {
        id,
        state: state(pod),
        template: spec.template,
        limits: spec.limits,
        labels: spec.labels,
        isolation: walls::isolation(config, pod),
        walls: Some(walls),
        created_at: created_at(pod),
        expires_at: marks::expiry_of(&pod.metadata),
        region: config.region.clone(),
        placement: None,
    })
}

pub(crate) fn created_at(pod: &Pod) -> SystemTime {
    let created = pod.metadata.creation_timestamp.as_ref();
    created.map_or(SystemTime::UNIX_EPOCH, |time| SystemTime::from(time.0))
}

fn state(pod: &Pod) -> State {
    match standing(pod) {
        Standing::Coming | Standing::NoRoom(_) => State::Creating,
        Standing::Ready => State::Ready,
        Standing::Going => State::Terminating,
        Standing::Hopeless(error) => State::Failed { reason: error.to_string() },
        Standing::Over(ended) => State::Failed { reason: ended.reason },
    }
}

/// The limits that hold as they do locally.
pub(crate) fn exact_limits(config: &Config) -> LimitSet {
    let always = [LimitName::Wall, LimitName::Cpus, LimitName::OpenFiles, LimitName::Output];
    // In memory both have one limit together, and the file system alone keeps to its part of it.
    let by_scratch = match config.scratch {
        Scratch::Memory => LimitName::Disk,
        Scratch::Disk => LimitName::Memory,
    };
    always.into_iter().chain([by_scratch]).collect()
}

/// The limits that count: those that hold only roughly where the operator lets them.
pub(crate) fn limits(config: &Config) -> LimitSet {
    let loose =
        [LimitName::Memory, LimitName::Disk, LimitName::Processes, LimitName::Inodes, LimitName::CpuTime];
    let loose = loose.into_iter().filter(|_| config.loose_limits);
    loose.fold(exact_limits(config), LimitSet::with)
}

/// Whether two sandboxes differ only in what is not the pod's.
pub(crate) fn fits(pool: &crate::config::WarmPool, spec: &SandboxSpec) -> bool {
    let limits = &spec.limits;
    spec.template == sandstorm_types::Template::Host
        && (limits.cpus, limits.memory, limits.disk) == (pool.cpus, pool.memory, pool.disk)
        && spec.network == pool.network
}
