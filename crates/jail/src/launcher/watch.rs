//! What the loop waits for: descriptors, each with a word that says whose it is.
//!
//! A child that was forked but not executed yet still has copies of all descriptors, so closing one here would not take it
//! off the list. [`Watched`] takes it off first.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::timespec;

/// Things that are dealt with in one turn of the loop.
const AT_ONCE: usize = 64;

/// Names a newborn, a jail, a zygote or a helper for as long as the launcher lives.
pub(super) type Serial = u64;

/// Whose descriptor it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// Somebody connects.
    Listener,
    /// Somebody says who they are.
    Greeter,
    Client,
    Newborn(Serial),
    Jail(Serial, Part),
    Zygote(Serial),
    Surgeon(Serial),
    /// A process that lost whoever knew it.
    Stray,
    /// A helper that asks the kernel for memory has ended.
    Reclaim,
    /// The guardian asks for a sign of life.
    Guardian,
    /// A helper that makes a jail's space.
    Disk(Serial),
    /// A helper that unmounts the space of a jail that is gone.
    Unmount,
}

/// What of a jail it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Init,
    Alarm,
    Guest,
    Door,
}

impl Token {
    fn encode(self) -> u64 {
        let (kind, serial) = match self {
            Self::Listener => (0, 0),
            Self::Greeter => (1, 0),
            Self::Client => (2, 0),
            Self::Newborn(serial) => (3, serial),
            Self::Jail(serial, Part::Init) => (4, serial),
            Self::Jail(serial, Part::Alarm) => (5, serial),
            Self::Jail(serial, Part::Guest) => (6, serial),
            Self::Jail(serial, Part::Door) => (7, serial),
            Self::Zygote(serial) => (8, serial),
            Self::Surgeon(serial) => (9, serial),
            Self::Stray => (10, 0),
            Self::Guardian => (11, 0),
            Self::Reclaim => (12, 0),
            Self::Disk(serial) => (13, serial),
            Self::Unmount => (14, 0),
        };
        (serial << 4) | kind
    }

    fn decode(word: u64) -> Option<Self> {
        let serial = word >> 4;
        Some(match word & 15 {
            0 => Self::Listener,
            1 => Self::Greeter,
            2 => Self::Client,
            3 => Self::Newborn(serial),
            4 => Self::Jail(serial, Part::Init),
            5 => Self::Jail(serial, Part::Alarm),
            6 => Self::Jail(serial, Part::Guest),
            7 => Self::Jail(serial, Part::Door),
            8 => Self::Zygote(serial),
            9 => Self::Surgeon(serial),
            10 => Self::Stray,
            11 => Self::Guardian,
            12 => Self::Reclaim,
            13 => Self::Disk(serial),
            14 => Self::Unmount,
            _ => return None,
        })
    }
}

/// The list.
#[derive(Debug, Clone)]
pub(super) struct Watcher(Rc<OwnedFd>);

impl Watcher {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Rc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?)))
    }

    /// Waits until something can be read.
    pub(super) fn readable(&self, fd: OwnedFd, token: Token) -> io::Result<Watched> {
        self.watch(fd, token, EventFlags::IN)
    }

    pub(super) fn writable(&self, fd: OwnedFd, token: Token) -> io::Result<Watched> {
        self.watch(fd, token, EventFlags::OUT)
    }

    pub(super) fn urgent(&self, fd: OwnedFd, token: Token) -> io::Result<Watched> {
        self.watch(fd, token, EventFlags::PRI)
    }

    fn watch(&self, fd: OwnedFd, token: Token, events: EventFlags) -> io::Result<Watched> {
        epoll::add(&self.0, &fd, EventData::new_u64(token.encode()), events)?;
        Ok(Watched { fd, list: Rc::clone(&self.0) })
    }

    /// Waits for the first, and takes what else there is.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> io::Result<Vec<Token>> {
        let mut events: Vec<Event> = Vec::with_capacity(AT_ONCE);
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.0, room, timeout.map(timespec).as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(events.iter().filter_map(|event| Token::decode(event.data.u64())).collect())
    }
}

/// A descriptor on the list.
#[derive(Debug)]
pub(super) struct Watched {
    fd: OwnedFd,
    list: Rc<OwnedFd>,
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = epoll::delete(&self.list, &self.fd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet;

    #[test]
    fn every_token_is_read_as_it_was_written() {
        let parts = [Part::Init, Part::Alarm, Part::Guest, Part::Door];
        let jails = parts.into_iter().map(|part| Token::Jail(77, part));
        let others = [
            Token::Listener,
            Token::Greeter,
            Token::Client,
            Token::Newborn(1 << 40),
            Token::Zygote(3),
            Token::Surgeon(4),
            Token::Stray,
            Token::Guardian,
            Token::Reclaim,
            Token::Disk(5),
            Token::Unmount,
        ];
        for token in others.into_iter().chain(jails) {
            assert_eq!(Token::decode(token.encode()), Some(token));
        }
    }

    #[test]
    fn what_is_dropped_is_no_longer_waited_for_though_others_hold_it() {
        let watcher = Watcher::new().unwrap();
        let (a, b) = packet::pair().unwrap();
        let copy = b.try_clone().unwrap();
        let watched = watcher.readable(b, Token::Client).unwrap();
        rustix::io::write(&a, b"x").unwrap();
        assert_eq!(watcher.wait(Some(Duration::ZERO)).unwrap(), [Token::Client]);
        drop(watched);
        assert!(watcher.wait(Some(Duration::ZERO)).unwrap().is_empty());
        drop(copy);
    }
}
