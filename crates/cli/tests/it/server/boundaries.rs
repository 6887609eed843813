//! What must not cross: from sandboxes to the server, from programs into records, from one share into more.

use std::net::UdpSocket;

use serde_json::{Value, json};

use super::http::Request;
use super::instance::Server;
use super::tenants::{new_key, on_state, secret_of};
use crate::support::Who;

/// Every address of this machine that a program could think of, and the sockets in the state directory.
#[test]
fn no_sandbox_reaches_the_server() {
    // The operators' listener is where the network sees it: only a wall keeps a sandbox away from there.
    let outside = own_address().unwrap_or_else(|| "127.0.0.1".to_owned());
    let operators = std::net::TcpListener::bind((outside.as_str(), 0)).unwrap().local_addr().unwrap();
    let server = Server::with(Who::Root, &[], &["--admin-listen", &operators.to_string()]);
    let mut addresses = vec!["127.0.0.1".to_owned(), "::1".to_owned(), "::ffff:127.0.0.1".to_owned()];
    addresses.extend(["localhost".to_owned(), "0.0.0.0".to_owned(), outside]);
    addresses.push(rustix::system::uname().nodename().to_string_lossy().into_owned());
    let ports = [server.port, operators.port()];
    // A request that the sandbox's own network refuses is answered with 403; the server answers this page with 200.
    let code = format!(
        "import socket\n\
         def reached(connect):\n    try:\n        s = connect()\n        s.sendall(b'GET /healthz HTTP/1.0\\r\\n\\r\\n')\n\
         \x20       s.settimeout(3)\n        return s.recv(12) not in (b'', b'HTTP/1.1 403')\n    except OSError:\n        return False\n\
         for host in {addresses:?}:\n    for port in {ports:?}:\n\
         \x20       print(host, port, reached(lambda: socket.create_connection((host, port), timeout=3)))\n\
         for name in ['admin.sock', 'launcher.sock']:\n    def connect():\n\
         \x20       s = socket.socket(socket.AF_UNIX)\n        s.connect({state:?} + '/' + name)\n        return s\n\
         \x20   print(name, reached(connect))\n",
        state = server.state(),
    );
    // From outside the server answers at both.
    assert_eq!(server.send(&Request::new("GET", "/healthz")).status, 200);
    let mut admin = std::net::TcpStream::connect(operators).unwrap();
    let asked = format!("GET /healthz HTTP/1.1\r\nhost: {operators}\r\nconnection: close\r\n\r\n");
    std::io::Write::write_all(&mut admin, asked.as_bytes()).unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut admin, &mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    // A policy may name the inside. It opens nothing there: what a name leads to is judged when it is connected to.
    let inside: Vec<String> = (["localhost", "ip:127.0.0.1", "ip:127.0.0.0/8", "ip:[::1]"].iter())
        .map(ToString::to_string)
        .chain([format!("ip:{}", operators.ip())])
        .flat_map(|target| ports.map(|port| format!("{target}:{port}")))
        .collect();
    for network in [json!("none"), json!("open"), json!({ "allow": inside })] {
        let sandbox = server.post("/v1/sandboxes", &json!({ "network": network }));
        let path = format!("/v1/sandboxes/{}", sandbox.expect(201)["id"].as_str().unwrap());
        let said = server
            .post(&format!("{path}/exec"), &json!({ "language": "python", "code": code, "timeout": 300 }))
            .expect(200);
        let lines = said["stdout"].as_str().unwrap().trim().to_owned();
        assert_eq!(lines.lines().count(), 2 * addresses.len() + 2, "{network}: {said:#}");
        assert!(lines.lines().all(|line| line.ends_with(" False")), "{network}: {lines}");
    }
}

/// An address of this machine that is not loopback: where a packet to anywhere would start from.
fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}

/// Whatever goes in and comes out of sandboxes, the audit knows only that it did.
#[test]
fn the_audit_holds_no_secret_content_or_output() {
    let server = Server::start(Who::Root);
    let sandbox =
        server.sandbox(&json!({ "env": { "TOKEN": "canary-env" }, "labels": { "of": "canary-label" } }));
    let exec = format!("{sandbox}/exec");
    server
        .post(&exec, &json!({ "command": "cat; echo canary''-output", "stdin": "canary-stdin" }))
        .expect(200);
    server
        .post(&exec, &json!({ "language": "python", "code": "x = 'canary-code'", "args": ["canary-arg"] }))
        .expect(200);
    let context = server.post(&format!("{sandbox}/contexts"), &json!({ "language": "python" })).expect(201);
    let cell = format!("{sandbox}/contexts/{}/execute", context["id"].as_str().unwrap());
    server.post(&cell, &json!({ "code": "print('canary-cell')" })).expect(200);
    assert_eq!(server.put(&format!("{sandbox}/files?path=canary-name"), b"canary-content").status, 200);
    assert_eq!(server.get(&format!("{sandbox}/files?path=canary-name")).text(), "canary-content");
    server
        .post(
            "/v1/runs",
            &json!({ "language": "bash", "code": "echo canary-run", "files": { "f": "canary-file" } }),
        )
        .expect(200);
    // What a request calls itself is written down, unless it could be taken for something else.
    let called = |id: &str| {
        server.send(&server.request("POST", "/v1/sandboxes").json(&json!({})).header("x-request-id", id))
    };
    called("mine-1").expect(201);
    called("a\"},{\"seq\":1").expect(201);
    assert_eq!(called("a\u{1b}[2J").status, 400);
    new_key(&server, &["--name", "canary-key\",\"seq\":9"]);
    server.get("/v1/sandboxes/canary-path");
    let listed = on_state(&server, &["audit", "list", "--json"]);
    let records: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let actions: Vec<&str> = records.iter().map(|record| record["action"].as_str().unwrap()).collect();
    for action in [
        "sandbox.create",
        "exec.command",
        "exec.code",
        "exec.cell",
        "context.create",
        "run.create",
        "key.create",
    ] {
        assert!(actions.contains(&action), "{action} is not in {actions:?}");
    }
    let asked: Vec<&str> = records.iter().map(|record| record["request_id"].as_str().unwrap()).collect();
    assert!(asked.contains(&"mine-1") && asked.iter().all(|id| !id.contains('"')), "{asked:?}");
    let secret = secret_of(&server.key);
    for record in &records {
        let text = record.to_string();
        assert!(!text.contains("canary") && !text.contains(secret), "{text}");
        assert!(!text.contains("\\u001b") && !text.contains("[2J"), "{text}");
    }
    let plain = on_state(&server, &["audit", "list"]);
    assert_eq!(plain.lines().count(), records.len(), "one line each: {plain}");
    assert!(!plain.contains('\u{1b}'));
}

/// Many at once against a share of memory, and against one of processors: what fits gets in, and no more.
#[test]
fn memory_and_processors_of_a_tenant_are_promised_once() {
    for (setting, value, wish) in [
        ("SANDSTORM_QUOTAS_MEMORY", "512M", json!({ "limits": { "memory": "128M", "cpus": 0.1 } })),
        ("SANDSTORM_QUOTAS_CPUS", "2", json!({ "limits": { "memory": "16M", "cpus": 0.5 } })),
    ] {
        let server = Server::with(Who::Root, &[(setting, value)], &[]);
        let answers: Vec<_> = std::thread::scope(|scope| {
            let asked: Vec<_> =
                (0..24).map(|_| scope.spawn(|| server.post("/v1/sandboxes", &wish))).collect();
            asked.into_iter().map(|answer| answer.join().unwrap()).collect()
        });
        assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 4, "{setting}");
        for refused in answers.iter().filter(|answer| answer.status != 201) {
            assert_eq!(
                (refused.status, refused.json()["code"].as_str()),
                (429, Some("quota")),
                "{}",
                refused.text()
            );
            assert!(refused.header("retry-after").is_some());
        }
        // A run has no share left either.
        let run = json!({ "language": "bash", "code": "true", "limits": wish["limits"] });
        assert_eq!(server.post("/v1/runs", &run).status, 429, "{setting}");
    }
}
