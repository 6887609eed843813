//! A netlink socket that sends one request and reads its acknowledgements.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

use super::NetworkError;
use super::wire::Messages;

const HEADER: usize = 16;
const ERROR: u16 = 2;

#[derive(Debug)]
pub(super) struct Socket {
    descriptor: OwnedFd,
}

impl Socket {
    /// `None` is the routing family, which rustix spells as the default protocol.
    pub(super) fn open(protocol: Option<Protocol>) -> Result<Self, NetworkError> {
        let descriptor = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)
            .map_err(NetworkError::Open)?;
        Ok(Self { descriptor })
    }

    /// Sends the messages and returns once the kernel has acknowledged all of those that ask for it.
    ///
    /// The kernel works a request off inside `sendto`, so its answers are already queued when that returns: reading
    /// never waits, and a missing answer is an error, not a hang.
    pub(super) fn request(&mut self, step: &'static str, messages: &Messages) -> Result<(), NetworkError> {
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.descriptor, messages.bytes(), SendFlags::empty(), &kernel)
            .map_err(|source| NetworkError::Send { step, source })?;
        let sent = messages.acknowledged();
        let mut acknowledged = 0;
        let mut buffer = vec![0; 16 * 1024];
        while acknowledged < sent {
            let length = match recv(&self.descriptor, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((length, _)) => length,
                Err(Errno::AGAIN) => return Err(NetworkError::Unacknowledged { step, sent, acknowledged }),
                Err(Errno::INTR) => continue,
                Err(source) => return Err(NetworkError::Receive { step, source }),
            };
            acknowledged += count_acknowledged(&buffer[..length])
                .map_err(|source| NetworkError::Refused { step, source })?;
        }
        Ok(())
    }
}

/// Counts the acknowledgements in one datagram; the first refusal among them is the error.
fn count_acknowledged(mut datagram: &[u8]) -> Result<usize, Errno> {
    let mut count = 0;
    while let Some((length, kind, body)) = first_message(datagram) {
        if kind == ERROR {
            let code = body.first_chunk().map_or(-Errno::IO.raw_os_error(), |code| i32::from_ne_bytes(*code));
            if code != 0 {
                return Err(Errno::from_raw_os_error(-code));
            }
            count += 1;
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(count)
}

fn first_message(datagram: &[u8]) -> Option<(usize, u16, &[u8])> {
    let length = u32::from_ne_bytes(*datagram.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*datagram.get(4..)?.first_chunk()?);
    Some((length, kind, datagram.get(HEADER..length)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: i32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&36u32.to_ne_bytes());
        bytes.extend_from_slice(&ERROR.to_ne_bytes());
        bytes.extend_from_slice(&[0; 10]);
        bytes.extend_from_slice(&code.to_ne_bytes());
        bytes.extend_from_slice(&[0; 16]);
        bytes
    }

    #[test]
    fn counts_acknowledgements_and_stops_at_a_refusal() {
        assert_eq!(count_acknowledged(&[answer(0), answer(0)].concat()), Ok(2));
        assert_eq!(count_acknowledged(&[answer(0), answer(-1)].concat()), Err(Errno::PERM));
    }

    #[test]
    fn a_truncated_answer_acknowledges_nothing() {
        assert_eq!(count_acknowledged(&answer(0)[..20]), Ok(0));
        assert_eq!(count_acknowledged(&[]), Ok(0));
        // A length of zero must not loop for ever.
        assert_eq!(count_acknowledged(&[0; 64]), Ok(0));
    }
}
