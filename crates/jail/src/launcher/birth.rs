//! Making one jail: the launcher's side.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;
use sandstorm_agent::protocol::{FilterInstruction, Init, Rlimit, ToAgent};
use sandstorm_sys::filter::Instruction;
use sandstorm_sys::fork::{Namespaces, Side};

use crate::cgroup::Leaf;
use crate::error::{JailError, doing};
use crate::identity::Identity;
use crate::instance::private_directory;
use crate::launcher::capture::Entrance;
use crate::launcher::protocol::Launched;
use crate::launcher::ward::Ward;
use crate::launcher::{Workshop, timespec};
use crate::pid1::{self, Setup, Trees, Word};
use crate::report::{Measured, Report};
use crate::seccomp::{self, Arch, Program};
use crate::spec::{JailSpec, PAYLOAD_ID, Strictness};
use crate::step::Failed;
use crate::{landlock, packet, root};

/// Building a jail takes milliseconds; one that takes this long never will.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes a jail. What comes back is the launcher's hold on it, the answer, and the descriptors for the client: the
/// agent's socket, then those of a captured network. One with a cookie is kept when its client goes.
pub(super) fn launch(
    workshop: &mut Workshop,
    spec: &JailSpec,
    cookie: Option<OwnedFd>,
) -> Result<(Ward, Launched, Vec<OwnedFd>), JailError> {
    let leaf = make_leaf(workshop, spec)?;
    let born = leaf.as_ref().map_or_else(
        || deliver(workshop, spec, None),
        |leaf| deliver(workshop, spec, Some(leaf)).inspect_err(|_| drop(leaf.remove())),
    );
    let Born { pid, pidfd, identity, control, door, namespaces, measured, mut descriptors } = born?;
    let scratch = descriptors.remove(0);
    let filter = seccomp::payload(Arch::host(), spec.strict_filter);
    let report = report(workshop, spec, &identity, leaf.as_ref(), measured, &filter);
    let grouped = leaf.is_some();
    let mut ward = Ward::new(spec, pid, pidfd, identity, leaf, scratch);
    // From here on the ward cleans up, whatever happens.
    let ready = check(spec, &report)
        .and_then(|()| introduce(&control, &filter, rlimits(spec, grouped)))
        // Nobody at the door: the agent ends with its only host.
        .and_then(|()| cookie.map_or(Ok(()), |cookie| ward.keep(door, cookie, namespaces, &descriptors)));
    if let Err(e) = ready {
        ward.discard();
        return Err(e);
    }
    let mut given = vec![control];
    given.append(&mut descriptors);
    Ok((ward, Launched { name: spec.name.clone(), pid, report }, given))
}

/// The groups, or none where this user can make none.
fn make_leaf(workshop: &mut Workshop, spec: &JailSpec) -> Result<Option<Leaf>, JailError> {
    // Without privilege there is no lease to take and nothing to sweep: namespaces end with their processes.
    let writable = workshop.hierarchies.is_writable(&workshop.config.cgroup_parent);
    if !writable {
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
    let leaf = Leaf::create(&workshop.hierarchies, &parent, &spec.name, &spec.limits);
    match (spec.strictness, leaf.missing().first()) {
        (Strictness::Strict, Some((limit, reason))) => {
            let refused = JailError::Limit { limit, reason: reason.clone() };
            leaf.remove();
            Err(refused)
        }
        _ => Ok(Some(leaf)),
    }
}

struct Born {
    pid: i32,
    pidfd: OwnedFd,
    identity: Identity,
    control: OwnedFd,
    door: OwnedFd,
    namespaces: Option<Entrance>,
    measured: Measured,
    descriptors: Vec<OwnedFd>,
}

/// Clones PID 1, gives it its ids and waits until its walls stand.
fn deliver(workshop: &Workshop, spec: &JailSpec, leaf: Option<&Leaf>) -> Result<Born, JailError> {
    private_directory(&workshop.config.runtime_dir)?;
    let identity = Identity::reserve(workshop.config.ids, &workshop.config.runtime_dir)?;
    let (sync, their_sync) = packet::pair().map_err(doing("make a socket"))?;
    let (control, their_control) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(doing("make a socket"))?;
    let (door, their_door) = packet::pair().map_err(doing("make a socket"))?;
    let entrances = leaf.map_or(Ok(Vec::new()), Leaf::entrances)?;
    let trees = trees(workshop, spec)?;
    let side = sandstorm_sys::fork::clone(Namespaces::JAIL, leaf.and_then(Leaf::birthplace))
        .map_err(no_namespaces)?;
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
            })
        }
    };
    drop((their_sync, their_control, their_door, entrances, trees));
    // Before it is released it is a copy of this process, whose namespaces may be looked at; the agent's may not.
    let namespaces = Entrance::of(pid).ok();
    rank_for_memory(pid);
    let built = identity
        .apply(pid)
        .and_then(|()| rustix::io::write(&sync, b"1").map(drop).map_err(doing("release PID 1")))
        .and_then(|()| listen(&sync));
    match built {
        Ok((measured, descriptors)) => {
            Ok(Born { pid, pidfd, identity, control, door, namespaces, measured, descriptors })
        }
        Err(e) => {
            let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
            let _ = sandstorm_sys::process::reap(pid);
            Err(e)
        }
    }
}

/// Root takes the trees itself. In PID 1 it would be root of another user namespace, to which directories of the server's
/// user are closed.
fn trees<'a>(workshop: &Workshop, spec: &'a JailSpec) -> Result<Trees<'a>, JailError> {
    let follow_links = workshop.sources.is_none();
    if !workshop.may_mount {
        return Ok(Trees::ToTake { follow_links });
    }
    let taken = root::take(&spec.root, follow_links);
    taken.map(Trees::Taken).map_err(|Failed { step: name, errno }| step(&name, errno))
}

/// When memory runs out, a payload goes before its PID 1: it raises its own score. Nobody inside can have a score below
/// the ordinary one, even if this process has, and so hide behind processes of the host: who may set it at all sets the
/// lowest that can be gone back to as well. A host that forbids it loses a preference and nothing else.
fn rank_for_memory(pid: i32) {
    let path = format!("/proc/{pid}/oom_score_adj");
    let own = std::fs::read_to_string(&path).ok().and_then(|score| score.trim().parse::<i32>().ok());
    let _ = std::fs::write(&path, own.unwrap_or(0).max(0).to_string());
}

/// Hears whether the walls stand, then waits for the socket to close, which the exec of the agent does.
fn listen(sync: &OwnedFd) -> Result<(Measured, Vec<OwnedFd>), JailError> {
    let mut built = None;
    loop {
        let mut fds = [PollFd::new(sync, PollFlags::IN)];
        match poll(&mut fds, Some(&timespec(PATIENCE))) {
            Ok(0) => return Err(step("answer in time", Errno::TIMEDOUT)),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(e) => return Err(doing("wait for PID 1")(e)),
        }
        match (packet::receive::<Word>(sync.as_fd()).map_err(doing("listen to PID 1"))?, built.take()) {
            (Some((Word::Built(measured), descriptors)), _) if !descriptors.is_empty() => {
                built = Some((measured, descriptors));
            }
            (Some((Word::Built(_), _)), _) => return Err(step("report", Errno::BADMSG)),
            (Some((Word::Failed { step: name, errno }, _)), _) => {
                return Err(step(&name, Errno::from_raw_os_error(errno)));
            }
            (None, Some(built)) => return Ok(built),
            (None, None) => return Err(step("stay alive", Errno::CHILD)),
        }
    }
}

fn step(name: &str, source: Errno) -> JailError {
    JailError::Step { step: name.to_owned(), source }
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

fn report(
    workshop: &Workshop,
    spec: &JailSpec,
    identity: &Identity,
    leaf: Option<&Leaf>,
    measured: Measured,
    filter: &Program,
) -> Report {
    let missing_limits = match leaf {
        Some(leaf) => leaf.missing().iter().map(|(name, why)| ((*name).to_owned(), why.clone())).collect(),
        None => [
            ("memory", "no control group can be made by this user; only the private memory of each process is limited"),
            (
                "processes",
                "no control group can be made by this user; the limit holds, but nothing counts it",
            ),
            ("cpus", "no control group can be made by this user"),
        ]
        .into_iter()
        .chain(
            spec.limits
                .cpu_time
                .map(|_| ("cpu_time", "no control group can be made; each process by itself")),
        )
        .map(|(name, why)| (name.to_owned(), why.to_owned()))
        .collect(),
    };
    Report {
        separated: workshop
            .namespaces
            .iter()
            .zip(&measured.namespaces)
            .map(|(ours, theirs)| ours != theirs)
            .collect(),
        own_ids: identity.is_own(),
        landlock_abi: if measured.landlock { landlock::kernel_abi() } else { 0 },
        filter_profile: filter.profile().name().to_owned(),
        filter_hash: filter.hash().to_owned(),
        cgroup: if leaf.is_some() { workshop.hierarchies.version() } else { crate::cgroup::Version::None },
        controllers: leaf.map(Leaf::controllers).unwrap_or_default(),
        missing_limits,
        measured,
    }
}

/// Walls that no policy does without, and those that a strict one asks for.
fn check(spec: &JailSpec, report: &Report) -> Result<(), JailError> {
    let wall = |wall, reason: &str| Err(JailError::Wall { wall, reason: reason.to_owned() });
    if !report.separated.iter().all(|separated| *separated) {
        return wall("namespaces", "a namespace is shared with the host");
    }
    let measured = &report.measured;
    if !measured.own_root
        || measured.bounding_set != 0
        || !measured.no_new_privs
        || measured.seccomp_mode != 2
    {
        return wall("privileges", "PID 1 measured more rights than it should have");
    }
    if spec.strictness == Strictness::Strict {
        if !report.own_ids {
            return wall(
                "uid_wall",
                "only one user id can be mapped; run as root or give the user a range in /etc/subuid",
            );
        }
        if !measured.no_groups {
            return wall("groups", "supplementary groups of the caller cannot be given up");
        }
        if !measured.landlock {
            return wall("landlock", "this kernel has no Landlock");
        }
    }
    Ok(())
}

/// The first message to the agent: what the launcher decided for everything that will run.
fn introduce(control: &OwnedFd, filter: &Program, rlimits: Vec<(Rlimit, u64, u64)>) -> Result<(), JailError> {
    let filter = filter
        .instructions()
        .iter()
        .map(|i| FilterInstruction { code: i.code, jump_true: i.jt, jump_false: i.jf, operand: i.k })
        .collect();
    let init = Init {
        version: sandstorm_agent::protocol::VERSION,
        uid: PAYLOAD_ID,
        gid: PAYLOAD_ID,
        filter,
        rlimits,
    };
    let frame = sandstorm_agent::frame::encode(&ToAgent::Init(init))
        .map_err(|e| doing("encode")(io::Error::other(e)))?;
    let mut rest = frame.as_slice();
    while !rest.is_empty() {
        let n = rustix::io::write(control, rest).map_err(doing("speak to the agent"))?;
        rest = &rest[n..];
    }
    Ok(())
}

/// Limits of each process. A hard limit can only be lowered, so each is at most what this process has. Without groups
/// they are all there is.
fn rlimits(spec: &JailSpec, grouped: bool) -> Vec<(Rlimit, u64, u64)> {
    use rustix::process::Resource;
    let at_most = |resource: Resource, wanted: u64| {
        rustix::process::getrlimit(resource).maximum.map_or(wanted, |have| have.min(wanted))
    };
    let mut limits = vec![
        // 0 still starts a handler that the host's core pattern pipes to; 1 is the kernel's word for "not even that".
        (Rlimit::Core, at_most(Resource::Core, 1)),
        (Rlimit::OpenFiles, at_most(Resource::Nofile, spec.limits.open_files)),
        (Rlimit::Processes, at_most(Resource::Nproc, spec.limits.processes)),
        (Rlimit::LockedMemory, at_most(Resource::Memlock, 8 << 20)),
        (Rlimit::MessageQueues, 0),
        (Rlimit::Nice, 0),
        (Rlimit::RealTimePriority, 0),
        (Rlimit::PendingSignals, at_most(Resource::Sigpending, 4096)),
        (Rlimit::Stack, at_most(Resource::Stack, 64 << 20)),
    ];
    if !grouped {
        // Counts what can be written to and is not shared; address space that is only reserved, as every virtual
        // machine does it, is free.
        limits.push((Rlimit::Data, at_most(Resource::Data, spec.limits.memory_bytes)));
    }
    if let Some(time) = spec.limits.cpu_time {
        // Per process, and so only the second line behind the group's counter.
        limits.push((Rlimit::CpuSeconds, at_most(Resource::Cpu, time.as_secs().saturating_add(2))));
    }
    limits
        .into_iter()
        .map(|(limit, hard)| (limit, if limit == Rlimit::Stack { hard.min(8 << 20) } else { hard }, hard))
        .collect()
}

/// A compiled program in the form that installs.
pub(super) fn instructions(program: &Program) -> Vec<Instruction> {
    program
        .instructions()
        .iter()
        .map(|i| Instruction { code: i.code, jump_true: i.jt, jump_false: i.jf, operand: i.k })
        .collect()
}
