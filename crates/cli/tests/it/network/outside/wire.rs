//! An ear on the wire: every packet that the host sends.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with};

const EVERYTHING: u16 = 3;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_V6: u8 = 58;

/// One packet, by what it wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Packet {
    pub(crate) to: IpAddr,
    pub(crate) protocol: u8,
    /// Zero where the protocol has none.
    pub(crate) port: u16,
}

impl Packet {
    pub(crate) fn tcp(to: &str, port: u16) -> Self {
        Self { to: to.parse().unwrap(), protocol: TCP, port }
    }

    pub(crate) fn udp(to: &str, port: u16) -> Self {
        Self { to: to.parse().unwrap(), protocol: UDP, port }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Wire(Mutex<Vec<Packet>>);

impl Wire {
    pub(super) fn has_heard(&self, packet: &Packet) -> bool {
        self.0.lock().unwrap().contains(packet)
    }

    /// What was heard since the last time, each kind once.
    pub(super) fn take(&self) -> Vec<Packet> {
        let mut packets = std::mem::take(&mut *self.0.lock().unwrap());
        packets.sort_unstable();
        packets.dedup();
        packets
    }

    /// Listens in the network namespace of the calling thread, until the last other holder is gone.
    pub(super) fn listen(self: &Arc<Self>) {
        let protocol = Protocol::from_raw(u32::from(EVERYTHING.to_be()).try_into().unwrap());
        let socket =
            socket_with(AddressFamily::PACKET, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(protocol))
                .unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(100))).unwrap();
        let wire = Arc::downgrade(self);
        std::thread::spawn(move || {
            let mut packet = [0; 128];
            while let Some(wire) = wire.upgrade() {
                if let Ok((length, _)) = recv(&socket, &mut packet, RecvFlags::empty())
                    && let Some(heard) = read_packet(&packet[..length])
                {
                    wire.0.lock().unwrap().push(heard);
                }
            }
        });
    }
}

/// A packet that comes from the host. The search for neighbours is the kernel's own.
fn read_packet(packet: &[u8]) -> Option<Packet> {
    let (from, to, protocol, rest) = match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 15) * 4;
            let address =
                |at: usize| Some(IpAddr::V4(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?)));
            (address(12)?, address(16)?, *packet.get(9)?, packet.get(header..)?)
        }
        6 => {
            let address =
                |at: usize| Some(IpAddr::V6(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?)));
            (address(8)?, address(24)?, *packet.get(6)?, packet.get(40..)?)
        }
        _ => return None,
    };
    let ours = ["93.184.216.1", "10.9.0.2", "2606:4700::1"].map(|ours| ours.parse::<IpAddr>().unwrap());
    let neighbours = protocol == ICMP_V6 && matches!(rest.first(), Some(133..=137));
    if !ours.contains(&from) || neighbours {
        return None;
    }
    let port = match (protocol, rest) {
        (TCP | UDP, [_, _, high, low, ..]) => u16::from_be_bytes([*high, *low]),
        _ => 0,
    };
    Some(Packet { to, protocol, port })
}
