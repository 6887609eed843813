//! Capturing the network of a jail that lives already.
//!
//! A child of the launcher enters the jail's user and network namespaces, does there what PID 1 would have done, and hands
//! the sockets out. It never enters the jail's pid or mount namespace: nobody inside sees it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{DumpableBehavior, Signal};
use rustix::thread::LinkNameSpaceType;
use sandstorm_sys::fork::{Namespaces, Side};
use sandstorm_sys::process::NamespaceKind;
use serde::{Deserialize, Serialize};

use super::networks::Namespace;
use super::timespec;
use crate::error::{JailError, doing};
use crate::{network, packet};

/// A few netlink messages take milliseconds; a child that takes this long never will.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the child says.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    /// Comes with the descriptors of the captured network.
    Captured,
    Failed(String),
}

/// A child of this process that is not collected.
#[derive(Debug, Clone, Copy)]
pub(super) struct Child<'a> {
    pub(super) pid: i32,
    pub(super) pidfd: BorrowedFd<'a>,
}

impl Child<'_> {
    /// A namespace that it is in. Older kernels have to be asked by a path, which takes them several times as long.
    pub(super) fn namespace(self, kind: NamespaceKind) -> io::Result<OwnedFd> {
        sandstorm_sys::process::namespace_of(self.pidfd, kind).or_else(|_| {
            let name = match kind {
                NamespaceKind::Ipc => "ipc",
                NamespaceKind::Mount => "mnt",
                NamespaceKind::Network => "net",
                NamespaceKind::Pid => "pid",
                NamespaceKind::User => "user",
                NamespaceKind::Uts => "uts",
            };
            File::open(format!("/proc/{}/ns/{name}", self.pid)).map(OwnedFd::from)
        })
    }
}

/// The user and network namespaces of a jail.
#[derive(Debug)]
pub(super) struct Entrance {
    user: OwnedFd,
    network: Rc<Namespace>,
    /// The network belongs to the host's user namespace: what is done there is done with the launcher's own rights.
    host_owned: bool,
}

impl Entrance {
    /// Those of a child. `network`: the one that the launcher gave it.
    pub(super) fn of(child: Child<'_>, network: Option<&Rc<Namespace>>) -> io::Result<Self> {
        let (network, host_owned) = match network {
            Some(network) => (Rc::clone(network), true),
            None => (Rc::new(Namespace::of_others(child.namespace(NamespaceKind::Network)?)), false),
        };
        Ok(Self { user: child.namespace(NamespaceKind::User)?, network, host_owned })
    }

    pub(super) fn user(&self) -> BorrowedFd<'_> {
        self.user.as_fd()
    }

    pub(super) fn network(&self) -> BorrowedFd<'_> {
        self.network.as_fd()
    }

    /// Makes the captured network there and gives the host's ends of it.
    pub(super) fn capture(&self) -> Result<Vec<OwnedFd>, JailError> {
        from_outside(self)
    }
}

fn from_outside(entrance: &Entrance) -> Result<Vec<OwnedFd>, JailError> {
    let (ours, theirs) = packet::pair().map_err(doing("make a socket"))?;
    match sandstorm_sys::fork::clone(Namespaces::NONE, None).map_err(doing("fork"))? {
        Side::Child => {
            drop(ours);
            let said = match enter_and_capture(entrance) {
                Ok(captured) => {
                    let given: Vec<_> = captured.iter().map(AsFd::as_fd).collect();
                    packet::send(theirs.as_fd(), &Word::Captured, &given)
                }
                Err(reason) => packet::send(theirs.as_fd(), &Word::Failed(reason), &[]),
            };
            sandstorm_sys::fork::exit_now(if said.is_ok() { 0 } else { 1 })
        }
        Side::Parent { pid, pidfd: child } => {
            drop(theirs);
            let heard = listen(&ours);
            let _ = rustix::process::pidfd_send_signal(&child, Signal::KILL);
            let _ = sandstorm_sys::process::reap(pid);
            heard
        }
    }
}

fn listen(child: &OwnedFd) -> Result<Vec<OwnedFd>, JailError> {
    let mut fds = [PollFd::new(child, PollFlags::IN)];
    // Interrupted or too late: what is there is read without waiting either way.
    let ready = poll(&mut fds, Some(&timespec(PATIENCE))).is_ok_and(|n| n > 0);
    let said =
        if ready { packet::receive(child.as_fd()).map_err(doing("capture the network"))? } else { None };
    match said {
        Some((Word::Captured, descriptors)) => Ok(descriptors),
        Some((Word::Failed(reason), _)) => {
            Err(JailError::Launcher(format!("the network could not be captured: {reason}")))
        }
        None => Err(JailError::Launcher("the network could not be captured: no answer".to_owned())),
    }
}

fn enter_and_capture(entrance: &Entrance) -> Result<Vec<OwnedFd>, String> {
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let steps =
        [(entrance.user(), LinkNameSpaceType::User), (entrance.network(), LinkNameSpaceType::Network)];
    // Rights over the network are those of whoever owns it.
    for (namespace, kind) in steps.into_iter().skip(usize::from(entrance.host_owned)) {
        rustix::thread::move_into_link_name_space(namespace, Some(kind))
            .map_err(|e| format!("its namespaces cannot be entered: {e}"))?;
    }
    network::capture_all().map(network::Captured::into_fds).map_err(|e| {
        let cause = std::error::Error::source(&e).map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{e}{cause}")
    })
}
