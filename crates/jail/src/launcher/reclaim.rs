//! Memory of paused jails that the kernel is asked to take back: page cache, and where the host has swap, the rest.
//!
//! The kernel may take seconds for it, and the launcher must not wait. A child writes the one word and ends; few at once,
//! since all of them write to the same disk. It is best effort: what cannot be had stays where it is.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Signal};
use sandstorm_sys::fork::{Forked, exit_now};
use sandstorm_sys::process::{close_from, place_descriptor};

use super::watch::{Token, Watched, Watcher};
use crate::cgroup::Reclaim;
use crate::error::{JailError, doing};

/// How long a jail stands still before its memory is asked for. One that is only looked at or copied goes on sooner.
const AFTER: Duration = Duration::from_secs(1);
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many jails at once.
const AT_ONCE: usize = 2;
/// Where the child has the kernel's file.
const FILE: i32 = 3;

#[derive(Debug, Default)]
pub(super) struct Reclaims {
    /// Names of jails whose turn comes, and from when on.
    waiting: VecDeque<(Instant, String)>,
    busy: Vec<Helper>,
}

#[derive(Debug)]
struct Helper {
    name: String,
    pid: i32,
    pidfd: Watched,
    until: Instant,
}

impl Reclaims {
    pub(super) fn add(&mut self, name: &str) {
        self.waiting.push_back((Instant::now() + AFTER, name.to_owned()));
    }

    /// The jail goes on, or has ended: its memory is left alone.
    pub(super) fn cancel(&mut self, name: &str) {
        self.waiting.retain(|(_, waiting)| waiting != name);
        for helper in self.busy.iter().filter(|helper| helper.name == name) {
            helper.kill();
        }
    }

    /// The next one whose turn has come.
    pub(super) fn next(&mut self) -> Option<String> {
        if self.busy.len() >= AT_ONCE || self.waiting.front()?.0 > Instant::now() {
            return None;
        }
        self.waiting.pop_front().map(|(_, name)| name)
    }

    pub(super) fn begin(
        &mut self,
        name: String,
        reclaim: &Reclaim,
        watcher: &Watcher,
    ) -> Result<(), JailError> {
        match sandstorm_sys::fork::fork().map_err(doing("fork"))? {
            Forked::Child => exit_now(if ask_kernel(reclaim).is_ok() { 0 } else { 1 }),
            Forked::Parent { pid } => {
                // The launcher alone collects it, so the number is its own until then.
                let pidfd = pidfd_of(pid).map_err(doing("watch a helper"))?;
                let pidfd = watcher.readable(pidfd, Token::Reclaim).map_err(doing("watch a helper"))?;
                self.busy.push(Helper { name, pid, pidfd, until: Instant::now() + PATIENCE });
                Ok(())
            }
        }
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = i32> {
        self.busy.iter().map(|helper| helper.pid)
    }

    /// Collects the helpers that ended.
    pub(super) fn collect(&mut self) {
        self.busy.retain(|helper| {
            matches!(sandstorm_sys::process::reap_descriptor(helper.pidfd.as_fd()), Ok(None))
        });
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        let next = self.waiting.front().filter(|_| self.busy.len() < AT_ONCE).map(|(from, _)| *from);
        self.busy.iter().map(|helper| helper.until).chain(next).min()
    }

    /// Ends the helpers that take too long.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        for helper in self.busy.iter_mut().filter(|helper| helper.until <= now) {
            helper.kill();
            helper.until = now + PATIENCE;
        }
    }

    pub(super) fn kill_all(&self) {
        self.busy.iter().for_each(Helper::kill);
    }
}

impl Helper {
    fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

fn pidfd_of(pid: i32) -> rustix::io::Result<OwnedFd> {
    rustix::process::pidfd_open(Pid::from_raw(pid).ok_or(rustix::io::Errno::SRCH)?, PidfdFlags::empty())
}

/// The life of a helper. It keeps no descriptor of the launcher open.
fn ask_kernel(reclaim: &Reclaim) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    place_descriptor(reclaim.file.as_fd(), FILE)?;
    close_from(FILE as u32 + 1)?;
    let file = sandstorm_sys::process::take_descriptor(FILE)?;
    // The kernel refuses where less could be had than asked for, which is as good as it gets.
    rustix::io::write(&file, reclaim.word.as_bytes())?;
    Ok(())
}
