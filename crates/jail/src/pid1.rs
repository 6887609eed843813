//! The child's side: from a copy of the launcher to the agent, one irreversible step after the other.
//!
//! The order is the design; `ARCHITECTURE.md` lists it with the reasons. A step that fails is sent to the launcher by
//! name, and the process ends. Nothing of the user's is anywhere near yet.

use std::convert::Infallible;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use rustix::process::Signal;
use sandstorm_sys::filter::Instruction;
use serde::{Deserialize, Serialize};

use crate::report::Measured;
use crate::root::Taken;
use crate::spec::{JailSpec, Network, PAYLOAD_ID};
use crate::step::{Failed, Step};
use crate::{landlock, network, packet, privileges, root};

/// What PID 1 tells the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    /// The jail stands. Comes with the descriptor of the writable file system; that of the cgroup namespace and, where there
    /// is Landlock, of its rules if the jail is joinable; then those of a captured network.
    Built(Measured),
    Failed {
        step: String,
        errno: i32,
    },
}

/// What the launcher prepared for PID 1.
pub(crate) struct Setup<'a> {
    pub(crate) spec: &'a JailSpec,
    /// Ids of PID 1 inside.
    pub(crate) init_id: u32,
    pub(crate) drop_groups: bool,
    pub(crate) sync: OwnedFd,
    pub(crate) control: OwnedFd,
    pub(crate) door: OwnedFd,
    pub(crate) agent: OwnedFd,
    pub(crate) cgroup_entrances: &'a [OwnedFd],
    pub(crate) filter: &'a [Instruction],
    /// Where the trees come from.
    pub(crate) trees: Trees<'a>,
    /// It was born in a network with nothing but loopback, which is up, and over which it has no rights.
    pub(crate) network_is_ready: bool,
}

/// Who takes the trees of the host.
pub(crate) enum Trees<'a> {
    /// The launcher did.
    Taken(Taken<'a>),
    /// PID 1 has to.
    ToTake { follow_links: bool },
    /// The launcher has a whole root with all of them but those below writable places.
    Prepared { root: OwnedFd, later: Taken<'a> },
}

/// Builds the jail around this process and becomes the agent. Never returns.
pub(crate) fn become_agent(setup: Setup<'_>) -> ! {
    let sync = match rustix::io::fcntl_dupfd_cloexec(&setup.sync, 10) {
        Ok(sync) => sync,
        Err(_) => sandstorm_sys::fork::exit_now(125),
    };
    let Err(Failed { step, errno }) = build(setup, &sync);
    let _ = packet::send(sync.as_fd(), &Word::Failed { step, errno: errno.raw_os_error() }, &[]);
    sandstorm_sys::fork::exit_now(125)
}

fn build(setup: Setup<'_>, sync: &OwnedFd) -> Result<Infallible, Failed> {
    let Setup {
        spec,
        init_id,
        drop_groups,
        sync: waiting,
        control,
        door,
        agent,
        cgroup_entrances,
        filter,
        trees,
        network_is_ready,
    } = setup;
    wait_for_release(&waiting)?;
    drop(waiting);
    // Helps when the launcher dies; the pid namespace and the control socket are what is relied on.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("parent death signal")?;
    sandstorm_sys::process::reset_signals();
    rustix::process::setsid().step("session")?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).step("private mounts")?;
    let (prepared, trees) = match trees {
        Trees::Taken(trees) => (None, trees),
        Trees::ToTake { follow_links } => (None, root::take(&spec.root, follow_links)?),
        Trees::Prepared { root, later } => (Some(root), later),
    };
    take_ids(init_id, drop_groups)?;
    join_cgroups(cgroup_entrances)?;
    sandstorm_sys::process::new_session_keyring().step("keyring")?;
    let payload = (PAYLOAD_ID, PAYLOAD_ID);
    let scratch = match prepared {
        Some(root) => root::enter_prepared(&spec.root, &root, trees, payload)?,
        None => root::enter(&spec.root, trees, payload)?,
    };
    rustix::system::sethostname(spec.hostname.as_bytes()).step("host name")?;
    let captured = if network_is_ready { Vec::new() } else { set_up_network(spec.network)? };

    let groups = match spec.joinable {
        true => {
            Some(std::fs::File::open("/proc/self/ns/cgroup").map(OwnedFd::from).step("cgroup namespace")?)
        }
        false => None,
    };
    let rules = landlock::enter(&spec.root, spec.joinable)?;
    let landlock = rules.is_some();
    privileges::reduce()?;
    // The credential changes above cleared it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("parent death signal")?;
    let ways_in = groups.into_iter().chain(rules.filter(|_| spec.joinable));
    let handed = [scratch].into_iter().chain(ways_in).chain(captured).map(out_of_the_way);
    let handed = handed.collect::<Result<Vec<_>, _>>()?;
    let agent = settle_descriptors(control, door, agent)?;
    sandstorm_sys::filter::install(filter).step("seccomp filter")?;

    let measured = Measured::take(landlock).step("measure the walls")?;
    let descriptors: Vec<_> = handed.iter().map(AsFd::as_fd).collect();
    packet::send(sync.as_fd(), &Word::Built(measured), &descriptors).step("report")?;
    let argv = [CString::from(c"sandstorm-agent")];
    Err(sandstorm_sys::exec::execute_descriptor(agent.as_fd(), &argv, &[])).step("execute the agent")
}

/// Nothing happens before the launcher has written the id maps. It closes the socket instead when that failed.
fn wait_for_release(sync: &OwnedFd) -> Result<(), Failed> {
    let mut byte = [0];
    match rustix::io::read(sync, &mut byte) {
        Ok(1) => Ok(()),
        Ok(_) => sandstorm_sys::fork::exit_now(125),
        Err(e) => Err(e).step("release"),
    }
}

fn take_ids(id: u32, drop_groups: bool) -> Result<(), Failed> {
    use rustix::process::{Gid, Uid};
    if drop_groups {
        rustix::thread::set_thread_groups(&[]).step("groups")?;
    }
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    rustix::thread::set_thread_res_gid(gid, gid, gid).step("group id")?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).step("user id")
}

/// Moving oneself through a descriptor that root opened takes microseconds. Only then may the cgroup namespace be
/// made: its root is wherever the process is.
fn join_cgroups(entrances: &[OwnedFd]) -> Result<(), Failed> {
    for entrance in entrances {
        rustix::io::write(entrance, b"0").step("cgroup")?;
    }
    sandstorm_sys::process::unshare_cgroup_namespace().step("cgroup namespace")
}

fn set_up_network(network: Network) -> Result<Vec<OwnedFd>, Failed> {
    let failed = |e: network::NetworkError| Failed { step: format!("network: {e}"), errno: Errno::IO };
    match network {
        Network::Loopback => network::loopback_up().map(|()| Vec::new()).map_err(failed),
        Network::Captured => network::capture_all().map(network::Captured::into_fds).map_err(failed),
    }
}

/// A copy at a number that nothing is going to be put at.
fn out_of_the_way(descriptor: OwnedFd) -> Result<OwnedFd, Failed> {
    rustix::io::fcntl_dupfd_cloexec(&descriptor, 10).step("descriptors")
}

/// The control socket and the door at their numbers, nothing at 0 to 2 but the jail's own null device, and everything else closed by
/// the exec.
fn settle_descriptors(control: OwnedFd, door: OwnedFd, agent: OwnedFd) -> Result<OwnedFd, Failed> {
    use rustix::fs::{Mode, OFlags};
    let (control, door) = (out_of_the_way(control)?, out_of_the_way(door)?);
    let agent = out_of_the_way(agent)?;
    let null =
        rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).step("null device")?;
    for number in 0..3 {
        sandstorm_sys::process::place_descriptor(null.as_fd(), number).step("standard streams")?;
    }
    for (socket, number) in
        [(&control, sandstorm_agent::CONTROL_DESCRIPTOR), (&door, sandstorm_agent::DOOR_DESCRIPTOR)]
    {
        sandstorm_sys::process::place_descriptor(socket.as_fd(), number).step("sockets")?;
    }
    sandstorm_sys::process::close_on_exec_from(5).step("descriptors")?;
    // `null` may have had the number of a socket, whose owner is now the agent.
    std::mem::forget(null);
    Ok(agent)
}
