//! The walls of a pod: what has to stand before anything runs in it, and the report of what does.
//!
//! Both are read off the pod as the cluster has it. What others changed in it on the way there counts, and so does what a
//! server silently left out because it does not know of it.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, SecurityContext};
use sandstorm_provider::{Error, Result};
use sandstorm_types::{
    CapsWall, CgroupWall, ErrorKind, Isolation, LimitName, LimitsWall, MissingLimit, NetMode, NetWall,
    NetworkPolicy, ProcWall, SandboxSpec, SeccompWall, Walls,
};

use crate::config::{Config, Enforced};
use crate::pod::{AGENT_DIR, CARRIER, CONTAINER, user_of};
use crate::{marks, network, view};

/// Refuses a pod that is less than one of ours should be.
pub(crate) fn check(config: &Config, pod: &Pod) -> Result<()> {
    let lacking = match parts(pod) {
        _ if config.strict_filter && !marks::is_strict(&pod.metadata) => {
            Some("the strict filter of system calls")
        }
        Some((spec, container)) => missing(config, spec, container),
        None => Some("a container of the name `sandbox`"),
    };
    match lacking {
        Some(wall) => Err(Error::new(ErrorKind::Isolation, "the pod lacks a wall").with("wall", wall)),
        None => Ok(()),
    }
}

/// The container in which everything runs.
pub(crate) fn container(pod: &Pod) -> Option<&Container> {
    parts(pod).map(|(_, container)| container)
}

/// Whether what programs write lies in memory, which the kernel charges to their container.
pub(crate) fn writes_to_memory(pod: &Pod) -> bool {
    let Some((spec, container)) = parts(pod) else { return false };
    let in_memory = |name: &str| {
        let volume = spec.volumes.iter().flatten().find(|volume| volume.name == name);
        let medium = volume.and_then(|volume| volume.empty_dir.as_ref()?.medium.as_deref());
        medium == Some("Memory")
    };
    let mut mounts = container.volume_mounts.iter().flatten();
    mounts.any(|mount| mount.mount_path == "/workspace" && in_memory(&mount.name))
}

fn parts(pod: &Pod) -> Option<(&PodSpec, &Container)> {
    let spec = pod.spec.as_ref()?;
    Some((spec, spec.containers.iter().find(|container| container.name == CONTAINER)?))
}

fn missing(config: &Config, spec: &PodSpec, container: &Container) -> Option<&'static str> {
    let own = container.security_context.as_ref();
    let walls = [
        (spec.automount_service_account_token == Some(false), "automountServiceAccountToken: false"),
        (![spec.host_network, spec.host_pid, spec.host_ipc].contains(&Some(true)), "namespaces of its own"),
        (is_never_root(spec, own), "runAsNonRoot: true"),
        (
            own.and_then(|own| own.allow_privilege_escalation) == Some(false),
            "allowPrivilegeEscalation: false",
        ),
        (own.and_then(|own| own.privileged) != Some(true), "no privileges"),
        (keeps_no_capabilities(own), "capabilities.drop: [ALL]"),
        (seccomp(spec, own).is_some(), "seccompProfile"),
        (spec.volumes.iter().flatten().all(|volume| volume.host_path.is_none()), "no paths of the node"),
        (has_agent_of_its_own(spec, container), "the agent's program where nothing in the sandbox can write"),
        (spec.share_process_namespace != Some(true), "shareProcessNamespace: false"),
        (!config.user_namespaces || spec.host_users == Some(false), "hostUsers: false"),
        (
            config.runtime_class.is_none() || spec.runtime_class_name == config.runtime_class,
            "the configured runtimeClassName",
        ),
    ];
    walls.into_iter().find_map(|(stands, name)| (!stands).then_some(name))
}

/// Whether what is executed as the agent comes from the carrier, and the sandbox's container cannot change it.
fn has_agent_of_its_own(spec: &PodSpec, container: &Container) -> bool {
    let mounts = |container: &Container| container.volume_mounts.clone().unwrap_or_default();
    let here = mounts(container);
    let Some(agent) = here.iter().find(|mount| mount.mount_path == AGENT_DIR) else { return false };
    let carrier = spec.containers.iter().find(|container| container.name == CARRIER);
    let carries = carrier.is_some_and(|carrier| {
        mounts(carrier).iter().any(|mount| mount.mount_path == AGENT_DIR && mount.name == agent.name)
    });
    // Nor by another way to the same volume, nor by something on top of it.
    let closed =
        here.iter().filter(|mount| mount.name == agent.name).all(|mount| mount.read_only == Some(true));
    let within = |mount: &str| mount.strip_prefix(AGENT_DIR).is_some_and(|rest| rest.starts_with('/'));
    carries && closed && !here.iter().any(|mount| within(&mount.mount_path))
}

fn is_never_root(spec: &PodSpec, own: Option<&SecurityContext>) -> bool {
    let of_pod = spec.security_context.as_ref().and_then(|pod| pod.run_as_non_root);
    own.and_then(|own| own.run_as_non_root).or(of_pod) == Some(true)
}

fn keeps_no_capabilities(own: Option<&SecurityContext>) -> bool {
    let Some(capabilities) = own.and_then(|own| own.capabilities.as_ref()) else { return false };
    let added = capabilities.add.as_ref().is_some_and(|add| !add.is_empty());
    !added && capabilities.drop.iter().flatten().any(|name| name == "ALL")
}

/// The filter of system calls that the runtime puts in place.
fn seccomp<'a>(spec: &'a PodSpec, own: Option<&'a SecurityContext>) -> Option<&'a str> {
    let of_pod = spec.security_context.as_ref().and_then(|pod| pod.seccomp_profile.as_ref());
    let profile = own.and_then(|own| own.seccomp_profile.as_ref()).or(of_pod)?;
    (profile.type_ != "Unconfined").then_some(profile.type_.as_str())
}

/// The boundary that a pod has: what the operator says of the configured class, if this one is of it.
pub(crate) fn isolation(config: &Config, pod: &Pod) -> Isolation {
    let class = pod.spec.as_ref().and_then(|spec| spec.runtime_class_name.as_ref());
    match &config.runtime_class {
        Some(wanted) if class != Some(wanted) => Isolation::Container.min(config.isolation),
        _ => config.isolation,
    }
}

/// What stands around the programs of a pod. Nobody here can measure it: it is what the cluster took on to do.
pub(crate) fn report(config: &Config, wanted: &SandboxSpec, pod: &Pod) -> Walls {
    let mut walls = Walls { tier: isolation(config, pod), ..Walls::default() };
    let Some((spec, container)) = parts(pod) else {
        walls.miss("pod", "the cluster says nothing about it", None);
        return walls;
    };
    let own = container.security_context.as_ref();
    let is_own = |shared: Option<bool>| shared != Some(true);
    walls.userns = spec.host_users == Some(false);
    walls.uid_wall = has_own_user(pod, spec);
    walls.pidns = is_own(spec.host_pid) && is_own(spec.share_process_namespace);
    walls.netns = is_own(spec.host_network);
    walls.ipcns = is_own(spec.host_ipc);
    walls.mountns = true;
    walls.utsns = is_own(spec.host_network);
    // Each program measures its own sets before it starts, and one that finds anything in them is refused.
    let bounding = if keeps_no_capabilities(own) { 0 } else { u64::MAX };
    walls.caps = CapsWall { effective: 0, permitted: 0, bounding };
    walls.nnp = own.and_then(|own| own.allow_privilege_escalation) == Some(false);
    let filter = if marks::is_strict(&pod.metadata) { "payload-strict" } else { "payload" };
    walls.seccomp = seccomp(spec, own)
        .map(|profile| SeccompWall { profile: format!("{profile}, {filter}"), hash: String::new() });
    walls.cgroup =
        CgroupWall { controllers: vec!["cpu".to_owned(), "memory".to_owned()], ..CgroupWall::default() };
    walls.proc = if walls.pidns { ProcWall::Own } else { ProcWall::Host };
    walls.limits = limits(config, wanted);
    walls.net = net(&wanted.network);
    miss_what_is_not_there(config, wanted, &mut walls);
    walls
}

/// Whether its user is one that no other sandbox has. Pods of a pool have the one of their template.
fn has_own_user(pod: &Pod, spec: &PodSpec) -> bool {
    let user = spec.security_context.as_ref().and_then(|context| context.run_as_user);
    marks::sandbox_of(&pod.metadata).is_some_and(|id| user == Some(user_of(id)))
}

fn limits(config: &Config, wanted: &SandboxSpec) -> LimitsWall {
    // Whether the others count is the operator's word, which makes them no better.
    let enforced = view::exact_limits(config);
    let asked = |name: &LimitName| *name != LimitName::CpuTime || wanted.limits.cpu_time.is_some();
    let (held, loose): (Vec<_>, Vec<_>) =
        LimitName::ALL.into_iter().filter(asked).partition(|name| enforced.contains(*name));
    let missing = loose.into_iter().map(|name| {
        let reason = match name {
            LimitName::Memory => "programs may also have what the unfilled writable space leaves",
            LimitName::Inodes => "only the room that files take is limited",
            LimitName::Processes => "it holds, but it is not told when a program meets it",
            LimitName::CpuTime => "each process by itself, and all of them by what the pod counts",
            LimitName::Disk => "the node ends a pod that wrote too much some time later",
            _ => "the cluster does not limit it",
        };
        MissingLimit { name, reason: reason.to_owned() }
    });
    LimitsWall { missing: missing.collect(), enforced: held }
}

fn net(network: &NetworkPolicy) -> NetWall {
    let mode = match network {
        NetworkPolicy::None => NetMode::None,
        NetworkPolicy::Allow(_) => NetMode::Allow,
        NetworkPolicy::Filter(filter) if filter.denies_everything() => NetMode::Allow,
        NetworkPolicy::Open | NetworkPolicy::Filter(_) => NetMode::Open,
    };
    NetWall { mode, policy_hash: blake3::hash(network.canonical().as_bytes()).to_hex().to_string() }
}

fn miss_what_is_not_there(config: &Config, wanted: &SandboxSpec, walls: &mut Walls) {
    let whose = "the container runtime of the node decides, and does not tell";
    walls.miss("cgroupns", whose, None);
    walls.miss("pivot", whose, None);
    walls.miss("landlock", "programs of pods are not given rules of Landlock", None);
    walls.miss("cgroup", "which version the node has is not told", None);
    if !walls.userns {
        let fix = "set `user_namespaces: true` where the cluster has them";
        walls.miss("userns", "users of the pod are users of the node", Some(fix));
    }
    if !walls.uid_wall {
        let fix = "give pods of the pool user namespaces";
        walls.miss("uid_wall", "other pods may have the same user", Some(fix));
    }
    if network::tried(config.enforced, &wanted.network).is_some() {
        return;
    }
    let kept = match config.enforced {
        Enforced::Tried(_) | Enforced::Declared => {
            "that the cluster's network keeps to policies was declared, not tried"
        }
        Enforced::No => "nobody says that the cluster's network keeps to policies",
    };
    walls.miss("net", kept, Some("set `network_policies` to a private address that other pods can reach"));
}

#[cfg(test)]
mod tests;
