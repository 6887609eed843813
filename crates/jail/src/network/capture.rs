//! The rules and sockets of a captured network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, listen as start_listening, socket_with, sockopt,
};

use super::NetworkError;
use super::nftables::{Chain, Expression, Verdict};

/// Where redirected TCP connections arrive on the loopback addresses. Below 1024, so a payload without capabilities
/// can never hold it, nor lose a port of its own to us.
pub const PROXY_PORT: u16 = 1;
/// Where redirected DNS arrives, over UDP and TCP.
pub const DNS_PORT: u16 = 53;

/// A closed connection stays in the kernel's tracking table for two minutes, and that table is charged to nobody, so
/// the rate of new ones bounds its size.
const NEW_CONNECTIONS_PER_SECOND: u64 = 200;
const NEW_CONNECTIONS_BURST: u32 = 1000;
const LIVE_CONNECTIONS: u32 = 1024;

const BACKLOG: i32 = 128;

const IPV4: u8 = 2;
const IPV6: u8 = 10;
const TCP: u8 = 6;
const UDP: u8 = 17;

const ESTABLISHED_RELATED_OR_UNTRACKED: u32 = 0b100_0110;
const REDIRECTED: u32 = 1 << 5;

/// The host's ends of a captured network. In each list IPv4 comes first; IPv6 is absent where the kernel has none.
#[derive(Debug)]
pub struct Captured {
    /// Listeners that every TCP connection of the namespace reaches, whatever its destination.
    pub tcp: Vec<OwnedFd>,
    /// UDP sockets that receive every DNS query.
    pub dns_udp: Vec<OwnedFd>,
    /// Listeners for DNS over TCP.
    pub dns_tcp: Vec<OwnedFd>,
}

impl Captured {
    pub(super) fn has_ipv6(&self) -> bool {
        self.tcp.len() > 1
    }

    /// The descriptors in the order that [`Captured::from_fds`] expects, to be passed over a socket.
    pub fn into_fds(self) -> Vec<OwnedFd> {
        self.tcp.into_iter().chain(self.dns_udp).chain(self.dns_tcp).collect()
    }

    /// The inverse of [`Captured::into_fds`].
    pub fn from_fds(descriptors: Vec<OwnedFd>) -> Result<Self, NetworkError> {
        let families = match descriptors.len() {
            3 => 1,
            6 => 2,
            other => return Err(NetworkError::Descriptors(other)),
        };
        let mut tcp = descriptors;
        let mut dns_udp = tcp.split_off(families);
        let dns_tcp = dns_udp.split_off(families);
        Ok(Self { tcp, dns_udp, dns_tcp })
    }
}

/// Opens the sockets that the rules redirect to. `lo` must be up.
pub(super) fn listen() -> Result<Captured, NetworkError> {
    let mut captured = Captured { tcp: Vec::new(), dns_udp: Vec::new(), dns_tcp: Vec::new() };
    captured.open(Ipv4Addr::LOCALHOST.into())?;
    match captured.open(Ipv6Addr::LOCALHOST.into()) {
        Err(NetworkError::Socket { source: Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL, .. }) => Ok(captured),
        other => other.map(|()| captured),
    }
}

impl Captured {
    fn open(&mut self, address: IpAddr) -> Result<(), NetworkError> {
        let tcp = socket("proxy", SocketType::STREAM, SocketAddr::new(address, PROXY_PORT))?;
        let dns_udp = socket("resolver", SocketType::DGRAM, SocketAddr::new(address, DNS_PORT))?;
        let dns_tcp = socket("resolver", SocketType::STREAM, SocketAddr::new(address, DNS_PORT))?;
        self.tcp.push(tcp);
        self.dns_udp.push(dns_udp);
        self.dns_tcp.push(dns_tcp);
        Ok(())
    }
}

fn socket(what: &'static str, kind: SocketType, address: SocketAddr) -> Result<OwnedFd, NetworkError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let open = || {
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        bind(&socket, &address)?;
        if kind == SocketType::STREAM {
            start_listening(&socket, BACKLOG)?;
        }
        Ok(socket)
    };
    open().map_err(|source| NetworkError::Socket { what, source })
}

/// Three chains on the way out of a process, in this order.
///
/// `local` keeps traffic between the namespace's own programs out of connection tracking, so that it is neither
/// counted nor limited; only answers of our own sockets must be tracked, to get their addresses turned back. Our
/// sockets can be reached by redirection alone: a packet that is addressed to them from the start is dropped.
/// `redirect` turns TCP and DNS to our sockets. `wall` drops what is neither local nor redirected: for UDP and ICMP
/// the program sees EPERM at once instead of a timeout.
pub(super) fn ruleset() -> Vec<Chain> {
    use Expression::{
        ConnectionState, ConnectionStatus, ConnectionsOver, NoTrack, RateOver, Redirect, TransportProtocol,
    };
    let accept = Expression::Verdict(Verdict::Accept);
    let drop = Expression::Verdict(Verdict::Drop);
    let tracked = |port| vec![source_port(port), accept.clone()];
    let knock = |port| vec![destination_port(port), drop.clone()];
    let dns = |protocol| vec![TransportProtocol(protocol), destination_port(DNS_PORT), Redirect(DNS_PORT)];
    vec![
        Chain {
            name: "local",
            kind: "filter",
            priority: -300,
            policy: Verdict::Accept,
            rules: vec![
                tracked(PROXY_PORT),
                tracked(DNS_PORT),
                [to_loopback_v4(), knock(PROXY_PORT)].concat(),
                [to_loopback_v4(), knock(DNS_PORT)].concat(),
                [to_loopback_v6(), knock(PROXY_PORT)].concat(),
                [to_loopback_v6(), knock(DNS_PORT)].concat(),
                [from_loopback_v4(), to_loopback_v4(), vec![NoTrack]].concat(),
                [from_loopback_v6(), to_loopback_v6(), vec![NoTrack]].concat(),
            ],
        },
        Chain {
            name: "redirect",
            kind: "nat",
            priority: -100,
            policy: Verdict::Accept,
            rules: vec![
                [to_loopback_v4(), vec![accept.clone()]].concat(),
                [to_loopback_v6(), vec![accept.clone()]].concat(),
                dns(UDP),
                dns(TCP),
                vec![TransportProtocol(TCP), Redirect(PROXY_PORT)],
            ],
        },
        Chain {
            name: "wall",
            kind: "filter",
            priority: 0,
            policy: Verdict::Drop,
            rules: vec![
                vec![ConnectionState(ESTABLISHED_RELATED_OR_UNTRACKED), accept.clone()],
                vec![
                    ConnectionStatus(REDIRECTED),
                    RateOver { per_second: NEW_CONNECTIONS_PER_SECOND, burst: NEW_CONNECTIONS_BURST },
                    drop.clone(),
                ],
                vec![ConnectionStatus(REDIRECTED), ConnectionsOver(LIVE_CONNECTIONS), drop.clone()],
                // Redirected packets carry a loopback destination by now.
                [to_loopback_v4(), vec![accept.clone()]].concat(),
                [to_loopback_v6(), vec![accept]].concat(),
            ],
        },
    ]
}

fn from_loopback_v4() -> Vec<Expression> {
    vec![Expression::NetworkFamily(IPV4), Expression::NetworkHeader { offset: 12, value: vec![127] }]
}

fn to_loopback_v4() -> Vec<Expression> {
    vec![Expression::NetworkFamily(IPV4), Expression::NetworkHeader { offset: 16, value: vec![127] }]
}

fn from_loopback_v6() -> Vec<Expression> {
    let value = Ipv6Addr::LOCALHOST.octets().to_vec();
    vec![Expression::NetworkFamily(IPV6), Expression::NetworkHeader { offset: 8, value }]
}

fn to_loopback_v6() -> Vec<Expression> {
    let value = Ipv6Addr::LOCALHOST.octets().to_vec();
    vec![Expression::NetworkFamily(IPV6), Expression::NetworkHeader { offset: 24, value }]
}

fn source_port(port: u16) -> Expression {
    Expression::TransportHeader { offset: 0, value: port.to_be_bytes().to_vec() }
}

fn destination_port(port: u16) -> Expression {
    Expression::TransportHeader { offset: 2, value: port.to_be_bytes().to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptors(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()).collect()
    }

    #[test]
    fn descriptors_keep_their_roles_when_passed() {
        for families in [1, 2] {
            let captured = Captured {
                tcp: descriptors(families),
                dns_udp: descriptors(families),
                dns_tcp: descriptors(families),
            };
            let before = format!("{captured:?}");
            let after = Captured::from_fds(captured.into_fds()).unwrap();
            assert_eq!(before, format!("{after:?}"));
        }
        assert!(matches!(Captured::from_fds(descriptors(4)), Err(NetworkError::Descriptors(4))));
        assert!(matches!(Captured::from_fds(Vec::new()), Err(NetworkError::Descriptors(0))));
    }
}
