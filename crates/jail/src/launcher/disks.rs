//! Writable space on disk that is being made for jails to come.
//!
//! To format and mount takes as long as the disk takes, and the launcher must not wait. A child does it, hands the mount over
//! and ends; the jail begins when that is there.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Signal};
use sandstorm_sys::fork::{Forked, exit_now};
use sandstorm_sys::process::{close_from, place_descriptor, take_descriptor};

use super::watch::{Serial, Token, Watched, Watcher};
use crate::error::{JailError, doing};
use crate::spec::JailSpec;
use crate::{image, packet};

/// How long one may take: it is milliseconds, unless the disk is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the child has the socket for its answer.
const SOCKET: i32 = 3;

/// What the child found: nothing more to say, with the mount, or why there is none.
type Word = Result<(), String>;

#[derive(Debug, Default)]
pub(super) struct Disks(BTreeMap<Serial, Making>);

/// A jail that waits for its space.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) spec: Box<JailSpec>,
    pub(super) cookie: Option<OwnedFd>,
}

#[derive(Debug)]
struct Making {
    order: Order,
    pid: i32,
    pidfd: OwnedFd,
    said: Watched,
    until: Instant,
    /// Nobody wants it any more, or it took too long.
    given_up: Option<JailError>,
}

/// What became of one.
pub(super) struct Made {
    pub(super) order: Order,
    pub(super) mount: Result<OwnedFd, JailError>,
    /// The child, which ends by itself and is not collected yet.
    pub(super) child: OwnedFd,
}

impl Disks {
    /// Has space made in a file in this folder.
    pub(super) fn begin(
        &mut self,
        watcher: &Watcher,
        folder: &Path,
        serial: Serial,
        order: Order,
    ) -> Result<(), JailError> {
        let (said, theirs) = packet::pair().map_err(doing("make a socket"))?;
        match sandstorm_sys::fork::fork().map_err(doing("fork"))? {
            Forked::Child => exit_now(if make(&theirs, folder, &order.spec).is_ok() { 0 } else { 1 }),
            Forked::Parent { pid } => {
                drop(theirs);
                // The launcher alone collects it, so the number is its own until then.
                let pidfd = pidfd_of(pid).map_err(doing("watch a helper"))?;
                let said = watcher.readable(said, Token::Disk(serial)).map_err(doing("watch a helper"))?;
                let until = Instant::now() + PATIENCE;
                self.0.insert(serial, Making { order, pid, pidfd, said, until, given_up: None });
                Ok(())
            }
        }
    }

    /// The child said what became of it, or has ended.
    pub(super) fn hear(&mut self, serial: Serial) -> Option<Made> {
        let Making { order, pidfd, said, given_up, .. } = self.0.remove(&serial)?;
        let mount = match (given_up, packet::receive::<Word>(said.as_fd())) {
            (Some(why), _) => Err(why),
            (None, Ok(Some((Ok(()), mut given)))) => given.pop().ok_or_else(|| lost("it sent no mount")),
            (None, Ok(Some((Err(why), _)))) => Err(JailError::Disk(why)),
            (None, Ok(None)) => Err(lost("whoever made it was killed")),
            (None, Err(e)) => Err(doing("listen to a helper")(e)),
        };
        Some(Made { order, mount, child: pidfd })
    }

    /// Nobody wants this one any more. `false`: it is not among them.
    pub(super) fn abandon(&mut self, serial: Serial) -> bool {
        self.0.get_mut(&serial).map(|making| making.give_up(JailError::Gone)).is_some()
    }

    pub(super) fn abandon_all(&mut self) {
        self.0.values_mut().for_each(|making| making.give_up(JailError::Gone));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = i32> {
        self.0.values().map(|making| making.pid)
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        self.0.values().filter(|making| making.given_up.is_none()).map(|making| making.until).min()
    }

    /// Ends those that take too long.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        for making in self.0.values_mut().filter(|making| making.until <= now) {
            making.give_up(lost("it took too long"));
        }
    }
}

impl Making {
    /// The first reason stands; whoever waits hears it when the child has ended.
    fn give_up(&mut self, why: JailError) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        self.given_up.get_or_insert(why);
    }
}

fn lost(why: &str) -> JailError {
    JailError::Disk(why.to_owned())
}

fn pidfd_of(pid: i32) -> rustix::io::Result<OwnedFd> {
    rustix::process::pidfd_open(Pid::from_raw(pid).ok_or(rustix::io::Errno::SRCH)?, PidfdFlags::empty())
}

/// The life of the child. It keeps no descriptor of the launcher open.
fn make(socket: &OwnedFd, folder: &Path, spec: &JailSpec) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    place_descriptor(socket.as_fd(), SOCKET)?;
    close_from(SOCKET as u32 + 1)?;
    let socket = take_descriptor(SOCKET)?;
    // Programs that it starts have no use for it.
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    let root = &spec.root;
    match image::make(folder, root.scratch_bytes, root.scratch_inodes, &spec.name) {
        Ok(mount) => packet::send(socket.as_fd(), &Word::Ok(()), &[mount.as_fd()]),
        Err(why) => packet::send(socket.as_fd(), &Word::Err(why), &[]),
    }
}
