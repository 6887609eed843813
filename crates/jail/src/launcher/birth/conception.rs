//! The launcher's work before PID 1 may build: groups, ids, sockets, the clone, the release.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sandstorm_sys::fork::{Namespaces, Side};

use super::{Ways, init_token, step};
use crate::cgroup::Leaf;
use crate::error::{JailError, doing};
use crate::identity::Identity;
use crate::instance::private_directory;
use crate::launcher::Workshop;
use crate::launcher::capture::{Child, Entrance};
use crate::launcher::introduction::rlimits;
use crate::launcher::networks::Namespace;
use crate::launcher::rooms::Rooms;
use crate::launcher::watch::{Serial, Token, Watched, Watcher};
use crate::pid1::{self, Setup, Trees};
use crate::spec::{JailSpec, Network, Strictness};
use crate::step::Failed;
use crate::{packet, root};

/// A PID 1 that was released.
pub(super) struct Delivered {
    pub(super) pid: i32,
    pub(super) pidfd: Watched,
    pub(super) identity: Identity,
    /// On which it says how far it is.
    pub(super) sync: Watched,
    pub(super) control: OwnedFd,
    pub(super) door: OwnedFd,
    pub(super) ways: Ways,
    /// Its network, if another jail can have it afterwards.
    pub(super) network: Option<Rc<Namespace>>,
}

/// The groups, or none where this user can make none.
pub(super) fn make_leaf(workshop: &mut Workshop, spec: &JailSpec) -> Result<Option<Leaf>, JailError> {
    // Without privilege there is no lease to take and nothing to sweep: namespaces end with their processes.
    if !workshop.may_group() {
        return match spec.strictness {
            Strictness::BestEffort => Ok(None),
            Strictness::Strict => Err(JailError::Limit {
                limit: "memory",
                reason: "no control group can be made by this user; run as root, or in a delegated group"
                    .to_owned(),
            }),
        };
    }
    let parent = workshop.group_parent()?;
    let leaf = workshop.spares.take(&workshop.hierarchies, &parent, &spec.name, &spec.limits);
    match (spec.strictness, leaf.missing().first()) {
        (Strictness::Strict, Some((limit, reason))) => {
            let refused = JailError::Limit { limit, reason: reason.clone() };
            leaf.remove();
            Err(refused)
        }
        _ => Ok(Some(leaf)),
    }
}

/// Clones PID 1, gives it its ids and releases it.
pub(super) fn deliver(
    workshop: &mut Workshop,
    watcher: &Watcher,
    serial: Serial,
    spec: &JailSpec,
    leaf: Option<&Leaf>,
) -> Result<Delivered, JailError> {
    private_directory(&workshop.config.runtime_dir)?;
    let identity = Identity::reserve(workshop.config.ids, &workshop.config.runtime_dir)?;
    let (sync, their_sync) = packet::pair().map_err(doing("make a socket"))?;
    let (control, their_control) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(doing("make a socket"))?;
    let (door, their_door) = packet::pair().map_err(doing("make a socket"))?;
    let entrances = leaf.map_or(Ok(&[][..]), Leaf::entrances)?;
    let trees = trees(workshop, spec)?;
    let network = ready_network(workshop, spec);
    let birthplace = leaf.and_then(Leaf::birthplace);
    let side = match (&network, &workshop.networks) {
        (Some(network), Some(networks)) => networks.bear(network.as_fd(), birthplace),
        _ => sandstorm_sys::fork::clone(Namespaces::JAIL, birthplace),
    };
    let side = side.map_err(no_namespaces)?;
    let (pid, pidfd) = match side {
        Side::Parent { pid, pidfd } => (pid, pidfd),
        Side::Child => {
            drop((sync, control, door));
            let agent = rustix::io::fcntl_dupfd_cloexec(&workshop.agent, 10);
            let Ok(agent) = agent else { sandstorm_sys::fork::exit_now(125) };
            pid1::become_agent(Setup {
                spec,
                init_id: identity.init_id(),
                drop_groups: identity.may_drop_groups(),
                sync: their_sync,
                control: their_control,
                door: their_door,
                agent,
                cgroup_entrances: entrances,
                filter: &workshop.agent_filter,
                trees,
                network_is_ready: network.is_some(),
            })
        }
    };
    drop((their_sync, their_control, their_door, trees));
    let ways = ways(Child { pid, pidfd: pidfd.as_fd() }, spec, leaf, network.as_ref());
    let released = ways.and_then(|ways| release(pid, &identity, workshop.memory_rank, &sync).map(|()| ways));
    let released = released.and_then(|ways| {
        let pidfd = watcher.readable(pidfd, init_token(serial)).map_err(doing("wait for PID 1"))?;
        let sync = watcher.readable(sync, Token::Newborn(serial)).map_err(doing("wait for PID 1"))?;
        Ok(Delivered { pid, pidfd, identity, sync, control, door, ways, network })
    });
    if released.is_err() {
        // Every socket that it could be heard on is closed by now, and it ends by itself wherever it is.
        let _ = sandstorm_sys::process::reap(pid);
    }
    released
}

fn release(pid: i32, identity: &Identity, memory_rank: i32, sync: &OwnedFd) -> Result<(), JailError> {
    rank_for_memory(pid, memory_rank);
    identity.apply(pid)?;
    rustix::io::write(sync, b"1").map(drop).map_err(doing("release PID 1"))
}

/// A network with nothing but loopback that is up already, where the launcher may have such. One that cannot be made so
/// is made with the jail.
fn ready_network(workshop: &mut Workshop, spec: &JailSpec) -> Option<Rc<Namespace>> {
    let networks = workshop.networks.as_mut().filter(|_| spec.network == Network::Loopback)?;
    networks.take().ok().map(Rc::new)
}

/// Before it is released it is a copy of this process, whose namespaces may be looked at; the agent's may not.
fn ways(
    child: Child<'_>,
    spec: &JailSpec,
    leaf: Option<&Leaf>,
    network: Option<&Rc<Namespace>>,
) -> Result<Ways, JailError> {
    if !spec.joinable {
        return Ok(Ways::Network(Entrance::of(child, network).ok()));
    }
    let limits = rlimits(spec, leaf.is_some());
    Rooms::of(child, network, limits)
        .map(Box::new)
        .map(Ways::Rooms)
        .map_err(doing("open the jail's namespaces"))
}

/// Root takes the trees itself. In PID 1 it would be root of another user namespace, to which directories of the server's
/// user are closed.
fn trees<'a>(workshop: &mut Workshop, spec: &'a JailSpec) -> Result<Trees<'a>, JailError> {
    let follow_links = workshop.sources.is_none();
    if !workshop.may_mount {
        return Ok(Trees::ToTake { follow_links });
    }
    let taken = match workshop.prepared.copy(&spec.root, follow_links) {
        Some(root) => root::take_later(&spec.root, follow_links).map(|later| Trees::Prepared { root, later }),
        None => root::take(&spec.root, follow_links).map(Trees::Taken),
    };
    taken.map_err(|Failed { step: name, errno }| step(&name, errno))
}

/// When memory runs out, a payload goes before its PID 1: it raises its own score. Nobody inside can have a score below
/// the ordinary one, even if this process has, and so hide behind processes of the host: who may set it at all sets the
/// lowest that can be gone back to as well. A host that forbids it loses a preference and nothing else.
fn rank_for_memory(pid: i32, own: i32) {
    let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), own.max(0).to_string());
}

/// Says which knob keeps user namespaces from us.
fn no_namespaces(error: io::Error) -> JailError {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let hint = if read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        Some("set the sysctl kernel.unprivileged_userns_clone to 1".to_owned())
    } else if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        Some(
            "set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0, or give sandstorm a profile"
                .to_owned(),
        )
    } else if read("/proc/sys/user/max_user_namespaces") == "0" {
        Some("raise the sysctl user.max_user_namespaces".to_owned())
    } else {
        None
    };
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::StorageFull => JailError::UserNamespaces(hint, error),
        _ if error.raw_os_error() == Some(Errno::USERS.raw_os_error()) => {
            JailError::UserNamespaces(hint, error)
        }
        _ => JailError::Host { doing: "clone PID 1".to_owned(), source: error },
    }
}
