//! The launcher's end of the [mold](crate::mold): starting it, asking it for PID 1s, replacing it.

mod mounts;

use std::convert::Infallible;
use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Rlimit, Signal};
use sandstorm_sys::fork::{Namespaces, Side, exit_now};

use super::timespec;
use crate::error::{JailError, doing};
use crate::mold::{Cast, Said};
use crate::step::{Failed, Step};
use crate::{descriptors, packet};

/// A clone takes a fraction of a millisecond; a mold that takes this long is stuck.
const PATIENCE: Duration = Duration::from_secs(10);

/// All copies of one mold have its address layout. What leaks of that from one jail is worth nothing for those that are
/// made after this time or number.
const OLD: Duration = Duration::from_secs(3600);
const CASTS: u32 = 20_000;

/// The mold of the moment.
#[derive(Debug)]
pub(super) struct Molds {
    program: OwnedFd,
    /// Of descriptors, for the mold and so for every PID 1.
    limit: Rlimit,
    /// It has a mount namespace of its own.
    own_mounts: bool,
    current: Option<Mold>,
    /// One was lost after it was asked: there may be a child that nobody knows.
    lost: bool,
}

/// What a PID 1 begins with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beginning<'a> {
    /// Where it is told what to build. Nobody else may have this end: whoever reads first takes what is told.
    pub(super) sync: BorrowedFd<'a>,
    /// Its group on the unified tree.
    pub(super) group: Option<BorrowedFd<'a>>,
    /// The network namespace that it is born in; else it gets one of its own.
    pub(super) network: Option<BorrowedFd<'a>>,
}

impl Molds {
    /// One is started at once, so that it is there when the first jail is wanted. One that does not come up says why when
    /// it is asked.
    pub(super) fn new(program: OwnedFd, limit: Rlimit, may_mount: bool) -> Self {
        let current = Mold::start(&program, limit, may_mount).ok();
        Self { program, limit, own_mounts: may_mount, current, lost: false }
    }

    /// A new PID 1, a child of this process, that waits at its socket.
    pub(super) fn cast(&mut self, beginning: Beginning<'_>) -> Result<(i32, OwnedFd), JailError> {
        match self.asked(beginning)?.answer() {
            Some((Said::Born { pid }, Some(pidfd))) => Ok((pid, pidfd)),
            Some((Said::Refused { errno }, _)) => Err(no_namespaces(io::Error::from_raw_os_error(errno))),
            Some((Said::Unfit { step, errno }, _)) => {
                self.current = None;
                Err(JailError::Step { step, source: Errno::from_raw_os_error(errno) })
            }
            Some((Said::Born { .. }, None)) | None => {
                self.current = None;
                self.lost = true;
                Err(JailError::Launcher("the mold of PID 1 was lost".to_owned()))
            }
        }
    }

    /// A mold that was asked for a PID 1. One that ended while nobody wanted anything of it is replaced.
    fn asked(&mut self, beginning: Beginning<'_>) -> Result<&mut Mold, JailError> {
        let usable = self.current.take().filter(|mold| !mold.is_old());
        let asked = usable.and_then(|mut mold| mold.ask(beginning).is_ok().then_some(mold));
        let mold = match asked {
            Some(mold) => mold,
            None => {
                let new = Mold::start(&self.program, self.limit, self.own_mounts);
                let mut new = new.map_err(doing("start the mold of PID 1"))?;
                // One that does not come up has said why by then.
                let _ = new.ask(beginning);
                new
            }
        };
        Ok(self.current.insert(mold))
    }

    pub(super) fn pid(&self) -> Option<i32> {
        self.current.as_ref().map(|mold| mold.pid)
    }

    /// Whether there may be a child that nobody knows. Said once.
    pub(super) fn lost_one(&mut self) -> bool {
        std::mem::take(&mut self.lost)
    }

    /// Ends it: all children are about to be waited for.
    pub(super) fn end(&mut self) {
        self.current = None;
    }
}

#[derive(Debug)]
struct Mold {
    pid: i32,
    pidfd: OwnedFd,
    socket: OwnedFd,
    since: Instant,
    casts: u32,
}

impl Mold {
    fn start(program: &OwnedFd, limit: Rlimit, own_mounts: bool) -> io::Result<Self> {
        let (socket, theirs) = packet::pair()?;
        let namespaces = if own_mounts { Namespaces::MOLD } else { Namespaces::NONE };
        match sandstorm_sys::fork::clone(namespaces, None)? {
            Side::Parent { pid, pidfd } => Ok(Self { pid, pidfd, socket, since: Instant::now(), casts: 0 }),
            Side::Child => {
                let Err(Failed { step, errno }) = become_mold(program, &theirs, limit, own_mounts);
                let unfit = Said::Unfit { step, errno: errno.raw_os_error() };
                let _ = packet::send(theirs.as_fd(), &unfit, &[]);
                exit_now(125)
            }
        }
    }

    fn is_old(&self) -> bool {
        self.casts >= CASTS || self.since.elapsed() >= OLD
    }

    fn ask(&mut self, Beginning { sync, group, network }: Beginning<'_>) -> io::Result<()> {
        self.casts += 1;
        let cast = Cast { into_group: group.is_some(), into_network: network.is_some() };
        let given: Vec<_> = [sync].into_iter().chain(group).chain(network).collect();
        packet::send(self.socket.as_fd(), &cast, &given)
    }

    /// `None`: there is nothing to be expected of it any more.
    fn answer(&mut self) -> Option<(Said, Option<OwnedFd>)> {
        let mut waits = [PollFd::new(&self.socket, PollFlags::IN)];
        if poll(&mut waits, Some(&timespec(PATIENCE))).ok()? == 0 {
            return None;
        }
        let (said, mut given) = packet::receive(self.socket.as_fd()).ok()??;
        Some((said, given.pop()))
    }
}

impl Drop for Mold {
    /// Nothing is lost with it: what it made are children of this process.
    fn drop(&mut self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        let _ = sandstorm_sys::process::reap(self.pid);
    }
}

fn become_mold(
    program: &OwnedFd,
    socket: &OwnedFd,
    limit: Rlimit,
    own_mounts: bool,
) -> Result<Infallible, Failed> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).step("parent death signal")?;
    rustix::process::chdir("/").step("enter root")?;
    if own_mounts {
        mounts::let_go()?;
    }
    // Its number may be one of those that are about to be settled.
    let program = descriptors::out_of_the_way(program)?;
    descriptors::settle(socket, limit)?;
    // What everybody inside sees as the name of PID 1.
    let argv = [CString::from(c"sandstorm-agent")];
    Err(sandstorm_sys::exec::execute_descriptor(program.as_fd(), &argv, &[])).step("execute the agent")
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
