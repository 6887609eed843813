//! `--network a.test` with real servers: that name is reached, by HTTP and by HTTPS, and nothing else is.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use super::outside::{A, A_V6, Answer, B, HOST, NAME_SERVER, Outside, PRIVATE, Packet};
use crate::support::{Who, skip};

/// The few attempts that must succeed; all others must not.
const REACHED: [&str; 6] =
    ["http", "https", "two requests", "right handshake", "right lookup", "right lookup over tcp"];

/// Making namespaces with devices in them takes root.
fn outside() -> Option<Outside> {
    if rustix::process::geteuid().is_root() {
        return Some(Outside::start());
    }
    skip("only root can make a network around the sandbox");
    None
}

/// A service of the machine on which sandboxes run, as a gateway is, on every address that it has.
fn gateway(outside: &Outside) -> (u16, Arc<AtomicUsize>) {
    let visits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&visits);
    let listener = outside.on_host(|| TcpListener::bind("[::]:7300").unwrap());
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    (port, visits)
}

/// What a client sees of a connection that the policy does not let through: a failure, or the answer to a request of plain HTTP.
fn is_refused(outcome: &str) -> bool {
    outcome.ends_with("Error") || outcome == "HTTP/1.1 403"
}

#[test]
fn a_listed_name_is_reached_and_nothing_else_is() {
    let Some(outside) = outside() else { return };
    let (port, visits) = gateway(&outside);
    outside.names.is("a.test", A);
    outside.names.is("b.test", B);
    for who in Who::all() {
        let port = port.to_string();
        let arguments = [A, A_V6, B, NAME_SERVER, PRIVATE, HOST, &port];
        let outcomes = outside.run(who, "a.test", include_str!("attempts.py"), &arguments);
        let outcomes = outcomes.as_object().unwrap();
        assert!(outcomes.len() > 70, "{outcomes:#?}");
        for (attempt, outcome) in outcomes {
            let reached = outcome.as_str().unwrap().starts_with("reached");
            assert_eq!(reached, REACHED.contains(&&attempt[..]), "{who:?}: {attempt}: {outcome}");
        }
        assert_eq!(outcomes["http"], "reached http a.test", "{who:?}");
        assert_eq!(outcomes["https"], "reached https a.test", "{who:?}");

        // What the servers heard, what the name server was asked, and every packet on the wire.
        let requests = outside.web.take_requests();
        assert!(
            requests.iter().all(|request| request.split(' ').nth(1) == Some("a.test")),
            "{who:?}: {requests:?}"
        );
        assert!(!requests.iter().any(|request| request.ends_with("/stolen")), "{who:?}: {requests:?}");
        assert_eq!(outside.names.take_asked(), ["a.test"], "{who:?}");
        let expected = [Packet::tcp(A, 80), Packet::tcp(A, 443), Packet::udp(NAME_SERVER, 53)];
        assert_eq!(outside.heard(), expected, "{who:?}");
        assert_eq!(visits.load(Ordering::SeqCst), 0, "{who:?} reached a service of the host");
    }
}

/// The ear works: under an open policy the same wire carries more, and still nothing to the inside.
#[test]
fn an_open_policy_reaches_what_is_public_and_no_more() {
    let Some(outside) = outside() else { return };
    let (port, visits) = gateway(&outside);
    for (name, address) in [("a.test", A), ("b.test", B), ("private.test", PRIVATE), ("gateway.test", HOST)] {
        outside.names.is(name, address);
    }
    let code = "import json, socket, sys\n\
                def talk(host, port):\n\
                \x20   try:\n\
                \x20       s = socket.create_connection((host, int(port)), timeout=10)\n\
                \x20       s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n\
                \x20       return s.recv(12).decode()\n\
                \x20   except OSError as e: return type(e).__name__\n\
                print(json.dumps({t: talk(*t.rsplit(' ', 1)) for t in sys.argv[1:]}))";
    let public = [format!("{A} 80"), format!("{A_V6} 80"), "b.test 8080".to_owned()];
    let inside = [
        format!("{PRIVATE} 80"),
        "private.test 80".to_owned(),
        format!("gateway.test {port}"),
        format!("{HOST} {port}"),
        format!("127.0.0.1 {port}"),
        format!("10.9.0.2 {port}"),
        format!("2606:4700::1 {port}"),
    ];
    let arguments: Vec<&str> = public.iter().chain(&inside).map(String::as_str).collect();
    for who in Who::all() {
        let outcomes = outside.run(who, "open", code, &arguments);
        for target in &public {
            assert_eq!(outcomes[target], "HTTP/1.1 200", "{who:?}: {target}");
        }
        for target in &inside {
            assert!(is_refused(outcomes[target].as_str().unwrap()), "{who:?}: {target}: {outcomes}");
        }
        let expected =
            [Packet::tcp(A, 80), Packet::tcp(B, 8080), Packet::udp(NAME_SERVER, 53), Packet::tcp(A_V6, 80)];
        assert_eq!(outside.heard(), expected, "{who:?}");
        assert_eq!(visits.load(Ordering::SeqCst), 0, "{who:?} reached a service of the host");
    }
}

/// A listed name may lead anywhere, at any time: each connection is judged by the address that it would be made to.
#[test]
fn names_that_lead_inwards_are_not_followed() {
    let Some(outside) = outside() else { return };
    let (_, visits) = gateway(&outside);
    let address = |text: &str| Answer::Address(text.parse().unwrap());
    let inwards =
        ["alias.test", "mapped.test", "mapped-private.test", "metadata.test", "gateway.test", "loop.test"];
    let code = "import json, socket, sys\n\
                def talk(name):\n\
                \x20   try:\n\
                \x20       s = socket.create_connection((name, 7300), timeout=10)\n\
                \x20       s.sendall(b'GET / HTTP/1.1\\r\\nHost: ' + name.encode() + b'\\r\\n\\r\\n')\n\
                \x20       return s.recv(12).decode()\n\
                \x20   except OSError as e: return type(e).__name__\n\
                print(json.dumps([talk(name) for name in sys.argv[1:]]))";
    let names =
        [&["rebind.test", "rebind.test", "rebind.test", "mixed.test", "outward.test"], &inwards[..]].concat();
    let policy: Vec<String> = names.iter().map(|name| format!("{name}:7300")).collect();
    for who in Who::all() {
        outside.names.set("rebind.test", &[address(A), address("127.0.0.1")]);
        outside.names.set("mixed.test", &[Answer::Alias("b.test".to_owned(), B.parse().unwrap())]);
        outside.names.set("outward.test", &[address(A_V6)]);
        outside.names.set("alias.test", &[Answer::Alias("inside.corp".to_owned(), PRIVATE.parse().unwrap())]);
        outside.names.is("mapped.test", "::ffff:127.0.0.1");
        outside.names.is("mapped-private.test", &format!("::ffff:{PRIVATE}"));
        outside.names.is("metadata.test", "169.254.169.254");
        outside.names.is("gateway.test", HOST);
        outside.names.is("loop.test", "127.0.0.1");
        let outcomes = outside.run(who, &policy.join(","), code, &names);
        let outcomes: Vec<&str> = outcomes.as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let ok = "HTTP/1.1 200";
        assert_eq!((outcomes[0], outcomes[3], outcomes[4]), (ok, ok, ok), "{who:?}: {outcomes:?}");
        for (name, outcome) in names.iter().zip(&outcomes).skip(5).chain([(&"rebind.test", &outcomes[1])]) {
            assert!(is_refused(outcome), "{who:?}: {name}: {outcome}");
        }
        let expected = [
            Packet::tcp(A, 7300),
            Packet::tcp(B, 7300),
            Packet::udp(NAME_SERVER, 53),
            Packet::tcp(A_V6, 7300),
        ];
        assert_eq!(outside.heard(), expected, "{who:?}");
        assert_eq!(visits.load(Ordering::SeqCst), 0, "{who:?} reached a service of the host");
    }
}

/// A sandbox that may reach a name is no way out for one that may not, even if its own program wants to be.
#[test]
fn another_sandbox_is_no_way_out() {
    let Some(outside) = outside() else { return };
    outside.names.is("a.test", A);
    let relay = "import socket, sys, threading\n\
                 def serve(s):\n\
                 \x20   while True: s.accept()[0].sendall(b'relay')\n\
                 unix = socket.socket(socket.AF_UNIX); unix.bind('\\0relay'); unix.listen()\n\
                 for s in [socket.create_server(('0.0.0.0', 9000)), socket.create_server(('::', 9001), family=socket.AF_INET6), unix]:\n\
                 \x20   threading.Thread(target=serve, args=(s,), daemon=True).start()\n\
                 assert socket.create_connection(('127.0.0.1', 9000)).recv(5) == b'relay'\n\
                 print(socket.gethostbyname('a.test'), flush=True)\n\
                 sys.stdin.read()";
    let code = "import json, socket, sys\n\
                targets = [('127.0.0.1', 9000), ('::1', 9001), ('0.0.0.0', 9000), ('198.18.0.1', 9000), (sys.argv[1], 80), (sys.argv[1], 9000)]\n\
                def talk(target):\n\
                \x20   try:\n\
                \x20       if target == 'unix':\n\
                \x20           s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect('\\0relay')\n\
                \x20       else: s = socket.create_connection(target, timeout=5)\n\
                \x20       s.sendall(b'GET / HTTP/1.1\\r\\nHost: a.test\\r\\n\\r\\n')\n\
                \x20       return 'denied' if s.recv(12) in (b'', b'HTTP/1.1 403') else 'reached'\n\
                \x20   except OSError as e: return 'denied'\n\
                print(json.dumps([talk(target) for target in targets + ['unix']]))";
    for who in Who::all() {
        let mut child = outside
            .command(who)
            .args(["run", "--timeout", "5m", "--network", "a.test", "-l", "python", "-c", relay])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut address).unwrap();
        assert!(address.starts_with("198.1"), "{who:?}: {address}");
        for policy in ["none", "b.test"] {
            let outcomes = outside.run(who, policy, code, &[address.trim()]);
            assert!(
                outcomes.as_array().unwrap().iter().all(|outcome| outcome == "denied"),
                "{who:?} {policy}: {outcomes}"
            );
        }
        drop(child.stdin.take());
        said.read_to_string(&mut address).unwrap();
        assert!(child.wait().unwrap().success(), "{who:?}");
        assert_eq!(outside.heard(), [], "{who:?}");
    }
}
