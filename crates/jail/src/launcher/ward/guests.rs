//! The guest interpreters in a jail: forks of a zygote, children of the launcher.
//!
//! PID 1 does not end before everything in its namespace is collected, and these only the launcher can collect.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;
use sandstorm_sys::process::{Ending, Reaped, reap_descriptor};

use crate::launcher::door;
use crate::launcher::watch::{Part, Serial, Token, Watched, Watcher};

/// Guests that may live in one jail at a time. The jail's own limit of processes is the one that counts; this one bounds
/// what the launcher keeps.
const MOST: usize = 256;

/// One that lives, or that nobody collected yet.
#[derive(Debug)]
pub(in crate::launcher) struct Guest {
    pub(in crate::launcher) number: u32,
    /// The zygote process that it is a fork of.
    pub(in crate::launcher) zygote: Serial,
    pub(in crate::launcher) pid: i32,
    pidfd: Watched,
}

impl Guest {
    pub(in crate::launcher) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// All of one jail.
#[derive(Debug, Default)]
pub(in crate::launcher) struct Guests {
    living: Vec<Guest>,
    count: u32,
    /// Words to the agent that did not fit through the door yet.
    untold: VecDeque<Vec<u8>>,
    waiting_at_door: Option<Watched>,
}

impl Guests {
    pub(super) fn are_full(&self) -> bool {
        self.living.len() >= MOST
    }

    /// Takes one in and tells the agent. On failure it is among the living nevertheless, and killed.
    pub(super) fn welcome(
        &mut self,
        door: BorrowedFd<'_>,
        watcher: &Watcher,
        jail: Serial,
        (zygote, pid, pidfd): (Serial, i32, OwnedFd),
        side: &OwnedFd,
    ) -> io::Result<u32> {
        self.count += 1;
        let number = self.count;
        let pidfd = watcher.readable(pidfd, Token::Jail(jail, Part::Guest))?;
        self.living.push(Guest { number, zygote, pid, pidfd });
        let told = match self.untold.is_empty() {
            true => door::announce(door, number, side.as_fd()),
            // What came before must arrive before.
            false => Err(Errno::AGAIN.into()),
        };
        if told.is_err() {
            self.kill(number);
        }
        told.map(|()| number)
    }

    pub(super) fn get(&self, number: u32) -> Option<&Guest> {
        self.living.iter().find(|guest| guest.number == number)
    }

    pub(super) fn kill(&self, number: u32) {
        if let Some(guest) = self.get(number) {
            let _ = rustix::process::pidfd_send_signal(&guest.pidfd, Signal::KILL);
        }
    }

    pub(super) fn kill_all(&self) {
        for guest in &self.living {
            let _ = rustix::process::pidfd_send_signal(&guest.pidfd, Signal::KILL);
        }
    }

    /// Collects those that ended and tells the agent how. The zygotes that they came from are returned.
    pub(super) fn collect(&mut self) -> Vec<Serial> {
        let mut zygotes = Vec::new();
        let mut untold = Vec::new();
        self.living.retain(|guest| match reap_descriptor(guest.pidfd.as_fd()) {
            Ok(None) => true,
            Ok(Some(reaped)) => {
                untold.push(ending(guest.number, &reaped));
                zygotes.push(guest.zygote);
                false
            }
            // It was collected without us: nobody knows how it ended.
            Err(_) => {
                untold.push(ending(guest.number, &unknown(guest.pid)));
                zygotes.push(guest.zygote);
                false
            }
        });
        self.untold.extend(untold);
        zygotes
    }

    /// Tells the agent what it has not heard, as far as it fits.
    pub(super) fn tell(&mut self, door: &OwnedFd, watcher: &Watcher, jail: Serial) {
        while let Some(word) = self.untold.front() {
            match door::say(door.as_fd(), word) {
                Ok(()) => drop(self.untold.pop_front()),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if self.waiting_at_door.is_none() {
                        let copy = door.try_clone();
                        let watched =
                            copy.and_then(|door| watcher.writable(door, Token::Jail(jail, Part::Door)));
                        self.waiting_at_door = watched.ok();
                    }
                    return;
                }
                // There is no agent any more.
                Err(_) => self.untold.clear(),
            }
        }
        self.waiting_at_door = None;
    }

    /// Which zygotes have forks here.
    pub(super) fn zygotes(&self) -> impl Iterator<Item = Serial> + '_ {
        self.living.iter().map(|guest| guest.zygote)
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = i32> + '_ {
        self.living.iter().map(|guest| guest.pid)
    }
}

fn unknown(pid: i32) -> Reaped {
    Reaped {
        pid,
        ending: Ending::Signal(Signal::KILL.as_raw()),
        user_time: Duration::ZERO,
        system_time: Duration::ZERO,
        peak_memory_bytes: 0,
    }
}

/// `e`, the guest's number, how it ended, and what it used.
fn ending(number: u32, reaped: &Reaped) -> Vec<u8> {
    let (kind, value) = match reaped.ending {
        Ending::Code(code) => (0u8, code),
        Ending::Signal(signal) => (1, signal),
    };
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let mut word = vec![b'e'];
    word.extend(number.to_le_bytes());
    word.push(kind);
    word.extend(value.to_le_bytes());
    word.extend(micros(reaped.user_time).to_le_bytes());
    word.extend(micros(reaped.system_time).to_le_bytes());
    word.extend(reaped.peak_memory_bytes.to_le_bytes());
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_guest_is_told_in_these_bytes() {
        let reaped = Reaped {
            pid: 5,
            ending: Ending::Signal(9),
            user_time: Duration::from_micros(3),
            system_time: Duration::from_millis(1),
            peak_memory_bytes: 4096,
        };
        let word = ending(7, &reaped);
        assert_eq!(word.len(), 1 + 4 + 1 + 4 + 8 * 3);
        assert_eq!(word[..10], [b'e', 7, 0, 0, 0, 1, 9, 0, 0, 0]);
        assert_eq!(word[10..18], 3u64.to_le_bytes());
        assert_eq!(word[18..26], 1000u64.to_le_bytes());
        assert_eq!(word[26..], 4096u64.to_le_bytes());
    }
}
