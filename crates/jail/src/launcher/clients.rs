//! Who the launcher serves: the one client that it was forked for, or whoever comes to its address.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::SocketFlags;
use rustix::net::sockopt::{self, Timeout};

use super::hello::{self, Greeting};
use super::protocol::{Answer, Request};
use super::sources::MountSources;
use super::watch::{Token, Watched, Watcher};
use super::{Abilities, JailError};
use crate::error::doing;
use crate::packet;

/// How long somebody may take to say who they are, and how many may be about to.
const GREET_WITHIN: Duration = Duration::from_secs(5);
const GUESTS: usize = 16;

/// A client that does not read its answers for so long is given up: jails have to be watched.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Without jails and clients a resident launcher stays this long.
const IDLE: Duration = Duration::from_secs(10);

pub(super) enum Clients {
    /// One, with which everything ends.
    Only(Watched),
    Resident(Box<Reception>),
}

/// The clients of a resident launcher: one at a time, and the newest.
pub(super) struct Reception {
    watcher: Watcher,
    listener: Watched,
    /// Who may come beside this process's own user.
    allowed_uid: u32,
    abilities: Abilities,
    /// Without a client for this long everything ends.
    orphan_after: Duration,
    client: Option<Watched>,
    /// The client went; what it asked before that is still to be read.
    deaf: bool,
    /// How many clients came and went so far.
    changes: u64,
    guests: Vec<(Watched, Instant)>,
    alone_since: Instant,
    idle_since: Option<Instant>,
    draining: bool,
    /// What our own user said that jails may show.
    sources: Option<MountSources>,
}

impl Reception {
    pub(super) fn new(
        watcher: &Watcher,
        listener: OwnedFd,
        allowed_uid: u32,
        abilities: Abilities,
        orphan_after: Duration,
    ) -> io::Result<Self> {
        Ok(Self {
            watcher: watcher.clone(),
            listener: watcher.readable(listener, Token::Listener)?,
            allowed_uid,
            abilities,
            orphan_after,
            client: None,
            deaf: false,
            changes: 0,
            guests: Vec::new(),
            alone_since: Instant::now(),
            idle_since: Some(Instant::now()),
            draining: false,
            sources: None,
        })
    }

    /// Takes a connection from somebody who may connect.
    fn accept(&mut self) {
        let Ok(guest) = rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC) else { return };
        let own = rustix::process::geteuid().as_raw();
        let known = sockopt::socket_peercred(&guest)
            .is_ok_and(|peer| peer.uid.as_raw() == own || peer.uid.as_raw() == self.allowed_uid);
        let bounded = sockopt::set_socket_timeout(&guest, Timeout::Send, Some(ANSWER_WITHIN)).is_ok();
        if known
            && bounded
            && self.guests.len() < GUESTS
            && let Ok(guest) = self.watcher.readable(guest, Token::Greeter)
        {
            self.guests.push((guest, Instant::now() + GREET_WITHIN));
        }
    }

    /// Hears what a guest says. `true`: it is the client now.
    fn greet(&mut self, guest: &Watched) -> bool {
        match hello::hear(guest.as_fd()) {
            Some(Greeting::Hello { version: Some(version) })
                if !self.draining && hello::welcome(guest.as_fd(), version, self.abilities).is_ok() =>
            {
                return self.change_client(guest);
            }
            Some(Greeting::Hello { .. }) => {
                let _ = hello::welcome(guest.as_fd(), 0, self.abilities);
            }
            Some(Greeting::Drain) => self.draining = true,
            Some(Greeting::Sources(sources)) => {
                // A client with fewer rights is who they are meant for.
                let own = rustix::process::geteuid();
                if sockopt::socket_peercred(guest).is_ok_and(|peer| peer.uid == own) {
                    self.sources = Some(sources);
                    let _ = hello::say_sources_taken(guest.as_fd());
                }
            }
            None => {}
        }
        false
    }

    fn change_client(&mut self, guest: &Watched) -> bool {
        let copy = guest.as_fd().try_clone_to_owned();
        let Ok(client) = copy.and_then(|client| self.watcher.readable(client, Token::Client)) else {
            return false;
        };
        self.changes += 1;
        self.deaf = false;
        if let Some(older) = self.client.replace(client) {
            // It must not come back and take the jails away again.
            let _ = packet::send(older.as_fd(), &Answer::Replaced, &[]);
        }
        true
    }

    fn lose_client(&mut self) {
        self.client = None;
        self.changes += 1;
        self.alone_since = Instant::now();
    }
}

impl Clients {
    /// Changes whenever a client comes or goes: what the one before asked for is nobody's any more.
    pub(super) fn changes(&self) -> u64 {
        match self {
            Self::Only(_) => 0,
            Self::Resident(reception) => reception.changes,
        }
    }

    /// What jails may show from now on, if somebody who may said that.
    pub(super) fn take_sources(&mut self) -> Option<MountSources> {
        match self {
            Self::Only(_) => None,
            Self::Resident(reception) => reception.sources.take(),
        }
    }

    /// The moment at which something ends without any socket saying so.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let Self::Resident(reception) = self else { return None };
        let guests = reception.guests.iter().map(|(_, until)| *until);
        let idle = reception.idle_since.map(|since| since + IDLE);
        let orphaned = reception.client.is_none().then(|| reception.alone_since + reception.orphan_after);
        guests.chain(idle).chain(orphaned).min()
    }

    /// Lets in who is at the door, and turns away who does not say anything. `true`: there is a new client.
    pub(super) fn welcome(&mut self, connected: bool) -> bool {
        let Self::Resident(reception) = self else { return false };
        let now = Instant::now();
        let mut new = false;
        for (guest, until) in std::mem::take(&mut reception.guests) {
            if is_readable(guest.as_fd()) {
                new |= reception.greet(&guest);
            } else if until > now {
                reception.guests.push((guest, until));
            }
        }
        if connected {
            reception.accept();
        }
        new
    }

    /// The next request, if there is one. An error means that the only client is gone or cannot be understood.
    pub(super) fn hear(&mut self) -> Result<Option<(Request, Vec<OwnedFd>)>, JailError> {
        match self {
            Self::Only(client) => match packet::receive(client.as_fd()).map_err(doing("read a request"))? {
                None => Ok(Some((Request::Shutdown, Vec::new()))),
                some => Ok(some),
            },
            Self::Resident(reception) => {
                // A newer client may have taken the place of the one that was waited for.
                let Some(client) = &reception.client else { return Ok(None) };
                if !is_readable(client.as_fd()) {
                    return Ok(None);
                }
                match packet::receive(client.as_fd()) {
                    Ok(Some(request)) => Ok(Some(request)),
                    Ok(None) | Err(_) => {
                        reception.lose_client();
                        Ok(None)
                    }
                }
            }
        }
    }

    /// Tells the client. `false`: there is none any more.
    pub(super) fn say(&mut self, answer: &Answer, descriptors: &[BorrowedFd<'_>]) -> bool {
        match self {
            // A client that is going: the next read says so, and everything is taken down in order.
            Self::Only(client) => packet::send(client.as_fd(), answer, descriptors).is_ok(),
            Self::Resident(reception) => match &reception.client {
                Some(client) if !reception.deaf => match packet::send(client.as_fd(), answer, descriptors) {
                    Ok(()) => true,
                    Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                        reception.deaf = true;
                        false
                    }
                    Err(_) => {
                        reception.lose_client();
                        false
                    }
                },
                _ => false,
            },
        }
    }

    /// Whether there is nothing left to wait for.
    pub(super) fn are_over(&mut self, no_jails: bool) -> bool {
        let Self::Resident(reception) = self else { return false };
        let now = Instant::now();
        let idle = no_jails && reception.client.is_none();
        reception.idle_since = if idle { reception.idle_since.or(Some(now)) } else { None };
        let orphaned = reception.client.is_none() && now >= reception.alone_since + reception.orphan_after;
        orphaned
            || (reception.draining && no_jails)
            || reception.idle_since.is_some_and(|since| now >= since + IDLE)
    }
}

fn is_readable(socket: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_to_which_nobody_ever_comes_is_idle_from_the_start() {
        let watcher = Watcher::new().unwrap();
        let (listener, _other) = packet::pair().unwrap();
        let hour = Duration::from_secs(3600);
        let reception = Reception::new(&watcher, listener, 0, Abilities::default(), hour).unwrap();
        let mut clients = Clients::Resident(Box::new(reception));
        assert!(clients.next_look().is_some_and(|at| at <= Instant::now() + IDLE));
        assert!(!clients.are_over(true));
    }
}
