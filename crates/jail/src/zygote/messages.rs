//! What the launcher and a zygote say to each other: JSON text, a packet for each message, descriptors beside it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};

use crate::seccomp::Program;

/// Longest message of a zygote. It lists modules at most.
const LONGEST: usize = 64 * 1024;
/// Most descriptors that one request needs: the rooms of a jail and an entrance to each of its groups.
const MOST_DESCRIPTORS: usize = 24;

/// The first message.
#[derive(Debug, Serialize)]
pub(crate) struct Hello<'a> {
    hello: u32,
    /// The payload's seccomp program as the kernel reads it, in base64.
    filter: String,
    preload: &'a [String],
    landlock: bool,
    /// Scripts to begin ahead: where they are, and what they are called in jails.
    known: &'a [(String, String)],
}

impl<'a> Hello<'a> {
    pub(crate) fn new(
        filter: &Program,
        preload: &'a [String],
        landlock: bool,
        known: &'a [(String, String)],
    ) -> Self {
        let bytes: Vec<u8> = filter
            .instructions()
            .iter()
            .flat_map(|i| {
                let mut bytes = [0; 8];
                bytes[..2].copy_from_slice(&i.code.to_ne_bytes());
                (bytes[2], bytes[3]) = (i.jt, i.jf);
                bytes[4..].copy_from_slice(&i.k.to_ne_bytes());
                bytes
            })
            .collect();
        Self { hello: 1, filter: base64(&bytes), preload, landlock, known }
    }
}

/// Asks for a guest.
#[derive(Debug, Serialize)]
pub(crate) struct Join<'a> {
    pub(crate) join: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Resource, soft, hard.
    pub(crate) rlimits: &'a [(u32, u64, u64)],
    /// What the descriptors are, in their order.
    pub(crate) fds: &'a [&'static str],
}

/// What a zygote says.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Said {
    Ready {
        ready: Ready,
    },
    /// Comes with the guest's pidfd.
    Joined {
        joined: u64,
        pid: i32,
    },
    /// Number 0 is the zygote itself.
    Failed {
        failed: u64,
        step: String,
        errno: i32,
    },
}

/// What a warm zygote has.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Ready {
    pub(crate) version: String,
    #[serde(default)]
    pub(crate) preloaded: Vec<String>,
    #[serde(default)]
    pub(crate) missing: Vec<String>,
}

/// Sends one message. Never waits.
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let text = serde_json::to_vec(message).map_err(io::Error::other)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(&text)], &mut ancillary, flags)?;
    Ok(())
}

/// The next message and the descriptor that came with it. `None`: there is none now. A zygote that is gone is an error.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Said, Option<OwnedFd>)>> {
    let mut text = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received =
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut ancillary, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            // It ended without having read everything.
            Err(Errno::CONNRESET) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(e) => return Err(e.into()),
        };
    let mut came = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            came = descriptors.last().or(came);
        }
    }
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let said = serde_json::from_slice(&text[..received.bytes]).map_err(io::Error::other)?;
    Ok(Some((said, came)))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::packet;
    use crate::seccomp::{self, Arch};

    #[test]
    fn bytes_are_written_as_everybody_reads_them() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfb]), "//77");
    }

    #[test]
    fn what_a_zygote_says_is_told_apart() {
        let (a, b) = packet::pair().unwrap();
        let say = |text: &str| rustix::io::write(&a, text.as_bytes()).unwrap();
        assert!(receive(b.as_fd()).unwrap().is_none());
        say(r#"{"ready": {"version": "3.11.2", "preloaded": [], "missing": ["numpy"]}}"#);
        let (said, _) = receive(b.as_fd()).unwrap().unwrap();
        assert!(matches!(said, Said::Ready { ready } if ready.missing == ["numpy"]));
        say(r#"{"failed": 3, "step": "cgroup", "errno": 13}"#);
        let (said, _) = receive(b.as_fd()).unwrap().unwrap();
        assert_eq!(said, Said::Failed { failed: 3, step: "cgroup".to_owned(), errno: 13 });
        say(r#"{"joined": 4, "pid": 5}"#);
        let (said, came) = receive(b.as_fd()).unwrap().unwrap();
        assert_eq!((said, came.is_none()), (Said::Joined { joined: 4, pid: 5 }, true));
        say("{}");
        assert!(receive(b.as_fd()).is_err());
        drop(a);
        assert!(receive(b.as_fd()).is_err());
    }

    #[test]
    fn the_first_message_fits_into_a_packet() {
        let (a, b) = packet::pair().unwrap();
        let filter = seccomp::payload(Arch::host(), false);
        let preload = ["numpy".to_owned()];
        send(a.as_fd(), &Hello::new(&filter, &preload, true, &[]), &[]).unwrap();
        let mut text = vec![0; LONGEST];
        let length = rustix::io::read(&b, &mut text).unwrap();
        let said: serde_json::Value = serde_json::from_slice(&text[..length]).unwrap();
        assert_eq!(said["hello"], 1);
        let length = said["filter"].as_str().unwrap().len();
        assert_eq!(length, (filter.instructions().len() * 8).div_ceil(3) * 4);
    }
}
