//! Builds a captured network in the namespace it is started in and tries to get out of it, one case per name.
//!
//! `tests/network.rs` starts its own binary again inside fresh namespaces to run these; a case holds if it returns.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with, sockopt};
use sandstorm_jail::network::{
    Captured, DNS_PORT, NAMESERVER, NetworkError, PROXY_PORT, capture_all, loopback_up,
};

pub(crate) fn run(case: &str) {
    match case {
        "tcp4" => tcp("93.184.216.34:443"),
        "tcp6" => tcp("[2001:db8::1]:8443"),
        "peers" => peers(),
        "direct" => direct(),
        "dns_udp" => dns_udp(),
        "dns_tcp" => dns_tcp(),
        "udp" => udp(),
        "icmp" => icmp(),
        "flood" => flood(),
        "twice" => twice(),
        "loopback_only" => loopback_only(),
        "unprivileged" => unprivileged(),
        _ => match case.strip_prefix("abstract:") {
            Some(name) => abstract_socket(name),
            None => panic!("no such case: {case}"),
        },
    }
}

fn capture() -> (Vec<TcpListener>, Vec<UdpSocket>, Vec<TcpListener>) {
    let Captured { tcp, dns_udp, dns_tcp } = capture_all().unwrap();
    let listeners = |descriptors: Vec<_>| descriptors.into_iter().map(TcpListener::from).collect::<Vec<_>>();
    (listeners(tcp), dns_udp.into_iter().map(UdpSocket::from).collect(), listeners(dns_tcp))
}

/// A connection to any address and port arrives with its destination readable and its bytes unchanged.
fn tcp(destination: &str) {
    let destination: SocketAddr = destination.parse().unwrap();
    let (listeners, ..) = capture();
    let listener = &listeners[usize::from(destination.is_ipv6())];
    listener.set_nonblocking(false).unwrap();
    let payload = thread::spawn(move || {
        let mut stream = TcpStream::connect(destination).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), destination);
        stream.write_all(b"question").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let (mut accepted, _) = listener.accept().unwrap();
    let original = match destination {
        SocketAddr::V4(_) => SocketAddr::V4(sockopt::ip_original_dst(&accepted).unwrap()),
        SocketAddr::V6(_) => SocketAddr::V6(sockopt::ipv6_original_dst(&accepted).unwrap()),
    };
    assert_eq!(original, destination);
    let mut question = [0; 8];
    accepted.read_exact(&mut question).unwrap();
    assert_eq!(&question, b"question");
    accepted.write_all(b"answer").unwrap();
    drop(accepted);
    assert_eq!(payload.join().unwrap(), "answer");
}

/// Programs of the jail reach each other on loopback, unseen by the proxy and by connection tracking.
fn peers() {
    let (proxy, ..) = capture();
    for address in ["127.0.0.1:0", "127.8.8.8:0", "[::1]:0", "0.0.0.0:8080"] {
        let listener = TcpListener::bind(address).unwrap();
        let mut address = listener.local_addr().unwrap();
        if address.ip().is_unspecified() {
            address.set_ip([127, 0, 0, 1].into());
        }
        for _ in 0..2000 {
            let mut client = TcpStream::connect(address).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            client.write_all(b"x").unwrap();
            server.read_exact(&mut [0]).unwrap();
        }
    }
    let receiver = UdpSocket::bind("127.0.0.1:5353").unwrap();
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", "127.0.0.1:5353").unwrap();
    assert_eq!(receiver.recv(&mut [0; 4]).unwrap(), 1);
    for listener in proxy {
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    if let Ok(tracked) = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count") {
        assert_eq!(tracked.trim(), "0", "loopback traffic is tracked");
    }
}

/// Our sockets are reached by redirection alone, whatever source the payload binds.
fn direct() {
    let (proxy, dns_udp, dns_tcp) = capture();
    for port in [PROXY_PORT, DNS_PORT] {
        for (address, source) in
            [("127.0.0.1", "127.0.0.1:8080"), ("127.0.0.1", "93.184.216.34:8080"), ("::1", "[::1]:8080")]
        {
            let destination = SocketAddr::new(address.parse().unwrap(), port);
            let source: SocketAddr = source.parse().unwrap();
            let family = if source.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
            let client = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
            rustix::net::bind(&client, &source).unwrap();
            let _ = rustix::net::connect(&client, &destination);
            let datagram = UdpSocket::bind(source).unwrap();
            assert_eq!(datagram.send_to(b"x", destination).unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
    }
    // The kernel handles loopback packets inside the sending call, so what has not arrived by now never will.
    for listener in proxy.iter().chain(&dns_tcp) {
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    }
    for resolver in dns_udp {
        assert_eq!(resolver.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

/// Queries reach our resolver whichever server they were meant for, and its answers come back from that server.
fn dns_udp() {
    let (_, resolvers, _) = capture();
    let name_server = SocketAddr::from((NAMESERVER, 53));
    for (server, resolver) in [
        (name_server, 0),
        ("8.8.8.8:53".parse().unwrap(), 0),
        ("[2001:4860:4860::8888]:53".parse().unwrap(), 1),
    ] {
        resolvers[resolver].set_nonblocking(false).unwrap();
        let local = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let client = UdpSocket::bind(local).unwrap();
        client.send_to(b"query", server).unwrap();
        let mut buffer = [0; 16];
        let (length, from) = resolvers[resolver].recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"query");
        resolvers[resolver].send_to(b"reply", from).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (length, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], from), (&b"reply"[..], server));
    }
}

fn dns_tcp() {
    let (proxy, _, resolvers) = capture();
    for (server, resolver) in [("8.8.8.8:53", 0), ("[2001:4860:4860::8888]:53", 1)] {
        resolvers[resolver].set_nonblocking(false).unwrap();
        let mut client = TcpStream::connect(server).unwrap();
        let (mut accepted, _) = resolvers[resolver].accept().unwrap();
        client.write_all(b"x").unwrap();
        accepted.read_exact(&mut [0]).unwrap();
    }
    for listener in proxy {
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

/// Every datagram that is not DNS is refused at once, and no socket of the jail receives it either.
fn udp() {
    let (_, resolvers, _) = capture();
    for destination in [
        "8.8.8.8:443",
        "8.8.8.8:123",
        "10.0.0.1:69",
        "169.254.169.254:80",
        "198.18.0.1:54",
        "224.0.0.251:5353",
        "[2001:db8::1]:443",
        "[fe80::1%1]:5355",
        "[ff02::fb]:5353",
    ] {
        let destination: SocketAddr = destination.parse().unwrap();
        let any = if destination.is_ipv4() { "0.0.0.0" } else { "::" };
        let witness = UdpSocket::bind((any, destination.port())).ok();
        let client = UdpSocket::bind((any, 0)).unwrap();
        let outcome = client.send_to(b"leak", destination);
        assert!(outcome.is_err(), "{destination}: {outcome:?}");
        if let Some(witness) = witness {
            witness.set_nonblocking(true).unwrap();
            assert!(witness.recv(&mut [0; 8]).is_err(), "{destination} was delivered");
        }
    }
    let broadcaster = UdpSocket::bind("0.0.0.0:0").unwrap();
    broadcaster.set_broadcast(true).unwrap();
    assert!(broadcaster.send_to(b"leak", "255.255.255.255:67").is_err());
    for resolver in resolvers {
        assert_eq!(resolver.recv(&mut [0; 8]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

/// Raw sockets take capabilities that no payload has; even with them nothing passes.
fn icmp() {
    let _sockets = capture();
    let raw =
        socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::empty(), Some(ipproto::ICMP)).unwrap();
    let echo_request = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    let destination: SocketAddr = "8.8.8.8:0".parse().unwrap();
    assert_eq!(sendto(&raw, &echo_request, SendFlags::empty(), &destination), Err(Errno::PERM));
}

/// New connections beyond the burst and the rate do not arrive, and the kernel's table stays small.
fn flood() {
    let (mut listeners, ..) = capture();
    let listener = listeners.remove(0);
    let start = Instant::now();
    let mut accepted = 0;
    let mut clients = Vec::new();
    for index in 0..4000_u32 {
        let [_, _, high, low] = index.to_be_bytes();
        let client =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
        let destination: SocketAddr = ([93, 184, high, low], 443).into();
        let _ = rustix::net::connect(&client, &destination);
        clients.push(client);
        if clients.len() > 400 {
            clients.remove(0);
        }
        while listener.accept().is_ok() {
            accepted += 1;
        }
    }
    let allowed = 1000 + 200 * (start.elapsed().as_secs() + 1);
    assert!(accepted >= 500, "only {accepted} connections arrived");
    assert!(accepted <= allowed, "{accepted} connections arrived, {allowed} are allowed");
    if let Ok(tracked) = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count") {
        let tracked: u64 = tracked.trim().parse().unwrap();
        assert!(tracked <= allowed, "{tracked} entries are tracked");
    }
}

/// A namespace that has rules already is not taken for a fresh one.
fn twice() {
    let _sockets = capture();
    assert!(matches!(capture_all(), Err(NetworkError::Refused { source: Errno::EXIST, .. })));
}

fn loopback_only() {
    assert!(TcpListener::bind("127.0.0.1:0").is_err() || TcpStream::connect("127.0.0.1:9").is_err());
    loopback_up().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    for destination in ["93.184.216.34:443", "10.0.0.1:80", "169.254.169.254:80", "[2001:db8::1]:443"] {
        let error = TcpStream::connect(destination).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::NetworkUnreachable | ErrorKind::AddrNotAvailable),
            "{destination}: {error:?}"
        );
    }
}

/// Without privilege over the namespace nothing is changed and nothing is claimed.
fn unprivileged() {
    assert!(matches!(capture_all(), Err(NetworkError::Refused { source: Errno::PERM, .. })));
    assert!(matches!(loopback_up(), Err(NetworkError::Refused { source: Errno::PERM, .. })));
}

fn abstract_socket(name: &str) {
    let _sockets = capture();
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    let error = UnixStream::connect_addr(&address).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}
