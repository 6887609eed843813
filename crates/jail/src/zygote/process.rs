//! Starting a zygote: the process, its walls, the exec of the interpreter.

use std::convert::Infallible;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use sandstorm_agent::{AGENT_RANK, PAYLOAD_RANK};
use sandstorm_sys::fork::{Namespaces, Side};
use serde::Serialize;

use super::messages::{self, Hello};
use super::root;
use crate::cgroup::Leaf;
use crate::error::{JailError, doing};
use crate::launcher::ZygoteConfig;
use crate::launcher::memory_rank;
use crate::seccomp::{self, Arch};
use crate::step::{Failed, Step};
use crate::{descriptors, landlock, packet};

/// To enter namespaces of jails and to put up a payload's walls there; nothing else.
const KEPT: CapabilitySet = CapabilitySet::SYS_ADMIN
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP);

/// What every guest of this zygote has around it from the start. A program that needs another environment is started
/// by the agent.
const ENVIRONMENT: [(&str, &str); 12] = [
    ("PATH", "/home/user/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/home/user"),
    ("USER", "user"),
    ("LOGNAME", "user"),
    ("LANG", "C.UTF-8"),
    ("NPM_CONFIG_PREFIX", "/home/user/.local"),
    ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    ("PYTHONUNBUFFERED", "1"),
    ("PYTHONUTF8", "1"),
    // A library that starts threads when it is imported would end the zygote: only a process with one can fork.
    ("OPENBLAS_NUM_THREADS", "1"),
    ("OMP_NUM_THREADS", "1"),
];

/// A zygote that is warming up.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
    pub(crate) socket: OwnedFd,
}

/// What the child says when it does not get as far as the interpreter.
#[derive(Serialize)]
struct Broken {
    failed: u64,
    step: String,
    errno: i32,
}

/// Forks one and tells it what to import. It says by itself when it is warm. `limit`: of descriptors.
pub(crate) fn start(config: &ZygoteConfig, leaf: Option<&Leaf>, limit: Rlimit) -> Result<Started, JailError> {
    check(&config.interpreter)?;
    let (ours, theirs) = packet::pair().map_err(doing("make a zygote's socket"))?;
    let entrances = leaf.map_or(Ok(&[][..]), Leaf::entrances)?;
    let side = sandstorm_sys::fork::clone(Namespaces::ZYGOTE, leaf.and_then(Leaf::birthplace))
        .map_err(doing("fork a zygote"))?;
    match side {
        Side::Parent { pid, pidfd } => {
            let place = |index| root::known(index).display().to_string();
            let known: Vec<_> =
                config.known.iter().enumerate().map(|(i, known)| (place(i), known.path.clone())).collect();
            let filter = seccomp::payload(Arch::host(), false);
            let hello = Hello::new(&filter, &config.preload, landlock::kernel_abi() > 0, &known);
            // It is read when the interpreter is up; one that never comes up closes the socket.
            messages::send(ours.as_fd(), &hello, &[]).map_err(doing("speak to a zygote"))?;
            Ok(Started { pid, pidfd, socket: ours })
        }
        Side::Child => {
            drop(ours);
            let Err(Failed { step, errno }) = become_interpreter(config, &theirs, entrances, limit);
            let broken = Broken { failed: 0, step, errno: errno.raw_os_error() };
            let _ = messages::send(theirs.as_fd(), &broken, &[]);
            sandstorm_sys::fork::exit_now(125)
        }
    }
}

/// Only root may have had a hand in what runs as root.
pub(crate) fn check(interpreter: &Path) -> Result<(), JailError> {
    let why = |why: &str| JailError::NoGuest(format!("{} {why}", interpreter.display()));
    let real = std::fs::canonicalize(interpreter).map_err(|e| why(&format!("cannot be found: {e}")))?;
    let found = std::fs::metadata(&real).map_err(|e| why(&format!("cannot be looked at: {e}")))?;
    let ours = found.is_file() && found.uid() == 0 && found.mode() & 0o022 == 0;
    if ours { Ok(()) } else { Err(why("is not a program that only root can change")) }
}

fn become_interpreter(
    config: &ZygoteConfig,
    socket: &OwnedFd,
    entrances: &[OwnedFd],
    limit: Rlimit,
) -> Result<Infallible, Failed> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("parent death signal")?;
    sandstorm_sys::process::reset_signals();
    rustix::process::setsid().step("session")?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // Guests inherit the lowest score that can be gone back to: as for programs of the agent it is that of a PID 1. A host
    // that forbids it loses a preference and nothing else.
    let _ = std::fs::write("/proc/self/oom_score_adj", memory_rank().max(AGENT_RANK).to_string());
    rank_as_payload().step("rank")?;
    for entrance in entrances {
        rustix::io::write(entrance, b"0").step("cgroup")?;
    }
    sandstorm_sys::process::new_session_keyring().step("keyring")?;
    root::enter(&config.known)?;
    rustix::system::sethostname(b"zygote").step("host name")?;
    descriptors::settle(socket, limit)?;
    reduce_privileges()?;
    let word = |bytes: &[u8]| CString::new(bytes).map_err(|_| Errno::INVAL).step("arguments");
    let interpreter = word(config.interpreter.as_os_str().as_bytes())?;
    let argv = [interpreter.clone(), word(root::program().as_os_str().as_bytes())?];
    let environment = ENVIRONMENT.iter().map(|(name, value)| word(format!("{name}={value}").as_bytes()));
    let envp = environment.collect::<Result<Vec<_>, _>>()?;
    sandstorm_sys::exec::execute_path(&interpreter, &argv, &envp).step("execute the interpreter")
}

/// A payload is what the kernel should pick when memory runs out, and a zygote is easily replaced. Whoever may set any score
/// would set the lowest one with it.
fn rank_as_payload() -> Result<(), Errno> {
    let all = capabilities(None)?;
    let effective = all.effective - CapabilitySet::SYS_RESOURCE;
    set_capabilities(None, CapabilitySets { effective, ..all })?;
    let _ = std::fs::write("/proc/self/oom_score_adj", PAYLOAD_RANK.to_string());
    set_capabilities(None, all)
}

/// The bounding set is what an exec by root is given: it becomes the few that are kept.
fn reduce_privileges() -> Result<(), Failed> {
    sandstorm_sys::process::shrink_bounding_set(KEPT.bits()).step("bounding set")?;
    rustix::thread::clear_ambient_capability_set().step("ambient capabilities")?;
    let sets = CapabilitySets { effective: KEPT, permitted: KEPT, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).step("capabilities")?;
    rustix::thread::set_no_new_privs(true).step("no new privileges")
}
