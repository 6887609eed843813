//! Network namespaces of jails without a network: made by the launcher, used again when nothing was done in them.
//!
//! To make one costs the kernel more than the rest of a jail's namespaces together, and to unmake it as much again. They
//! belong to the host's user namespace, so nobody in a jail has any right in them, not even its root; `lo` is up before a
//! jail comes in. One in which a packet was sent, a connection tried or a socket left is thrown away: its counters would
//! tell the next jail of it.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::network;

/// Those that wait for a jail.
const MOST: usize = 64;

/// What a namespace tells of its past: interfaces with their counters, every counter of the protocols, sockets of every
/// kind that exist or wait for their end.
const PAST: [&str; 7] = [
    "net/dev",
    "net/snmp",
    "net/netstat",
    "net/snmp6",
    "net/sockstat",
    "net/sockstat6",
    // Flow labels linger for minutes after their socket, with an address of the program's choice.
    "net/ip6_flowlabel",
];

/// No such file is as long.
const LONGEST: usize = 16 * 1024;

/// Numbers among those that are the whole host's.
const OF_THE_HOST: [&str; 2] = ["alloc", "mem"];

#[derive(Debug)]
pub(super) struct Networks {
    /// The launcher's own.
    own: OwnedFd,
    /// What a namespace says that nothing happened in.
    untouched: Option<Vec<String>>,
    spare: Vec<Namespace>,
    /// Held by all whose past can be read.
    counted: Rc<()>,
    /// Where it is read to: room for so much is dear to get for each file.
    room: Vec<u8>,
}

/// One network namespace.
#[derive(Debug)]
pub(super) struct Namespace {
    entrance: OwnedFd,
    /// The files that tell its past, opened inside: they tell of it wherever they are read. One that has none serves one
    /// jail only.
    past: Vec<Option<File>>,
    _counted: Option<Rc<()>>,
}

impl Namespace {
    /// One of which nobody will ask what it was used for.
    pub(super) fn of_others(entrance: OwnedFd) -> Self {
        Self { entrance, past: Vec::new(), _counted: None }
    }

    /// That of this process, with its past.
    fn here(counted: &Rc<()>) -> io::Result<Self> {
        let open = |file: &&str| match File::open(format!("/proc/self/{file}")) {
            Ok(opened) => Ok(Some(opened)),
            // A kernel without IPv6 has no file for it.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        };
        let past = PAST.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { entrance: namespace()?, past, _counted: Some(Rc::clone(counted)) })
    }

    fn past(&self, room: &mut Vec<u8>) -> io::Result<Vec<String>> {
        let files = self.past.iter().zip(&PAST);
        files.map(|(file, name)| told(file.as_ref(), name, room).map(Cow::into_owned)).collect()
    }

    /// Whether this is its past.
    fn tells(&self, past: &[String], room: &mut Vec<u8>) -> io::Result<bool> {
        for ((file, name), past) in self.past.iter().zip(&PAST).zip(past) {
            if told(file.as_ref(), name, room)? != *past {
                return Ok(false);
            }
        }
        Ok(self.past.len() == past.len())
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.entrance.as_fd()
    }
}

impl Networks {
    /// To be made by a process that may enter and leave network namespaces.
    pub(super) fn new() -> io::Result<Self> {
        let (own, room) = (namespace()?, Vec::with_capacity(LONGEST));
        Ok(Self { own, untouched: None, spare: Vec::new(), counted: Rc::default(), room })
    }

    /// One with nothing but loopback.
    pub(super) fn take(&mut self) -> io::Result<Namespace> {
        match self.spare.pop() {
            Some(spare) => Ok(spare),
            None => self.make(),
        }
    }

    fn make(&mut self) -> io::Result<Namespace> {
        sandstorm_sys::process::unshare_network_namespace()?;
        // More than can wait afterwards need not be fit for that: each would hold a descriptor for every file.
        let made = match Rc::strong_count(&self.counted) <= MOST {
            true => Namespace::here(&self.counted),
            false => namespace().map(Namespace::of_others),
        };
        let made = made.and_then(|made| {
            network::loopback_up().map_err(io::Error::other)?;
            if self.untouched.is_none() {
                let past = made.past(&mut self.room)?;
                self.untouched = Some(past.iter().map(|text| without_sockets(text)).collect());
            }
            Ok(made)
        });
        self.leave();
        made
    }

    /// What follows a failure would happen in a jail's network: there is no going on from that.
    fn leave(&self) {
        if enter(self.own.as_fd()).is_err() {
            sandstorm_sys::fork::exit_now(1);
        }
    }

    /// Takes one back from a jail that is gone. It waits for the next if nobody can tell that it was used.
    pub(super) fn give_back(&mut self, network: Namespace) {
        let Some(untouched) = &self.untouched else { return };
        if self.spare.len() < MOST && network.tells(untouched, &mut self.room).unwrap_or(false) {
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

/// What one of the files says of its namespace.
fn told<'a>(file: Option<&File>, name: &str, room: &'a mut Vec<u8>) -> io::Result<Cow<'a, str>> {
    Ok(match file {
        Some(file) if name.contains("sockstat") => of_the_namespace(whole(file, room)?).into(),
        Some(file) => whole(file, room)?.into(),
        None => "".into(),
    })
}

/// In one piece: such a file does not say how long it is, and is made anew for each part that is read.
fn whole<'a>(file: &File, room: &'a mut Vec<u8>) -> io::Result<&'a str> {
    room.clear();
    room.reserve(LONGEST);
    rustix::io::pread(file, rustix::buffer::spare_capacity(room), 0)?;
    if room.len() == room.capacity() {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    std::str::from_utf8(room).map_err(io::Error::other)
}

/// The socket by which the device was brought up may still be on its way out.
fn without_sockets(text: &str) -> String {
    match text.strip_prefix("sockets: used ").and_then(|rest| rest.split_once(' ')) {
        Some((_, rest)) => format!("sockets: used 0 {rest}"),
        None => text.to_owned(),
    }
}

fn of_the_namespace(sockets: &str) -> String {
    let mut words = sockets.split_whitespace();
    let mut kept = String::new();
    while let Some(word) = words.next() {
        if OF_THE_HOST.contains(&word) {
            words.next();
        } else {
            kept.push_str(word);
            kept.push(' ');
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_namespaces_do_is_left_out() {
        let text = "sockets: used 0\nTCP: inuse 0 orphan 0 tw 1 alloc 2 mem 232\nFRAG: inuse 0 memory 0\n";
        assert_eq!(
            of_the_namespace(text),
            "sockets: used 0 TCP: inuse 0 orphan 0 tw 1 FRAG: inuse 0 memory 0 "
        );
        assert_eq!(without_sockets("sockets: used 7 TCP: inuse 0 "), "sockets: used 0 TCP: inuse 0 ");
        assert_eq!(without_sockets("Inter-| used 7 x"), "Inter-| used 7 x");
    }
}
