//! What the launcher says through the door of a jail beside handing in a host: guests that came, and how they ended.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// A guest waits at the other end of this socket. Never waits.
pub(super) fn announce(door: BorrowedFd<'_>, guest: u32, side: BorrowedFd<'_>) -> io::Result<()> {
    let given = [side];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&given)) {
        return Err(io::Error::other("there is no room for a descriptor"));
    }
    let mut word = vec![b'w'];
    word.extend(guest.to_le_bytes());
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(door, &[IoSlice::new(&word)], &mut ancillary, flags)?;
    Ok(())
}

/// A word without a descriptor. Never waits.
pub(super) fn say(door: BorrowedFd<'_>, word: &[u8]) -> io::Result<()> {
    rustix::net::send(door, word, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}
