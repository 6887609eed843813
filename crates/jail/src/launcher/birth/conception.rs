//! The launcher's work before PID 1 may build: groups, ids, sockets, the clone, the release.

use std::borrow::Cow;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::fs::{AtFlags, Gid, Uid};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Rlimit;

use super::{Ways, init_token, step};
use crate::cgroup::Leaf;
use crate::error::{JailError, doing};
use crate::identity::Identity;
use crate::instance::private_directory;
use crate::launcher::Workshop;
use crate::launcher::capture::{Child, Entrance};
use crate::launcher::introduction::rlimits;
use crate::launcher::molds::Beginning;
use crate::launcher::networks::Namespace;
use crate::launcher::rooms::Rooms;
use crate::launcher::watch::{Serial, Token, Watched, Watcher};
use crate::pid1::{Plan, Trees};
use crate::root::{Empty, Whole};
use crate::spec::{JailSpec, Network, Strictness};
use crate::step::Failed;
use crate::{devices, packet, root};

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
    let (limits, space) = (&spec.limits, spec.root.scratch_memory());
    let leaf = workshop.spares.take(&workshop.hierarchies, &parent, &spec.name, limits, space);
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
    scratch: Option<OwnedFd>,
) -> Result<Delivered, JailError> {
    let config = &workshop.config;
    private_directory(&config.runtime_dir)?;
    let identity = Identity::reserve(config.ids, &config.runtime_dir, &mut workshop.next_ids)?;
    if let Some(scratch) = &scratch {
        give_away(scratch, &identity)?;
    }
    let (sync, their_sync) = packet::pair().map_err(doing("make a socket"))?;
    let (control, their_control) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(doing("make a socket"))?;
    let (door, their_door) = packet::pair().map_err(doing("make a socket"))?;
    let entrances = leaf.map_or(Ok(&[][..]), Leaf::entrances)?;
    let (below, whole) = match &mut workshop.mounts {
        Some(mounts) => mounts.below(&spec.root),
        None => (Vec::new(), Whole::all()),
    };
    let mut spread = Cow::Borrowed(spec);
    if !below.is_empty() {
        root::nested::add(&mut spread.to_mut().root, below);
    }
    let spec = &*spread;
    let trees = trees(workshop, spec, whole)?;
    let network = ready_network(workshop, spec);
    let beginning = Beginning {
        sync: their_sync.as_fd(),
        group: leaf.and_then(Leaf::birthplace),
        network: network.as_ref().map(|network| network.as_fd()),
    };
    let (pid, pidfd) = workshop.molds.cast(beginning)?;
    // The newborn has its own, by whose closing it is known to be gone.
    drop(their_sync);
    let limit = workshop.descriptor_limit;
    let ways = ways(Child { pid, pidfd: pidfd.as_fd() }, spec, leaf, network.as_ref(), limit);
    let released = ways.and_then(|ways| {
        identity.apply(pid)?;
        let plan = Plan {
            spec: Cow::Borrowed(spec),
            init_id: identity.init_id(),
            drop_groups: identity.may_drop_groups(),
            entrances: entrances.len(),
            has_scratch: scratch.is_some(),
            trees: trees.source(),
            network_is_ready: network.is_some(),
        };
        let sockets = [&their_control, &their_door].into_iter().chain(entrances).map(AsFd::as_fd);
        let scratch = scratch.as_ref().map(AsFd::as_fd);
        let given: Vec<_> = sockets.chain(scratch).chain(trees.descriptors()).collect();
        packet::send(sync.as_fd(), &plan, &given).map_err(doing("release PID 1"))?;
        Ok(ways)
    });
    drop((their_control, their_door, scratch, trees));
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

/// Lets PID 1 write to the root of a file system that the launcher made for it.
fn give_away(scratch: &OwnedFd, identity: &Identity) -> Result<(), JailError> {
    let (uid, gid) = identity.init_owner();
    let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    rustix::fs::chownat(scratch, "", owner.0, owner.1, AtFlags::EMPTY_PATH)
        .map_err(doing("give the writable space to its jail"))
}

/// A network with nothing but loopback that is up already, where the launcher may have such. One that cannot be made so
/// is made with the jail.
fn ready_network(workshop: &mut Workshop, spec: &JailSpec) -> Option<Rc<Namespace>> {
    let networks = workshop.networks.as_mut().filter(|_| spec.network == Network::Loopback)?;
    networks.take().ok().map(Rc::new)
}

/// Before it is released it is a copy of the mold, whose namespaces may be looked at; the agent's may not.
fn ways(
    child: Child<'_>,
    spec: &JailSpec,
    leaf: Option<&Leaf>,
    network: Option<&Rc<Namespace>>,
    descriptors: Rlimit,
) -> Result<Ways, JailError> {
    if !spec.joinable {
        return Ok(Ways::Network(Entrance::of(child, network).ok()));
    }
    let limits = rlimits(spec, leaf.is_some(), descriptors);
    Rooms::of(child, network, limits)
        .map(Box::new)
        .map(Ways::Rooms)
        .map_err(doing("open the jail's namespaces"))
}

/// Root takes the trees itself. In PID 1 it would be root of another user namespace, to which directories of the server's
/// user are closed.
fn trees<'a>(workshop: &mut Workshop, spec: &'a JailSpec, whole: Whole) -> Result<Trees<'a>, JailError> {
    let follow_links = workshop.sources.is_none();
    if !workshop.may_mount {
        return Ok(Trees::ToTake { follow_links, whole });
    }
    let prepared = workshop.prepared.view(&spec.root, follow_links, &whole);
    let empty = workshop.empty.as_ref().map_or(Empty::Missing, |empty| Empty::At(empty.as_fd()));
    let taken = match prepared {
        Some(root) => root::take_later(&spec.root, follow_links, &whole, empty)
            .map(|later| Trees::Prepared { root, later }),
        None => root::take(&spec.root, follow_links, &whole, empty).map(|trees| {
            // Where this process may make none, PID 1 shows the host's and says so.
            Trees::Taken { trees, devices: devices::own().ok() }
        }),
    };
    taken.map_err(|Failed { step: name, errno }| step(&name, errno))
}
