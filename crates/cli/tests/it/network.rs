//! What leaves a sandbox, and what does not.

mod allowed;
mod outside;
mod refused;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Who, result};

/// A service of the host that counts who comes.
struct Service {
    address: SocketAddr,
    visits: Arc<AtomicUsize>,
}

impl Service {
    fn start(ip: Ipv4Addr) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let visits = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&visits);
        std::thread::spawn(move || {
            for _ in listener.incoming() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { address, visits }
    }
}

/// An address of this host that is not loopback: where a packet to anywhere would start from.
fn own_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    match socket.local_addr().ok()? {
        SocketAddr::V4(address) => Some(*address.ip()),
        SocketAddr::V6(_) => None,
    }
}

/// Tries to talk to an address and says what came of it: `refused …`, `silent` or the bytes.
fn talk(who: Who, policy: &str, host: &str, port: u16) -> String {
    let code = format!(
        "import socket\n\
         try:\n    s = socket.create_connection(({host:?}, {port}), timeout=5)\n    s.sendall(b'hello\\n')\n\
         \x20   data = s.recv(100)\n    print('data' if data else 'silent')\n\
         except OSError as e:\n    print('refused', type(e).__name__)\n"
    );
    let result = result(who, &["--network", policy, "--timeout", "5m", "-l", "python", "-c", &code]);
    assert_eq!(result["status"], "ok", "{result:#}");
    result["stdout"].as_str().unwrap().trim().to_owned()
}

/// Nothing of the host answers, whatever the policy says: not its loopback, not its own addresses.
#[test]
fn services_of_the_host_are_out_of_reach() {
    let mut services = vec![Service::start(Ipv4Addr::LOCALHOST)];
    services.extend(own_address().map(Service::start));
    for who in Who::all() {
        for policy in ["none", "open", "example.com"] {
            for service in &services {
                let said = talk(who, policy, &service.address.ip().to_string(), service.address.port());
                assert!(said == "silent" || said.starts_with("refused"), "{who:?} {policy}: {said}");
                assert_eq!(
                    service.visits.load(Ordering::SeqCst),
                    0,
                    "{who:?} {policy} reached {}",
                    service.address
                );
            }
        }
    }
}

/// Private ranges, link-local and metadata addresses are refused although the policy is open.
#[test]
fn an_open_network_has_no_private_addresses() {
    for address in ["169.254.169.254", "10.0.0.1", "192.168.0.1", "172.16.0.1", "100.64.0.1"] {
        let said = talk(Who::Root, "open", address, 80);
        assert!(said == "silent" || said.starts_with("refused"), "{address}: {said}");
    }
}

/// Only listed names resolve; what they resolve to means nothing outside.
#[test]
fn only_listed_names_are_answered() {
    let code = "import socket\n\
                for name in ['example.com', 'example.org', 'evilexample.com']:\n\
                \x20   try: print(socket.gethostbyname(name))\n\
                \x20   except OSError as e: print('no')\n";
    for who in Who::all() {
        let result = result(who, &["--network", "example.com", "-l", "python", "-c", code]);
        let lines: Vec<&str> = result["stdout"].as_str().unwrap().lines().collect();
        assert!(lines[0].starts_with("198.18.") || lines[0].starts_with("198.19."), "{who:?}: {lines:?}");
        assert_eq!(&lines[1..], ["no", "no"], "{who:?}");
        assert_eq!(result["walls"]["net"]["mode"], "allow");
    }
}

/// Programs of one sandbox still reach each other.
#[test]
fn loopback_works_inside() {
    let code = "import socket, threading\n\
                s = socket.create_server(('127.0.0.1', 0))\n\
                threading.Thread(target=lambda: s.accept()[0].sendall(b'inside')).start()\n\
                print(socket.create_connection(s.getsockname()).recv(10).decode())\n";
    for who in Who::all() {
        for policy in ["none", "example.com"] {
            let result = result(who, &["--network", policy, "-l", "python", "-c", code]);
            assert_eq!(result["stdout"], "inside\n", "{who:?} {policy}: {result:#}");
        }
    }
}

/// Without a network a lookup fails at once instead of after a name server's silence, which is five seconds long.
#[test]
fn without_a_network_lookups_fail_at_once() {
    let code = "import socket, time\n\
                began = time.monotonic()\n\
                try: print(socket.gethostbyname('example.com'))\n\
                except OSError as e: print(type(e).__name__, time.monotonic() - began < 4)\n";
    for who in Who::all() {
        let result = result(who, &["--network", "none", "-l", "python", "-c", code]);
        assert_eq!(result["stdout"], "gaierror True\n", "{who:?}: {result:#}");
    }
}
