//! One client's walk through everything that a sandbox offers, over HTTP, against the shipped binary.

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::http::Request;
use super::instance::Server;
use super::postgres;
use super::socket::WebSocket;
use crate::support::{PATIENCE, Who, eventually};

#[test]
fn a_walk_on_sqlite() {
    for who in [Who::Root, Who::Ranged] {
        walk(&Server::with(who, best_effort(who), &[]));
    }
}

#[test]
fn a_walk_on_postgresql() {
    let Some(database) = postgres::database() else { return };
    walk(&Server::with(Who::Root, &[("SANDSTORM_DATABASE_URL", &database.reference())], &[]));
}

/// Without control groups some limits cannot be enforced, which a server refuses unless it was told to go on.
pub fn best_effort(who: Who) -> &'static [(&'static str, &'static str)] {
    match who {
        Who::Root => &[],
        Who::Ranged | Who::Single => &[("SANDSTORM_ENFORCEMENT", "best_effort")],
    }
}

fn walk(server: &Server) {
    let sandbox = server.sandbox(&json!({
        "env": { "GREETING": "hello" },
        "labels": { "for": "walk" },
        "limits": { "memory": "1G", "wall": "5m" },
        "lifetime": "10m",
    }));
    streams(server, &sandbox);
    context(server, &sandbox);
    files(server, &sandbox);
    watch(server, &sandbox);
    background(server, &sandbox);
    terminal(server, &sandbox);
    port(server, &sandbox);
    pause(server, &sandbox);
    delete(server, &sandbox);
}

/// Output arrives while the program runs, not at its end.
fn streams(server: &Server, sandbox: &str) {
    let command = "echo $GREETING; read -r answer; echo got $answer >&2; exit 3";
    let request = server
        .request("POST", format!("{sandbox}/exec"))
        .json(&json!({ "command": command, "stdin_stream": true }));
    let mut events = server.stream(request);
    let start = events.next_event().unwrap().data;
    assert_eq!(start["type"], "start");
    let exec = start["exec"].as_str().unwrap().to_owned();
    let said = events.next_event().unwrap();
    assert_eq!((said.data["type"].as_str(), said.data["text"].as_str()), (Some("stdout"), Some("hello\n")));
    assert_eq!(said.id.as_deref(), Some("1"));
    let written = server.send(
        &server
            .request("POST", format!("{sandbox}/execs/{exec}/stdin?close=true"))
            .bytes("you\n")
            .header("content-type", "application/octet-stream"),
    );
    assert!(written.status < 300, "{}", written.text());
    let rest: Vec<Value> = events.map(|event| event.data).collect();
    assert_eq!(rest[0]["text"], "got you\n");
    let end = rest.last().unwrap();
    assert_eq!((end["type"].as_str(), end["exit_code"].as_i64()), (Some("end"), Some(3)));

    // All of it can be had again, from the middle too.
    let again: Vec<Value> = server
        .stream(server.request("GET", format!("{sandbox}/execs/{exec}/events")).header("last-event-id", "1"))
        .map(|event| event.data)
        .collect();
    assert_eq!(again, rest);
    let view = server.get(&format!("{sandbox}/execs/{exec}")).expect(200);
    assert_eq!(
        (view["status"].as_str(), view["result"]["stdout"].as_str()),
        (Some("error"), Some("hello\n"))
    );
}

/// Variables persist, and a chart comes back as an image.
fn context(server: &Server, sandbox: &str) {
    let made = server.post(&format!("{sandbox}/contexts"), &json!({ "language": "python" })).expect(201);
    let context = format!("{sandbox}/contexts/{}", made["id"].as_str().unwrap());
    let run = |code: &str| server.post(&format!("{context}/execute"), &json!({ "code": code })).expect(200);
    assert_eq!(run("x = 20; print('set')")["stdout"], "set\n");
    let result = run("x + 22");
    assert_eq!(result["results"][0]["data"]["text/plain"], "42", "{result:#}");
    let chart = run("import matplotlib.pyplot as plt\nplt.plot([1, x, 3])\nplt.show()");
    let image = chart["results"].as_array().unwrap().iter().find_map(|r| r["data"]["image/png"].as_str());
    assert!(image.is_some_and(|png| png.starts_with("iVBORw0KGgo")), "{chart:#}");
    let failed = run("1 / 0");
    assert_eq!(
        (failed["status"].as_str(), failed["error"]["name"].as_str()),
        (Some("error"), Some("ZeroDivisionError"))
    );

    // An interrupt ends the cell and keeps the variables.
    let request = server
        .request("POST", format!("{context}/execute"))
        .json(&json!({ "code": "import time\nprint('in')\ntime.sleep(600)" }));
    let mut events = server.stream(request);
    while events.next_event().is_some_and(|event| event.data["type"] != "stdout") {}
    assert!(server.post(&format!("{context}/interrupt"), &json!({})).status < 300);
    let end = events.last().unwrap().data;
    assert_eq!((end["type"].as_str(), end["success"].as_bool()), (Some("end"), Some(false)), "{end:#}");
    assert_eq!(run("x")["results"][0]["data"]["text/plain"], "20");

    assert_eq!(server.post(&format!("{context}/restart"), &json!({})).status, 200);
    assert_eq!(run("x")["error"]["name"], "NameError");
    assert_eq!(server.delete(&context).status, 204);
    assert_eq!(server.delete(&context).status, 204);
}

fn files(server: &Server, sandbox: &str) {
    let path = format!("{sandbox}/files?path=/workspace/data/up.bin");
    let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    assert!(server.put(&path, &content).status < 300);
    let got = server.get(&path);
    assert!(got.status == 200 && got.body == content);
    assert_eq!(got.header("x-content-type-options"), Some("nosniff"));
    assert!(got.header("content-disposition").unwrap().starts_with("attachment"));
    let part = server.send(&server.request("GET", &*path).header("range", "bytes=100-199"));
    assert_eq!((part.status, part.body.as_slice()), (206, &content[100..200]));
    assert_eq!(server.send(&server.request("GET", &*path).header("range", "bytes=9000000-")).status, 416);
    assert_eq!(server.exec(sandbox, "wc -c < data/up.bin")["stdout"], "3000000\n");
    let listed = server.get(&format!("{sandbox}/files/list?path=/workspace/data")).expect(200);
    assert_eq!(listed["entries"][0]["path"], "/workspace/data/up.bin", "{listed:#}");
    let made = server.post(&format!("{sandbox}/files/mkdir"), &json!({ "path": "/workspace/new/deep" }));
    assert!(made.status < 300, "{}", made.text());
    let moved = json!({ "from": "/workspace/data/up.bin", "to": "/workspace/new/deep/moved.bin" });
    assert!(server.post(&format!("{sandbox}/files/move"), &moved).status < 300);
    let found = server.get(&format!("{sandbox}/files/search?path=/workspace&pattern=*.bin")).expect(200);
    assert_eq!(found["paths"], json!(["/workspace/new/deep/moved.bin"]), "{found:#}");
    let archive = server.get(&format!("{sandbox}/files/archive?path=/workspace/new"));
    assert_eq!(archive.status, 200);
    let back = server.send(
        &server
            .request("PUT", format!("{sandbox}/files/archive?path=/workspace/copy"))
            .bytes(archive.body)
            .header("content-type", "application/x-tar"),
    );
    assert!(back.status < 300, "{}", back.text());
    assert_eq!(
        server.exec(sandbox, "cmp new/deep/moved.bin copy/deep/moved.bin && echo same")["stdout"],
        "same\n"
    );
    assert!(server.delete(&format!("{sandbox}/files?path=/workspace/new&recursive=true")).status < 300);
    assert_eq!(server.get(&format!("{sandbox}/files?path=/workspace/new/deep/moved.bin")).status, 404);
    let exists = server.get(&format!("{sandbox}/files/exists?path=/workspace/new")).expect(200);
    assert_eq!(exists["exists"], false);
}

fn watch(server: &Server, sandbox: &str) {
    let mut changes = server.stream(server.request("GET", format!("{sandbox}/files/watch?path=/workspace")));
    // The watch stands once the answer has begun; what happens from now on is seen.
    server.exec(sandbox, "echo 1 > seen.txt");
    let change =
        changes.find(|event| event.data["path"] == "/workspace/seen.txt").expect("the change is told");
    assert!(["created", "modified"].contains(&change.data["change"].as_str().unwrap()), "{change:?}");
}

/// Runs on with nobody listening; can be listened to, signalled and listed.
fn background(server: &Server, sandbox: &str) {
    let body = json!({ "command": "for i in 1 2 3; do echo line $i; done; sleep 600", "background": true });
    let started = server.post(&format!("{sandbox}/exec"), &body).expect(202);
    let exec = format!("{sandbox}/execs/{}", started["id"].as_str().unwrap());
    eventually("its output is kept", || {
        let events = server.stream(server.request("GET", format!("{exec}/events")));
        let text: String =
            events.take(2).filter_map(|e| e.data["text"].as_str().map(str::to_owned)).collect();
        text.starts_with("line 1\n")
    });
    assert_eq!(server.get(sandbox).expect(200)["state"], "running");
    let running = server.get(&format!("{sandbox}/execs?running=true")).expect(200);
    assert_eq!(running["items"].as_array().unwrap().len(), 1, "{running:#}");
    assert!(server.post(&format!("{exec}/signal"), &json!({ "signal": "TERM" })).status < 300);
    eventually("it ends", || server.get(&exec).expect(200)["status"] == "killed");
}

fn terminal(server: &Server, sandbox: &str) {
    let mut socket = WebSocket::open(server, &format!("{sandbox}/pty?rows=30&cols=100"));
    socket.send_bytes(b"stty size; echo re''ady\n");
    socket.read_until("30 100");
    socket.read_until("ready");
    socket.send_text(&json!({ "resize": { "rows": 50, "cols": 120 } }).to_string());
    socket.send_bytes(b"stty size\n");
    socket.read_until("50 120");
    // Ctrl-C means an interrupt once a program has the terminal, so the program itself says that it began:
    // a shell that is just starting one may swallow the interrupt.
    socket.send_bytes(b"sh -c \"echo st''art; exec cat\"\n");
    socket.read_until("start");
    socket.send_bytes(&[3]);
    // What is typed while the terminal changes hands is lost, here as anywhere.
    socket.read_until("$ ");
    socket.send_bytes(b"exit 7\n");
    let exit = socket.read_exit();
    assert_eq!(exit["exit"]["exit_code"].as_i64().or(exit["exit"].as_i64()), Some(7), "{exit}");
}

/// A web server inside is reached through the gateway, which keeps its own credentials to itself.
fn port(server: &Server, sandbox: &str) {
    let program = r#"
import http.server
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = (self.path + '|' + str(self.headers.get('Authorization')) + '|' + str(self.headers.get('X-Asked'))).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args): pass
http.server.HTTPServer(('127.0.0.1', 8000), Echo).serve_forever()
"#;
    let body = json!({ "language": "python", "code": program, "background": true });
    let started = server.post(&format!("{sandbox}/exec"), &body).expect(202);
    let target = format!("{sandbox}/ports/8000/some/path?q=1");
    let asked = || server.send(&server.request("GET", &*target).header("x-asked", "yes"));
    eventually("the port answers", || asked().status == 200);
    assert_eq!(asked().text(), "/some/path?q=1|None|yes");
    // Nothing listens there: an answer of ours, and a clear one.
    assert_eq!(server.get(&format!("{sandbox}/ports/8001/")).status, 502);
    assert!(server.delete(&format!("{sandbox}/execs/{}", started["id"].as_str().unwrap())).status < 300);
}

fn pause(server: &Server, sandbox: &str) {
    let ticking = json!({ "command": "while :; do date +%s%N > tick; sleep 0.05; done", "background": true });
    server.post(&format!("{sandbox}/exec"), &ticking).expect(202);
    let paused = server.post(&format!("{sandbox}/pause"), &json!({}));
    if paused.status == 501 || paused.status == 400 {
        // Without control groups nothing can be frozen, and the answer says so.
        assert!(paused.text().contains("pause"), "{}", paused.text());
        return;
    }
    assert_eq!(paused.expect(200)["state"], "paused");
    assert_eq!(server.post(&format!("{sandbox}/exec"), &json!({ "command": "true" })).status, 409);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(server.post(&format!("{sandbox}/resume"), &json!({})).expect(200)["state"], "running");
    let gap = server
        .exec(sandbox, "a=$(cat tick); while [ \"$(cat tick)\" = \"$a\" ]; do sleep 0.02; done; echo alive");
    assert_eq!(gap["stdout"], "alive\n");
}

fn delete(server: &Server, sandbox: &str) {
    assert_eq!(server.delete(sandbox).status, 204);
    assert_eq!(server.delete(sandbox).status, 204);
    let gone = server.get(sandbox).expect(200);
    assert_eq!(gone["state"], "terminated");
    assert_eq!(server.post(&format!("{sandbox}/exec"), &json!({ "command": "true" })).status, 409);
    let listed = server.get("/v1/sandboxes").expect(200);
    assert_eq!(listed["items"], json!([]));
}

/// A raw request for what the little client would not send.
pub fn raw(server: &Server, bytes: &[u8]) -> String {
    let mut socket = std::net::TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn what_the_server_shows_without_a_key() {
    let server = Server::start(Who::Root);
    let open = |target: &str| server.send(&Request::new("GET", target));
    assert_eq!(open("/healthz").status, 200);
    assert_eq!(open("/readyz").status, 200);
    let document = open("/openapi.json").expect(200);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    assert!(open("/docs/").text().contains("swagger"), "{}", open("/docs/").text());
    let refused = open("/v1/sandboxes");
    assert_eq!((refused.status, refused.header("content-type")), (401, Some("application/problem+json")));
    assert_eq!(refused.json()["code"], "unauthenticated");
    let metrics = open("/metrics").text();
    assert!(metrics.contains("# TYPE sandstorm_"), "{metrics}");
}
