//! A transplant under way: a child of the launcher does it, since it takes as long as there is memory to copy.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Signal};
use sandstorm_sys::fork::Forked;
use sandstorm_sys::ptrace::number;
use serde::{Deserialize, Serialize};

use super::answers::Ticket;
use super::protocol::{GuestId, TransplantReport};
use super::watch::{Serial, Token, Watched, Watcher};
use crate::error::{JailError, doing};
use crate::packet;
use crate::transplant::{self, Guest};

/// A copy of everything that a host's memory holds takes less.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a guest that is done may take until it waits, and how often that is looked at.
const SETTLES: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// What the child says.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    Done(TransplantReport),
    Failed { why: String, spoiled: bool },
}

/// A guest that takes part: its number on the host, and what it is known by.
pub(super) type Patient<'a> = (i32, BorrowedFd<'a>);

#[derive(Debug)]
pub(super) struct Surgery {
    pub(super) ticket: Ticket,
    pub(super) from: GuestId,
    pub(super) to: GuestId,
    pid: i32,
    pidfd: Watched,
    /// Until it has said how it went.
    socket: Option<Watched>,
    give_up: Instant,
}

/// How it went. A destination that is half a copy is spoiled.
pub(super) struct Outcome {
    pub(super) result: Result<TransplantReport, JailError>,
    pub(super) spoiled: bool,
}

impl Surgery {
    pub(super) fn begin(
        watcher: &Watcher,
        serial: Serial,
        ticket: Ticket,
        (from, source): (GuestId, Patient<'_>),
        (to, destination): (GuestId, Patient<'_>),
    ) -> Result<Self, (Ticket, JailError)> {
        let begun = (|| {
            let (ours, theirs) = packet::pair().map_err(doing("make a socket"))?;
            // By way of libc: the child has threads of its own.
            match sandstorm_sys::fork::fork().map_err(doing("fork"))? {
                Forked::Child => {
                    drop(ours);
                    let said = packet::send(theirs.as_fd(), &operate(source, destination), &[]);
                    sandstorm_sys::fork::exit_now(if said.is_ok() { 0 } else { 1 })
                }
                Forked::Parent { pid } => {
                    drop(theirs);
                    // Nobody else collects it, so the number is its own until we do.
                    let pidfd = pidfd_of(pid).map_err(doing("wait for a transplant"))?;
                    let token = Token::Surgery(serial);
                    let pidfd = watcher.readable(pidfd, token).map_err(doing("wait for a transplant"))?;
                    let socket = watcher.readable(ours, token).map_err(doing("wait for a transplant"))?;
                    Ok((pid, pidfd, socket))
                }
            }
        })();
        match begun {
            Ok((pid, pidfd, socket)) => Ok(Self {
                ticket,
                from,
                to,
                pid,
                pidfd,
                socket: Some(socket),
                give_up: Instant::now() + PATIENCE,
            }),
            Err(e) => Err((ticket, e)),
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn next_look(&self) -> Instant {
        self.give_up
    }

    /// Whether it concerns a guest. Whoever has said how it went touches nobody any more.
    pub(super) fn concerns(&self, guest: &GuestId) -> bool {
        self.socket.is_some() && (self.from == *guest || self.to == *guest)
    }

    pub(super) fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// What the child says, once. One that ends without a word has spoiled whatever it touched.
    pub(super) fn outcome(&mut self) -> Option<Outcome> {
        let socket = self.socket.take_if(|socket| is_readable(socket.as_fd()))?;
        Some(match packet::receive::<Word>(socket.as_fd()) {
            Ok(Some((Word::Done(report), _))) => Outcome { result: Ok(report), spoiled: false },
            Ok(Some((Word::Failed { why, spoiled }, _))) => {
                Outcome { result: Err(JailError::NotCarried(why)), spoiled }
            }
            Ok(None) | Err(_) => {
                let why = "whoever copied it ended".to_owned();
                Outcome { result: Err(JailError::NotCarried(why)), spoiled: true }
            }
        })
    }

    /// Collects the child, if it has ended.
    pub(super) fn is_over(&self) -> bool {
        !matches!(sandstorm_sys::process::reap_descriptor(self.pidfd.as_fd()), Ok(None))
    }
}

fn is_readable(socket: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], Some(&now)).is_ok_and(|n| n > 0)
}

fn pidfd_of(pid: i32) -> Result<OwnedFd, Errno> {
    rustix::process::pidfd_open(Pid::from_raw(pid).ok_or(Errno::SRCH)?, PidfdFlags::empty())
}

fn operate(source: Patient<'_>, destination: Patient<'_>) -> Word {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    // Each has just said that it is done; a moment later it waits for what comes next.
    for (pid, _) in [source, destination] {
        wait_until_idle(pid);
    }
    match transplant::transplant(guest(source), guest(destination)) {
        Ok(report) => Word::Done(report),
        Err(error) => {
            let mut why = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                why.push_str(&format!(": {error}"));
                cause = error.source();
            }
            Word::Failed { why, spoiled: error.destination_spoiled }
        }
    }
}

/// Waits until a guest sleeps in a call that it reads with, for as long as that can take on a busy host. Whether it really
/// does is looked at again when it is stopped.
fn wait_until_idle(pid: i32) {
    let give_up = Instant::now() + SETTLES;
    while Instant::now() < give_up {
        let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        let call = call.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
        if call.is_some_and(|call: i64| [number::READ, number::RECVFROM, number::RECVMSG].contains(&call)) {
            return;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The borrowed descriptors are copies that this child was born with.
fn guest((pid, pidfd): Patient<'_>) -> Guest<'_> {
    Guest { pid, pidfd, side: None }
}
