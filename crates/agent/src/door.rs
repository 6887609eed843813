//! The door: how a connection to the next host gets in.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

/// What came through the door.
#[derive(Debug)]
pub(crate) enum Visit {
    /// A new connection.
    Host(OwnedFd),
    /// Nothing now.
    Nobody,
    /// The launcher let go of the other end: nobody will ever come.
    Closed,
}

/// Takes one connection, without waiting.
pub(crate) fn answer(door: BorrowedFd<'_>) -> io::Result<Visit> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = match rustix::net::recvmsg(door, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)
    {
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
    Ok(match (came, received.bytes) {
        (Some(host), _) => Visit::Host(host),
        (None, 0) => Visit::Closed,
        (None, _) => Visit::Nobody,
    })
}

/// The launcher's side: hands a connection in. Never waits; a door that is full of connections nobody took is an error.
pub fn knock(door: BorrowedFd<'_>, host: BorrowedFd<'_>) -> io::Result<()> {
    let given = [host];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&given)) {
        return Err(io::Error::other("there is no room for a descriptor"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(door, &[IoSlice::new(b"+")], &mut ancillary, flags)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn connections_come_in_until_the_door_is_closed() {
        let (outside, inside) = pair();
        assert!(matches!(answer(inside.as_fd()).unwrap(), Visit::Nobody));
        let (host, given) = pair();
        knock(outside.as_fd(), given.as_fd()).unwrap();
        drop(given);
        let Visit::Host(came) = answer(inside.as_fd()).unwrap() else { panic!("nobody came") };
        rustix::io::write(&came, b"hello").unwrap();
        let mut heard = [0; 5];
        rustix::io::read(&host, &mut heard).unwrap();
        assert_eq!(&heard, b"hello");
        drop(outside);
        assert!(matches!(answer(inside.as_fd()).unwrap(), Visit::Closed));
    }
}
