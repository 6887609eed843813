//! The mold: the small process that every PID 1 of a launcher is a copy of.
//!
//! A copy of the launcher that executes the agent would cost as much as all the walls of its jail. So the program of the
//! agent is executed once. It waits for the launcher and does nothing but clone itself into new namespaces, as a child of the
//! launcher; the copy builds its jail and goes on as the agent.
//!
//! All these copies have the mold's memory. It therefore never hears anything about any jail: what to build, the newborn
//! reads itself, from a socket that the mold only passes on.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sandstorm_agent::AGENT_RANK;
use sandstorm_sys::fork::{Namespaces, Side, clone_for_parent, exit_now};
use sandstorm_sys::process::take_descriptor;
use serde::{Deserialize, Serialize};

use crate::seccomp::{self, Arch};
use crate::{packet, pid1};

/// Where it finds the launcher.
const LAUNCHER: i32 = 3;

/// What the launcher asks for: one PID 1. Comes with the socket on which that one is told what to build; then the directory
/// of its group on the unified tree and the network namespace that it is to be born in, as far as there are such.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Cast {
    pub(crate) into_group: bool,
    pub(crate) into_network: bool,
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    /// Comes with a descriptor of the new process.
    Born { pid: i32 },
    /// The kernel makes no such process.
    Refused { errno: i32 },
    /// There is no mold, since a step on the way to it failed.
    Unfit { step: String, errno: i32 },
}

/// A program that is nothing but the mold. Its arguments are of no interest; the launcher is at descriptor 3.
pub fn main() -> ExitCode {
    match take_descriptor(LAUNCHER).and_then(|launcher| serve(&launcher)) {
        Ok(()) => ExitCode::SUCCESS,
        // There is nobody to tell: the launcher sees the socket close.
        Err(_) => ExitCode::from(125),
    }
}

/// Makes PID 1s until the launcher closes its socket.
fn serve(launcher: &OwnedFd) -> io::Result<()> {
    // What is the same for all of them is done here, once.
    sandstorm_sys::process::reset_signals();
    rank_for_memory();
    sandstorm_agent::prepare();
    let filter = seccomp::agent(Arch::host()).to_install();
    let home = File::open("/proc/self/ns/net")?;
    while let Some((Cast { into_group, into_network }, given)) = packet::receive(launcher.as_fd())? {
        let mut given = given.into_iter();
        let sync = given.next().ok_or(Errno::BADMSG)?;
        let mut next = |wanted: bool| match wanted {
            true => given.next().ok_or(Errno::BADMSG).map(Some),
            false => Ok(None),
        };
        let (group, network) = (next(into_group)?, next(into_network)?);
        match bear(group.as_ref(), network.as_ref(), &home) {
            Ok(Side::Child) => {
                drop((group, network));
                pid1::become_agent(sync, &filter)
            }
            Ok(Side::Parent { pid, pidfd }) => {
                packet::send(launcher.as_fd(), &Said::Born { pid }, &[pidfd.as_fd()])?;
            }
            Err(e) => {
                let errno = e.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
                packet::send(launcher.as_fd(), &Said::Refused { errno }, &[])?;
            }
        }
    }
    Ok(())
}

fn bear(group: Option<&OwnedFd>, network: Option<&OwnedFd>, home: &File) -> io::Result<Side> {
    let group = group.map(AsFd::as_fd);
    let Some(network) = network else { return clone_for_parent(Namespaces::JAIL, group) };
    enter(network.as_fd())?;
    let side = clone_for_parent(Namespaces::JAIL_HERE, group);
    // The child stays there. What the mold does after a failure to come back would happen in a jail's network.
    if !matches!(side, Ok(Side::Child)) && enter(home.as_fd()).is_err() {
        exit_now(1);
    }
    side
}

fn enter(network: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(network, Some(LinkNameSpaceType::Network))?)
}

/// When memory runs out, a payload goes before its PID 1, and both go before processes of the host.
///
/// Who has the privilege to lower a score sets the lowest that can be gone back to with it, and both are inherited. So as
/// root no payload can get below its PID 1; without that privilege, Landlock keeps it from its score. A host that forbids it
/// loses a preference and nothing else.
fn rank_for_memory() {
    let rank = crate::launcher::memory_rank().max(AGENT_RANK);
    let _ = std::fs::write("/proc/self/oom_score_adj", rank.to_string());
}
