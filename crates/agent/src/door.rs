//! The door: how the launcher reaches PID 1. Through it come the connection to the next host, guest interpreters that
//! were put into the sandbox, and the news of how such a guest ended: it is the launcher's child, not the agent's.
//!
//! One packet for each: a letter, then little-endian numbers. A descriptor comes along with the first two.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use sandstorm_sys::process::{Ending, Reaped};

/// A connection to a host.
const HOST: u8 = b'+';
/// A guest's number and the agent's end of its side socket.
const GUEST: u8 = b'w';
/// A guest's number, 0 for an exit code or 1 for a signal, that, and what it used.
const END: u8 = b'e';

/// Longest packet: the one of an end.
const LONGEST: usize = 1 + 4 + 1 + 4 + 3 * 8;

/// What came through the door.
#[derive(Debug)]
pub(crate) enum Visit {
    /// A new connection.
    Host(OwnedFd),
    /// A guest interpreter, with the agent's end of its side socket.
    Guest(u32, OwnedFd),
    /// A guest ended. Its pid is not told: it means nothing any more.
    GuestEnded(u32, Reaped),
    /// Nothing now.
    Nobody,
    /// The launcher let go of the other end: nobody will ever come.
    Closed,
}

/// Takes one packet, without waiting.
pub(crate) fn answer(door: BorrowedFd<'_>) -> io::Result<Visit> {
    let mut packet = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received =
        match rustix::net::recvmsg(door, &mut [IoSliceMut::new(&mut packet)], &mut ancillary, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Visit::Nobody),
            Err(Errno::CONNRESET) => return Ok(Visit::Closed),
            Err(e) => return Err(e.into()),
        };
    let mut came = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            came = descriptors.last().or(came);
        }
    }
    let mut fields = Fields(&packet[..received.bytes]);
    Ok(match (fields.byte(), came) {
        (None, None) => Visit::Closed,
        (Some(HOST), Some(host)) => Visit::Host(host),
        (Some(GUEST), Some(side)) => fields.number().map_or(Visit::Nobody, |guest| Visit::Guest(guest, side)),
        (Some(END), None) => fields.end().map_or(Visit::Nobody, |(guest, end)| Visit::GuestEnded(guest, end)),
        _ => Visit::Nobody,
    })
}

/// The launcher's side: hands a connection in. Never waits; a door that is full of what nobody took is an error.
pub fn knock(door: BorrowedFd<'_>, host: BorrowedFd<'_>) -> io::Result<()> {
    send(door, &[HOST], Some(host))
}

fn send(door: BorrowedFd<'_>, packet: &[u8], given: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let given: Vec<_> = given.into_iter().collect();
    if !given.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&given)) {
        return Err(io::Error::other("there is no room for a descriptor"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(door, &[IoSlice::new(packet)], &mut ancillary, flags)?;
    Ok(())
}

/// What is left of a packet to be read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn end(&mut self) -> Option<(u32, Reaped)> {
        let guest = self.number()?;
        let kind = self.byte()?;
        let value = i32::from_le_bytes(self.take()?);
        let end = Reaped {
            pid: 0,
            ending: if kind == 0 { Ending::Code(value) } else { Ending::Signal(value) },
            user_time: Duration::from_micros(self.long()?),
            system_time: Duration::from_micros(self.long()?),
            peak_memory_bytes: self.long()?,
        };
        Some((guest, end))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn bring_guest(door: BorrowedFd<'_>, guest: u32, side: BorrowedFd<'_>) -> io::Result<()> {
        let mut packet = vec![GUEST];
        packet.extend(guest.to_le_bytes());
        send(door, &packet, Some(side))
    }

    fn tell_guest_end(door: BorrowedFd<'_>, guest: u32, end: &Reaped) -> io::Result<()> {
        let (kind, value) = match end.ending {
            Ending::Code(code) => (0, code),
            Ending::Signal(signal) => (1, signal),
        };
        let mut packet = vec![END];
        packet.extend(guest.to_le_bytes());
        packet.push(kind);
        packet.extend(value.to_le_bytes());
        for number in
            [end.user_time.as_micros() as u64, end.system_time.as_micros() as u64, end.peak_memory_bytes]
        {
            packet.extend(number.to_le_bytes());
        }
        send(door, &packet, None)
    }

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    fn greets(came: &OwnedFd, from: &OwnedFd) {
        rustix::io::write(came, b"hello").unwrap();
        let mut heard = [0; 5];
        rustix::io::read(from, &mut heard).unwrap();
        assert_eq!(&heard, b"hello");
    }

    #[test]
    fn connections_come_in_until_the_door_is_closed() {
        let (outside, inside) = pair();
        assert!(matches!(answer(inside.as_fd()).unwrap(), Visit::Nobody));
        let (host, given) = pair();
        knock(outside.as_fd(), given.as_fd()).unwrap();
        drop(given);
        let Visit::Host(came) = answer(inside.as_fd()).unwrap() else { panic!("nobody came") };
        greets(&came, &host);
        drop(outside);
        assert!(matches!(answer(inside.as_fd()).unwrap(), Visit::Closed));
    }

    #[test]
    fn guests_come_in_and_their_ends_are_told() {
        let (outside, inside) = pair();
        let (guest, given) = pair();
        bring_guest(outside.as_fd(), 7, given.as_fd()).unwrap();
        let Visit::Guest(7, came) = answer(inside.as_fd()).unwrap() else { panic!("no guest came") };
        greets(&came, &guest);
        for ending in [Ending::Code(3), Ending::Signal(9)] {
            let end = Reaped {
                pid: 0,
                ending,
                user_time: Duration::from_micros(1_000_001),
                system_time: Duration::from_micros(2),
                peak_memory_bytes: 1 << 40,
            };
            tell_guest_end(outside.as_fd(), 7, &end).unwrap();
            let Visit::GuestEnded(7, told) = answer(inside.as_fd()).unwrap() else { panic!("no end came") };
            assert_eq!(told, end);
        }
    }

    #[test]
    fn what_is_no_packet_of_ours_is_let_pass() {
        let (outside, inside) = pair();
        for packet in [&b"w"[..], b"w\x01\0\0\0", b"e\x01\0\0\0\0", b"?", b"+"] {
            rustix::net::send(&outside, packet, SendFlags::NOSIGNAL).unwrap();
            assert!(matches!(answer(inside.as_fd()).unwrap(), Visit::Nobody), "{packet:?}");
        }
    }
}
