//! Brings `lo` up and makes every address local to it.

use rustix::io::Errno;

use super::NetworkError;
use super::netlink::Socket;
use super::wire::{ACK, CREATE, EXCL, Messages};

const NEW_LINK: u16 = 16;
const NEW_ROUTE: u16 = 24;

const IF_UP: u32 = 0x1;
/// The first device of every network namespace is `lo`, and the kernel gives it this index.
const LOOPBACK: u32 = 1;

const FAMILY_IPV4: u8 = 2;
const FAMILY_IPV6: u8 = 10;
const TABLE_LOCAL: u8 = 255;
const PROTOCOL_BOOT: u8 = 3;
const SCOPE_HOST: u8 = 254;
const TYPE_LOCAL: u8 = 2;
const OUTGOING_DEVICE: u16 = 4;

#[derive(Debug)]
pub(super) struct Routes {
    socket: Socket,
}

impl Routes {
    pub(super) fn open() -> Result<Self, NetworkError> {
        Ok(Self { socket: Socket::open(None)? })
    }

    pub(super) fn loopback_up(&mut self) -> Result<(), NetworkError> {
        // struct ifinfomsg: family, padding, device type, index, flags, and which flags to change.
        let mut fixed = [0; 16];
        fixed[4..8].copy_from_slice(&LOOPBACK.to_ne_bytes());
        fixed[8..12].copy_from_slice(&IF_UP.to_ne_bytes());
        fixed[12..16].copy_from_slice(&IF_UP.to_ne_bytes());
        let mut messages = Messages::default();
        messages.message(NEW_LINK, ACK, &fixed, |_| {});
        self.socket.request("bring the loopback device up", &messages)
    }

    /// Adds `local default dev lo` per family: a packet to any address stays in this namespace. Without a route a
    /// connection would end before the output hook sees it.
    pub(super) fn everything_is_local(&mut self, ipv6: bool) -> Result<(), NetworkError> {
        self.local_default("add the IPv4 route", FAMILY_IPV4)?;
        if !ipv6 {
            return Ok(());
        }
        match self.local_default("add the IPv6 route", FAMILY_IPV6) {
            // IPv6 can be switched off for the device and still let sockets bind. Without the route no IPv6 packet
            // goes anywhere, which is the safe side.
            Err(NetworkError::Refused { source: Errno::ACCESS | Errno::OPNOTSUPP, .. }) => Ok(()),
            other => other,
        }
    }

    fn local_default(&mut self, step: &'static str, family: u8) -> Result<(), NetworkError> {
        // struct rtmsg: family, destination and source prefix lengths, tos, table, protocol, scope, type, flags.
        let fixed = [family, 0, 0, 0, TABLE_LOCAL, PROTOCOL_BOOT, SCOPE_HOST, TYPE_LOCAL, 0, 0, 0, 0];
        let mut messages = Messages::default();
        messages.message(NEW_ROUTE, ACK | CREATE | EXCL, &fixed, |attributes| {
            attributes.u32_ne(OUTGOING_DEVICE, LOOPBACK);
        });
        self.socket.request(step, &messages)
    }
}
