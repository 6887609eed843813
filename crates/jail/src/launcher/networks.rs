//! Network namespaces of jails without a network: made by the launcher, used again when nothing was done in them.
//!
//! To make one costs the kernel more than the rest of a jail's namespaces together, and to unmake it as much again. They
//! belong to the host's user namespace, so nobody in a jail has any right in them, not even its root; `lo` is up before a
//! jail comes in. One in which a packet was sent, a connection tried or a socket left is thrown away: its counters would
//! tell the next jail of it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::network;

/// Those that wait for a jail.
const MOST: usize = 64;

/// What a namespace tells of its past: interfaces with their counters, every counter of the protocols, sockets of every
/// kind that exist or wait for their end.
const PAST: [&str; 6] =
    ["net/dev", "net/snmp", "net/netstat", "net/sockstat", "net/snmp6", "net/sockstat6"];

#[derive(Debug)]
pub(super) struct Networks {
    /// The launcher's own.
    own: OwnedFd,
    /// What a namespace says that nothing happened in.
    untouched: Option<Vec<Vec<u8>>>,
    spare: Vec<OwnedFd>,
}

impl Networks {
    /// To be made by a process that may enter and leave network namespaces.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { own: namespace()?, untouched: None, spare: Vec::new() })
    }

    /// One with nothing but loopback.
    pub(super) fn take(&mut self) -> io::Result<OwnedFd> {
        match self.spare.pop() {
            Some(spare) => Ok(spare),
            None => self.make(),
        }
    }

    fn make(&mut self) -> io::Result<OwnedFd> {
        sandstorm_sys::process::unshare_network_namespace()?;
        let made = namespace().and_then(|made| {
            network::loopback_up().map_err(io::Error::other)?;
            if self.untouched.is_none() {
                self.untouched = Some(past()?);
            }
            Ok(made)
        });
        self.leave()?;
        made
    }

    /// Does something in a namespace; a process that is made there stays there.
    pub(super) fn within<T>(
        own: BorrowedFd<'_>,
        network: BorrowedFd<'_>,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        enter(network)?;
        let done = work();
        // What follows would happen in a jail's network; there is no going on from that.
        match enter(own) {
            Ok(()) => done,
            Err(_) => sandstorm_sys::fork::exit_now(1),
        }
    }

    pub(super) fn own(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }

    fn leave(&self) -> io::Result<()> {
        match enter(self.own.as_fd()) {
            Ok(()) => Ok(()),
            Err(_) => sandstorm_sys::fork::exit_now(1),
        }
    }

    /// Takes one back from a jail that is gone. It waits for the next if nobody can tell that it was used.
    pub(super) fn give_back(&mut self, network: OwnedFd) {
        if self.spare.len() >= MOST {
            return;
        }
        let found = Self::within(self.own.as_fd(), network.as_fd(), past).ok();
        if found.is_some() && found == self.untouched {
            self.spare.push(network);
        }
    }
}

fn namespace() -> io::Result<OwnedFd> {
    File::open("/proc/self/ns/net").map(OwnedFd::from)
}

fn enter(network: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(network, Some(LinkNameSpaceType::Network))?)
}

fn past() -> io::Result<Vec<Vec<u8>>> {
    let read = |file: &&str| match fs::read(format!("/proc/self/{file}")) {
        // A kernel without IPv6 has no file for it.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    };
    PAST.iter().map(read).collect()
}
