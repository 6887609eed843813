//! What a program could not reach is told: to the program, where it speaks plain HTTP, and to its caller.

use serde_json::{Value, json};

use crate::server::instance::Server;
use crate::support::{Who, result, run, stderr};

/// A lookup, a connection to an address of no rule, one to a port of no rule, and a request.
const TRIES: &str = "\
import socket, urllib.request, urllib.error
try: socket.gethostbyname('evil.example')
except OSError: print('no name')
for target in [('10.0.0.1', 22), ('10.0.0.1', 22), ('example.com', 2222)]:
    try:
        s = socket.create_connection(target, timeout=60)
        s.sendall(b'hello')
        print('heard', s.recv(10))
    except OSError as e: print(type(e).__name__)
try: urllib.request.urlopen('http://169.254.169.254/latest', timeout=60)
except urllib.error.HTTPError as e: print(e.code, e.read().decode())
";

/// `target`, `protocol`, `reason` and `count` of each, in the order of the first attempts.
fn told(result: &Value) -> Vec<(String, String, String, u64)> {
    let text = |one: &Value| one.as_str().unwrap_or_default().to_owned();
    let of = |one: &Value| {
        let port = one["port"].as_u64().map(|port| format!(":{port}")).unwrap_or_default();
        let target = format!("{}{port}", text(&one["host"]));
        (target, text(&one["protocol"]), text(&one["reason"]), one["count"].as_u64().unwrap())
    };
    result["denied"].as_array().map(|all| all.iter().map(of).collect()).unwrap_or_default()
}

fn is_whole(result: &Value) {
    let out = result["stdout"].as_str().unwrap();
    assert!(
        out.starts_with("no name\nConnectionResetError\nConnectionResetError\nConnectionResetError\n403 ")
    );
    assert!(out.contains("the connection to 169.254.169.254:80 was refused: the network policy"), "{out}");
    let told = told(result);
    let of = |target: &str, protocol: &str, count| {
        (target.to_owned(), protocol.to_owned(), "not_allowed".to_owned(), count)
    };
    // A library may ask for a name more than once, or for other kinds of address.
    assert!(told[0].3 >= 1 && told[0] == of("evil.example", "dns", told[0].3), "{told:?}");
    assert_eq!(
        told[1..],
        [of("10.0.0.1:22", "tcp", 2), of("example.com:2222", "tcp", 1), of("169.254.169.254:80", "tcp", 1)]
    );
    let one = &result["denied"][1];
    assert_eq!(one["message"], "the network policy does not allow the destination");
    assert!(one["at"].as_str().unwrap().ends_with('Z'), "{one}");
}

#[test]
fn a_run_tells_what_was_refused() {
    for who in Who::all() {
        let ran = result(who, &["--network", "example.com", "-l", "python", "-c", TRIES]);
        is_whole(&ran);
        // One that reached for nothing, or had no network to reach for, tells nothing.
        for network in ["example.com", "none"] {
            let quiet = result(who, &["--network", network, "-l", "python", "-c", "print(1)"]);
            assert_eq!(quiet.get("denied"), None, "{quiet:#}");
        }
    }
}

#[test]
fn a_person_reads_what_was_refused_and_what_helps() {
    let ran = run(Who::Root, &["run", "--network", "example.com", "-l", "python", "-c", TRIES]);
    let said = stderr(&ran);
    for line in [
        "network: the lookup of evil.example was refused: the network policy does not allow the destination",
        "; to allow it, run with --network evil.example\n",
        "network: the connection to 10.0.0.1:22 was refused: the network policy does not allow the destination \
         (2 times); to allow it, run with --network ip:10.0.0.1:22\n",
        "; to allow it, run with --network example.com:2222\n",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    assert!(ran.status.success(), "{said}");
    // What no rule opens is not promised by one.
    let code =
        "import socket\ntry: socket.create_connection(('169.254.169.254', 80)).recv(1)\nexcept OSError: pass";
    let ran = run(Who::Root, &["run", "--network", "open", "-l", "python", "-c", code]);
    let wanted = "network: the connection to 169.254.169.254:80 was refused: the destination is not a public address\n";
    assert!(stderr(&ran).contains(wanted), "{}", stderr(&ran));
}

#[test]
fn an_exec_and_a_cell_tell_of_their_own_time() {
    let server = Server::start(Who::Root);
    let sandbox = server.sandbox(&json!({ "network": { "allow": ["example.com"] } }));
    let start = |command: Value| {
        let request = server.request("POST", format!("{sandbox}/exec")).json(&json!({ "command": command }));
        let events: Vec<Value> = server.stream(request).map(|event| event.data).collect();
        (events[0]["exec"].as_str().unwrap().to_owned(), events.last().unwrap().clone())
    };
    let (exec, end) = start(json!(["python3", "-c", TRIES]));
    assert_eq!((&end["type"], told(&end).len()), (&json!("end"), 4), "{end:#}");
    // The same of the record, and nothing of it of who came later.
    let view = server.get(&format!("{sandbox}/execs/{exec}")).expect(200);
    is_whole(&view["result"]);
    let (_, quiet) = start(json!("true"));
    assert_eq!((&quiet["type"], quiet.get("denied")), (&json!("end"), None), "{quiet:#}");

    let made = server.post(&format!("{sandbox}/contexts"), &json!({ "language": "python" })).expect(201);
    let context = format!("{sandbox}/contexts/{}", made["id"].as_str().unwrap());
    let cell = |code: &str| server.post(&format!("{context}/execute"), &json!({ "code": code })).expect(200);
    is_whole(&cell(TRIES));
    assert_eq!(cell("1 + 1").get("denied"), None);
    is_whole(&cell(TRIES));
}

/// However many things a program tries, a result stays short.
#[test]
fn a_flood_of_refusals_is_a_short_list() {
    let code = "\
import socket
for index in range(100):
    s = socket.socket()
    s.settimeout(60)
    try:
        s.connect(('10.0.0.1', 1000 + index))
        s.sendall(b'\\0')
        s.recv(1)
    except OSError: pass
    s.close()
";
    let ran = result(Who::Root, &["--network", "example.com", "-l", "python", "-c", code]);
    let told = told(&ran);
    assert_eq!(told.len(), 33, "{told:?}");
    assert_eq!(told[32], (String::new(), "tcp".to_owned(), "more".to_owned(), 68));
}
