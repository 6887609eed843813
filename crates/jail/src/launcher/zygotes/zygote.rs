//! One zygote as the launcher sees it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Rlimit, Signal};

use super::{FORKS, IDLE, OLD, words};
use crate::cgroup::Leaf;
use crate::error::{JailError, doing};
use crate::launcher::ZygoteConfig;
use crate::launcher::answers::Ticket;
use crate::launcher::introduction::{Limit, numbered};
use crate::launcher::pulse;
use crate::launcher::rooms::Rooms;
use crate::launcher::ward::stream;
use crate::launcher::watch::{Serial, Token, Watched, Watcher};
use crate::spec::PAYLOAD_ID;
use crate::zygote::messages::{self, Join, Said};
use crate::zygote::{self, Started};

/// Who may wait for one zygote, and for how many of them it works at a time.
const LINE: usize = 512;
const AT_ONCE: usize = 16;
/// Imports can take seconds on a busy host; a fork takes a millisecond.
const WARM_WITHIN: Duration = Duration::from_secs(60);
const FORK_WITHIN: Duration = Duration::from_secs(10);
/// Unless it is only slow: with it, its guests lose what they can be copied from.
const SLOW_FORK_WITHIN: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A guest that somebody asked for.
#[derive(Debug)]
pub(in crate::launcher) struct Visit {
    /// Where the answer goes.
    pub(in crate::launcher) ticket: Ticket,
    pub(in crate::launcher) jail: Serial,
}

/// One that the zygote was told of.
#[derive(Debug)]
struct Asked {
    visit: Visit,
    /// The agent's end of the guest's side socket.
    side: OwnedFd,
    since: Instant,
}

/// What a zygote said.
#[derive(Debug)]
pub(in crate::launcher) enum Heard {
    Nothing,
    /// It is warm.
    Ready,
    /// With the guest's number on the host, its pidfd and the agent's end of its side socket.
    Joined(Visit, i32, OwnedFd, OwnedFd),
    Refused(Visit, JailError),
    /// It is of no use any more.
    Broken(String),
}

#[derive(Debug)]
pub(in crate::launcher) struct Zygote {
    name: String,
    owner: String,
    pid: i32,
    pidfd: Watched,
    socket: Option<Watched>,
    leaf: Option<Leaf>,
    warm: bool,
    retired: bool,
    born: Instant,
    used: Instant,
    forks: u64,
    guests: usize,
    line: VecDeque<Visit>,
    asked: BTreeMap<u64, Asked>,
    /// It ended while it forked: nobody knows whether the fork is there.
    may_have_lost: bool,
}

impl Zygote {
    pub(super) fn start(
        kind: &ZygoteConfig,
        watcher: &Watcher,
        serial: Serial,
        owner: &str,
        leaf: Option<Leaf>,
        descriptors: Rlimit,
    ) -> Result<Self, JailError> {
        let started = zygote::start(kind, leaf.as_ref(), descriptors).and_then(|started| {
            let Started { pid, pidfd, socket } = started;
            let watched = watcher
                .readable(pidfd, Token::Zygote(serial))
                .and_then(|pidfd| Ok((pidfd, watcher.readable(socket, Token::Zygote(serial))?)));
            // Without its socket it ends by itself, and is collected when the launcher ends.
            watched.map(|(pidfd, socket)| (pid, pidfd, socket)).map_err(doing("wait for a zygote"))
        });
        let (pid, pidfd, socket) = match started {
            Ok(started) => started,
            Err(e) => {
                if let Some(leaf) = &leaf {
                    leaf.remove();
                }
                return Err(e);
            }
        };
        let now = Instant::now();
        Ok(Self {
            name: kind.name.clone(),
            owner: owner.to_owned(),
            pid,
            pidfd,
            socket: Some(socket),
            leaf,
            warm: false,
            retired: false,
            born: now,
            used: now,
            forks: 0,
            guests: 0,
            line: VecDeque::new(),
            asked: BTreeMap::new(),
            may_have_lost: false,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn is(&self, name: &str, owner: &str) -> bool {
        self.name == name && self.owner == owner
    }

    pub(super) fn is_owned_by(&self, owner: &str) -> bool {
        self.owner == owner
    }

    pub(super) fn owner(&self) -> &str {
        &self.owner
    }

    pub(super) fn is_warm(&self) -> bool {
        self.warm
    }

    pub(super) fn is_retired(&self) -> bool {
        self.retired
    }

    pub(super) fn last_used(&self) -> Instant {
        self.used
    }

    pub(super) fn retire(&mut self) {
        self.retired = true;
    }

    /// Somebody waits for a guest.
    pub(in crate::launcher) fn line_up(&mut self, visit: Visit) -> Result<(), Visit> {
        if self.line.len() >= LINE {
            return Err(visit);
        }
        self.used = Instant::now();
        self.line.push_back(visit);
        Ok(())
    }

    /// Who is next, if it can take one.
    pub(in crate::launcher) fn next(&mut self) -> Option<Visit> {
        let may = self.warm && self.asked.len() < AT_ONCE;
        may.then(|| self.line.pop_front()).flatten()
    }

    /// Asks for one guest.
    pub(in crate::launcher) fn ask(
        &mut self,
        visit: Visit,
        rooms: &Rooms,
        leaf: Option<&Leaf>,
    ) -> Result<(), (Visit, JailError)> {
        let (ours, theirs) = match stream() {
            Ok(pair) => pair,
            Err(e) => return Err((visit, e)),
        };
        let number = self.forks + 1;
        match self.send(number, rooms, leaf, &theirs) {
            Ok(()) => {
                self.forks = number;
                self.asked.insert(number, Asked { visit, side: ours, since: Instant::now() });
                if self.forks >= FORKS {
                    self.retire();
                }
                Ok(())
            }
            Err(e) => Err((visit, e)),
        }
    }

    fn send(&self, number: u64, rooms: &Rooms, leaf: Option<&Leaf>, side: &OwnedFd) -> Result<(), JailError> {
        let entrances = leaf.map_or(Ok(&[][..]), Leaf::entrances)?;
        let mut named = vec![("side", side.as_fd())];
        named.extend(rooms.named(leaf, entrances)?);
        let (names, descriptors): (Vec<_>, Vec<_>) = named.into_iter().unzip();
        let limits: Vec<_> = rooms.limits.iter().map(|limit: &Limit| numbered(*limit)).collect();
        let (uid, gid) = (PAYLOAD_ID, PAYLOAD_ID);
        let join = Join { join: number, uid, gid, rlimits: &limits, fds: &names };
        let socket = self.socket.as_ref().ok_or(JailError::Gone)?;
        messages::send(socket.as_fd(), &join, &descriptors).map_err(doing("speak to a zygote"))
    }

    /// Whether somebody waits for it.
    pub(super) fn is_wanted(&self) -> bool {
        !self.line.is_empty() || !self.asked.is_empty()
    }

    /// What it says next.
    pub(in crate::launcher) fn hear(&mut self) -> Heard {
        let Some(socket) = &self.socket else { return Heard::Nothing };
        let (said, came) = match messages::receive(socket.as_fd()) {
            Ok(None) => return Heard::Nothing,
            Ok(Some(said)) => said,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                return Heard::Broken("the zygote ended".to_owned());
            }
            Err(e) => return Heard::Broken(format!("the zygote cannot be understood: {e}")),
        };
        match said {
            Said::Ready { .. } => {
                if let Some(leaf) = &self.leaf {
                    leaf.prefer(false);
                }
                self.warm = true;
                Heard::Ready
            }
            Said::Failed { failed: 0, step, errno } => {
                Heard::Broken(format!("the zygote did not come up: {}", words(&step, errno)))
            }
            Said::Failed { failed, step, errno } => match self.asked.remove(&failed) {
                Some(asked) => Heard::Refused(asked.visit, not_forked(&step, errno)),
                None => Heard::Nothing,
            },
            Said::Joined { joined, pid } => match (self.asked.remove(&joined), came) {
                (Some(asked), Some(pidfd)) => {
                    self.guests += 1;
                    Heard::Joined(asked.visit, pid, pidfd, asked.side)
                }
                _ => {
                    self.may_have_lost = true;
                    Heard::Broken("the zygote speaks of a guest that nobody asked for".to_owned())
                }
            },
        }
    }

    pub(super) fn lose_guest(&mut self) {
        self.guests = self.guests.saturating_sub(1);
    }

    pub(super) fn forget_line(&mut self) {
        self.line.clear();
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        let late = match self.warm {
            true => self.asked.values().map(|asked| self.look_at(asked.since)).min(),
            false => Some(self.born + WARM_WITHIN),
        };
        let old = (!self.retired).then(|| self.born + OLD);
        let idle = self.is_unused().then(|| self.used + IDLE);
        [late, old, idle].into_iter().flatten().min()
    }

    /// When to look at what it was asked at a moment: first whether it was stopped.
    fn look_at(&self, since: Instant) -> Instant {
        let (now, first) = (Instant::now(), since + FORK_WITHIN);
        if first > now { first } else { (now + LOOK_AGAIN).min(since + SLOW_FORK_WITHIN) }
    }

    fn is_unused(&self) -> bool {
        self.guests == 0 && self.line.is_empty() && self.asked.is_empty()
    }

    /// What it takes too long for.
    pub(super) fn is_late(&self, now: Instant) -> Option<String> {
        if !self.warm && self.born + WARM_WITHIN <= now {
            return Some("the zygote did not get warm in time".to_owned());
        }
        let oldest = self.asked.values().map(|asked| asked.since).min()?;
        let late =
            oldest + SLOW_FORK_WITHIN <= now || (oldest + FORK_WITHIN <= now && pulse::is_stopped(self.pid));
        late.then(|| "the zygote did not answer in time".to_owned())
    }

    /// Retires it when it is old; says whether it has nothing to wait for any more.
    pub(super) fn has_no_reason_to_stay(&mut self, now: Instant) -> bool {
        if self.born + OLD <= now {
            self.retire();
        }
        self.is_unused() && (self.retired || self.used + IDLE <= now)
    }

    /// Kills it. Who waited for it is returned.
    pub(super) fn dismiss(&mut self) -> Vec<Visit> {
        self.socket = None;
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        self.may_have_lost |= !self.asked.is_empty();
        let asked = std::mem::take(&mut self.asked).into_values().map(|asked| asked.visit);
        asked.chain(std::mem::take(&mut self.line)).collect()
    }

    /// Collects it. `None`: it is not dead yet.
    pub(super) fn collect(&mut self) -> Option<bool> {
        match sandstorm_sys::process::reap_descriptor(self.pidfd.as_fd()) {
            Ok(None) => None,
            Ok(Some(_)) | Err(_) => {
                self.remove_leaf();
                Some(self.may_have_lost)
            }
        }
    }

    pub(super) fn remove_leaf(&self) {
        if let Some(leaf) = &self.leaf {
            leaf.remove();
        }
    }
}

/// Why a fork came to nothing. No zygote can fork into a jail that is full or ends.
fn not_forked(step: &str, errno: i32) -> JailError {
    let why = words(step, errno);
    match [Errno::AGAIN, Errno::NOMEM, Errno::NODEV].map(Errno::raw_os_error).contains(&errno) {
        true => JailError::Closed(why),
        false => JailError::NoGuest(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_jail_is_no_failure_of_the_zygote() {
        for errno in [Errno::AGAIN, Errno::NOMEM, Errno::NODEV] {
            assert!(matches!(not_forked("clone", errno.raw_os_error()), JailError::Closed(_)), "{errno}");
        }
        for errno in [Errno::PERM, Errno::NOSYS] {
            assert!(matches!(not_forked("clone", errno.raw_os_error()), JailError::NoGuest(_)), "{errno}");
        }
    }
}
