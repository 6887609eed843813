//! Whole messages with descriptors on a `SEQPACKET` socket.

use std::cell::RefCell;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest message. A spec with many mounts has room; a socket buffer holds several.
const LARGEST: usize = 128 * 1024;

/// Most descriptors with one message: as many as the kernel carries.
const MOST_DESCRIPTORS: usize = 253;

/// A connected pair that keeps message borders.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message.
pub fn send<T: Serialize>(
    socket: BorrowedFd<'_>,
    message: &T,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
    if bytes.len() > LARGEST {
        return Err(io::Error::other(format!("a message of {} bytes is over {LARGEST}", bytes.len())));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    loop {
        let parts = [io::IoSlice::new(&bytes)];
        match rustix::net::sendmsg(socket, &parts, &mut ancillary, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

thread_local! {
    /// Room for one message: to clear so much for each costs more than most messages do.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Receives one message. `None`: the other side closed.
pub fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    ROOM.with_borrow_mut(|room| {
        if room.is_empty() {
            // New memory is zero without being touched, and what is not touched costs a fork nothing.
            *room = vec![0; LARGEST];
        }
        receive_into(socket, room)
    })
}

fn receive_into<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut was_reset = false;
    let received = loop {
        let mut parts = [io::IoSliceMut::new(bytes)];
        match rustix::net::recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            // The other side went without having read everything. What it sent before that is still there.
            Err(Errno::CONNRESET) if !was_reset => was_reset = true,
            Err(Errno::CONNRESET) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
    };
    let descriptors = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    match postcard::take_from_bytes(&bytes[..received.bytes]) {
        Ok((message, [])) => Ok(Some((message, descriptors))),
        Ok(_) | Err(_) => Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_message_arrives_whole_with_its_descriptors() {
        let (a, b) = pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        send(a.as_fd(), &("hello".to_owned(), 7u32), &[file.as_fd()]).unwrap();
        let ((text, number), fds) = receive::<(String, u32)>(b.as_fd()).unwrap().unwrap();
        assert_eq!((text.as_str(), number, fds.len()), ("hello", 7, 1));
    }

    #[test]
    fn the_end_is_told_from_a_message() {
        let (a, b) = pair().unwrap();
        drop(a);
        assert!(receive::<u32>(b.as_fd()).unwrap().is_none());
    }

    #[test]
    fn the_last_words_of_somebody_who_did_not_listen_are_heard() {
        let (a, b) = pair().unwrap();
        send(b.as_fd(), &1u32, &[]).unwrap();
        send(a.as_fd(), &2u32, &[]).unwrap();
        drop(a);
        assert_eq!(receive::<u32>(b.as_fd()).unwrap().unwrap().0, 2);
        assert!(receive::<u32>(b.as_fd()).unwrap().is_none());
    }

    #[test]
    fn garbage_is_an_error() {
        let (a, b) = pair().unwrap();
        rustix::io::write(&a, &[0xff; 40]).unwrap();
        assert!(receive::<(String, u32)>(b.as_fd()).is_err());
    }
}
