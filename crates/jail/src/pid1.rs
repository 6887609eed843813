//! The child's side: from a copy of the mold to the agent, one irreversible step after the other.
//!
//! The order is the design; `ARCHITECTURE.md` lists it with the reasons. A step that fails is sent to the launcher by
//! name, and the process ends. Nothing of the user's is anywhere near yet.

mod plan;

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use rustix::process::Signal;
use sandstorm_sys::filter::Instruction;
use sandstorm_sys::fork::exit_now;
use sandstorm_sys::process::{close_from, place_descriptor, take_descriptor};
use serde::{Deserialize, Serialize};

use crate::descriptors::out_of_the_way;
use crate::report::Measured;
use crate::root::View;
use crate::spec::{Network, PAYLOAD_ID};
use crate::step::{Failed, Step};
use crate::{landlock, network, packet, privileges, root};
use plan::Handed;
pub(crate) use plan::{Plan, Trees};

/// What PID 1 tells the launcher.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    /// The jail stands, and PID 1 is the agent from now on. Comes with the descriptor of the writable file system; that of
    /// the cgroup namespace and, where there is Landlock, of its rules if the jail is joinable; then those of a captured
    /// network.
    Built(Measured),
    Failed {
        step: String,
        errno: i32,
    },
}

/// The first number behind those that the agent has.
const FIRST_TOO_MANY: u32 = 6;

/// Builds the jail that the launcher describes on the socket around this process, and is the agent from then on. Never
/// returns.
pub(crate) fn become_agent(sync: OwnedFd, filter: &[Instruction]) -> ! {
    let Ok(sync) = out_of_the_way(sync) else { exit_now(125) };
    if keep_own_numbers().is_err() {
        exit_now(125)
    }
    if let Err(Failed { step, errno }) = build(&sync, filter) {
        let _ = packet::send(sync.as_fd(), &Word::Failed { step, errno: errno.raw_os_error() }, &[]);
        exit_now(125)
    }
    // There is nobody to tell from here on: the launcher sees this process end, and the host sees its socket close.
    exit_now(match serve() {
        Ok(()) => 0,
        Err(_) => 125,
    })
}

/// Nothing that comes in may have a number that the agent's own are put at: whoever lets go of it would close those.
/// What the mold had there goes.
fn keep_own_numbers() -> std::io::Result<()> {
    let null = rustix::stdio::stdin();
    place_descriptor(null, sandstorm_agent::CONTROL_DESCRIPTOR)?;
    place_descriptor(null, sandstorm_agent::DOOR_DESCRIPTOR)?;
    place_descriptor(null, sandstorm_agent::SCORE_DESCRIPTOR)
}

/// Whatever is open beside the agent's own goes before anything comes in from outside.
fn serve() -> std::io::Result<()> {
    close_from(FIRST_TOO_MANY)?;
    let control = take_descriptor(sandstorm_agent::CONTROL_DESCRIPTOR)?;
    let door = take_descriptor(sandstorm_agent::DOOR_DESCRIPTOR)?;
    let score = take_descriptor(sandstorm_agent::SCORE_DESCRIPTOR)?;
    sandstorm_agent::serve(control, door, score)
}

fn build(sync: &OwnedFd, filter: &[Instruction]) -> Result<(), Failed> {
    let (plan, descriptors) = wait_for_release(sync)?;
    let Handed { control, door, entrances, scratch, trees } = plan.sort(descriptors)?;
    let spec = &*plan.spec;
    // Helps when the launcher dies; the pid namespace and the control socket are what is relied on.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("parent death signal")?;
    rustix::process::setsid().step("session")?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).step("private mounts")?;
    let before = rustix::fs::stat("/").step("root file system")?.st_dev;
    let trees = match trees {
        Trees::ToTake { follow_links, whole } => {
            let trees = root::take(&spec.root, follow_links, &whole, root::Empty::Mounted)?;
            Trees::Taken { trees, devices: None }
        }
        taken => taken,
    };
    take_ids(plan.init_id, plan.drop_groups)?;
    join_cgroups(&entrances)?;
    sandstorm_sys::process::new_session_keyring().step("keyring")?;
    let payload = (PAYLOAD_ID, PAYLOAD_ID);
    let scratch = match scratch {
        Some(made) => made,
        None => root::scratch(&spec.root)?,
    };
    let root::Entered { scratch, shared } = match trees {
        Trees::Prepared { root: View { mount, shared }, later } => {
            let mut entered = root::enter_prepared(scratch, &mount, later, payload)?;
            entered.shared.extend(shared);
            entered
        }
        Trees::Taken { trees, devices } => {
            root::enter(&spec.root, scratch, trees, devices.as_ref(), payload)?
        }
        Trees::ToTake { .. } => return Err(Errno::BADMSG).step("plan"),
    };
    rustix::system::sethostname(spec.hostname.as_bytes()).step("host name")?;
    let captured = if plan.network_is_ready { Vec::new() } else { set_up_network(spec.network)? };

    let groups = match spec.joinable {
        true => {
            Some(std::fs::File::open("/proc/self/ns/cgroup").map(OwnedFd::from).step("cgroup namespace")?)
        }
        false => None,
    };
    // Nothing below /proc can be opened for writing in the domain. A host that forbids it loses a preference.
    let score = sandstorm_agent::open_score().ok();
    let rules = landlock::enter(&spec.root, spec.joinable)?;
    let landlock = rules.is_some();
    privileges::reduce()?;
    // The credential changes above cleared it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("parent death signal")?;
    let ways_in = groups.into_iter().chain(rules.filter(|_| spec.joinable));
    let handed = [scratch].into_iter().chain(ways_in).chain(captured).map(out_of_the_way);
    let handed = handed.collect::<Result<Vec<_>, _>>()?;
    settle_descriptors(control, door, score)?;
    sandstorm_sys::filter::install(filter).step("seccomp filter")?;

    let measured = Measured::take(landlock, before, shared).step("measure the walls")?;
    let descriptors: Vec<_> = handed.iter().map(AsFd::as_fd).collect();
    packet::send(sync.as_fd(), &Word::Built(measured), &descriptors).step("report")
}

/// Nothing happens before the launcher has written the id maps and says what to build. It closes the socket instead when
/// that failed.
fn wait_for_release(sync: &OwnedFd) -> Result<(Plan<'static>, Vec<OwnedFd>), Failed> {
    match packet::receive(sync.as_fd()) {
        Ok(Some(plan)) => Ok(plan),
        Ok(None) => exit_now(125),
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

/// The control socket, the door and the score at their numbers, and nothing at 0 to 2 but the jail's own null device, which
/// also stands for a score that could not be opened.
fn settle_descriptors(control: OwnedFd, door: OwnedFd, score: Option<OwnedFd>) -> Result<(), Failed> {
    use rustix::fs::{Mode, OFlags};
    let (control, door) = (out_of_the_way(control)?, out_of_the_way(door)?);
    let null =
        rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).step("null device")?;
    for number in 0..3 {
        place_descriptor(null.as_fd(), number).step("standard streams")?;
    }
    for (socket, number) in
        [(&control, sandstorm_agent::CONTROL_DESCRIPTOR), (&door, sandstorm_agent::DOOR_DESCRIPTOR)]
    {
        place_descriptor(socket.as_fd(), number).step("sockets")?;
    }
    let score = score.as_ref().unwrap_or(&null);
    place_descriptor(score.as_fd(), sandstorm_agent::SCORE_DESCRIPTOR).step("memory score")?;
    Ok(())
}
