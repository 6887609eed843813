//! Transplants, by children of the launcher: one takes as long as there is memory to copy.
//!
//! A surgeon waits for the next one when it is done. All that it touches is its own by then, where a new fork of the
//! launcher would copy it page by page while somebody waits. It has nothing open but its socket; whom it operates on comes
//! with the order.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, Signal};
use sandstorm_sys::fork::{Forked, exit_now};
use sandstorm_sys::process::{close_from, place_descriptor, take_descriptor};
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

/// Where a surgeon has its socket.
const SOCKET: i32 = 3;

/// Whom to copy into whom: numbers on the host. What they are known by comes beside it.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    source: i32,
    destination: i32,
}

/// What a surgeon says when it is done.
#[derive(Debug, Serialize, Deserialize)]
enum Word {
    Done(TransplantReport),
    Failed { why: String, spoiled: bool },
}

/// A guest that takes part: its number on the host, and what it is known by.
pub(super) type Patient<'a> = (i32, BorrowedFd<'a>);

/// A transplant under way.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) ticket: Ticket,
    pub(super) from: GuestId,
    pub(super) to: GuestId,
}

#[derive(Debug)]
pub(super) struct Surgeon {
    pid: i32,
    pidfd: Watched,
    /// Until it is sent away, or has gone.
    socket: Option<Watched>,
    /// And until when it may take.
    busy: Option<(Operation, Instant)>,
}

/// How it went. A destination that is half a copy is spoiled.
pub(super) struct Outcome {
    pub(super) operation: Operation,
    pub(super) result: Result<TransplantReport, JailError>,
    pub(super) spoiled: bool,
}

impl Surgeon {
    pub(super) fn hire(watcher: &Watcher, serial: Serial) -> Result<Self, JailError> {
        let (ours, theirs) = packet::pair().map_err(doing("make a socket"))?;
        // By way of libc: the child has threads of its own.
        match sandstorm_sys::fork::fork().map_err(doing("fork"))? {
            Forked::Child => {
                let served = serve(&theirs);
                exit_now(if served.is_ok() { 0 } else { 1 })
            }
            Forked::Parent { pid } => {
                drop(theirs);
                // Nobody else collects it, so the number is its own until we do.
                let pidfd = pidfd_of(pid).map_err(doing("wait for a transplant"))?;
                let token = Token::Surgeon(serial);
                let pidfd = watcher.readable(pidfd, token).map_err(doing("wait for a transplant"))?;
                let socket = watcher.readable(ours, token).map_err(doing("wait for a transplant"))?;
                Ok(Self { pid, pidfd, socket: Some(socket), busy: None })
            }
        }
    }

    /// Whether it can take an order.
    pub(super) fn is_free(&self) -> bool {
        self.busy.is_none() && self.socket.as_ref().is_some_and(|socket| !is_readable(socket.as_fd()))
    }

    /// Begins; `Err`: it has gone, and nothing was begun.
    pub(super) fn operate(
        &mut self,
        operation: Operation,
        [(source, known_source), (destination, known_destination)]: [Patient<'_>; 2],
    ) -> Result<(), (Ticket, JailError)> {
        let order = Order { source, destination };
        let sent = self
            .socket
            .as_ref()
            .ok_or(std::io::ErrorKind::BrokenPipe.into())
            .and_then(|socket| packet::send(socket.as_fd(), &order, &[known_source, known_destination]));
        match sent {
            Ok(()) => {
                self.busy = Some((operation, Instant::now() + PATIENCE));
                Ok(())
            }
            Err(e) => Err((operation.ticket, doing("order a transplant")(e))),
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    pub(super) fn next_look(&self) -> Option<Instant> {
        self.busy.as_ref().map(|(_, give_up)| *give_up)
    }

    /// Whether it is at work on a guest.
    pub(super) fn concerns(&self, guest: &GuestId) -> bool {
        self.busy.as_ref().is_some_and(|(operation, _)| operation.from == *guest || operation.to == *guest)
    }

    pub(super) fn kill(&self) {
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// It ends when it sees that nobody is there any more.
    pub(super) fn send_away(&mut self) {
        self.socket = None;
    }

    /// What it says of its operation, once. One that ends without a word has spoiled whatever it touched.
    pub(super) fn outcome(&mut self) -> Option<Outcome> {
        let socket = self.socket.as_ref().filter(|socket| is_readable(socket.as_fd()))?;
        let (result, spoiled) = match packet::receive::<Word>(socket.as_fd()) {
            Ok(Some((Word::Done(report), _))) => (Ok(report), false),
            Ok(Some((Word::Failed { why, spoiled }, _))) => (Err(JailError::NotCarried(why)), spoiled),
            Ok(None) | Err(_) => {
                self.socket = None;
                (Err(JailError::NotCarried("whoever copied it ended".to_owned())), true)
            }
        };
        let (operation, _) = self.busy.take()?;
        Some(Outcome { operation, result, spoiled })
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

/// The life of a surgeon.
fn serve(socket: &OwnedFd) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    place_descriptor(socket.as_fd(), SOCKET)?;
    close_from(SOCKET as u32 + 1)?;
    let socket = take_descriptor(SOCKET)?;
    while let Some((Order { source, destination }, known_by)) = packet::receive(socket.as_fd())? {
        let [known_source, known_destination] = &known_by[..] else {
            return Err(std::io::ErrorKind::InvalidData.into());
        };
        let (source, destination) =
            ((source, known_source.as_fd()), (destination, known_destination.as_fd()));
        // In a thread of its own, which ends: the kernel then lets go of whatever it still traces, or ends it. Of a guest that
        // was killed meanwhile nobody would ever hear otherwise.
        let done = std::thread::scope(|scope| scope.spawn(|| operate(source, destination)).join());
        let panicked = |_| Word::Failed { why: "whoever copied it panicked".to_owned(), spoiled: true };
        packet::send(socket.as_fd(), &done.unwrap_or_else(panicked), &[])?;
    }
    Ok(())
}

fn operate(source: Patient<'_>, destination: Patient<'_>) -> Word {
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

fn guest((pid, pidfd): Patient<'_>) -> Guest<'_> {
    Guest { pid, pidfd, side: None }
}
