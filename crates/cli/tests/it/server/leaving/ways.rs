//! Every way to open a stream, and to be in the middle of it.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::scene::{LARGE, Scene};
use crate::mcp::http::BOTH;
use crate::server::foreign;
use crate::server::http::Request;
use crate::server::instance::Server;
use crate::server::socket::upgrade;
use crate::support::{eventually, processes_with};

/// Whether a program runs that should have ended with its client.
pub fn any_runs() -> bool {
    let sleeps = (98661..=98669).chain(986_601..=986_602);
    sleeps.map(|number| format!("sleep {number}")).any(|program| !processes_with(&program).is_empty())
}

/// A way to open a stream.
pub struct Way {
    pub name: &'static str,
    /// The routes whose streams these are.
    covers: &'static [&'static str],
    open: fn(&Scene) -> TcpStream,
}

const fn way(name: &'static str, covers: &'static [&'static str], open: fn(&Scene) -> TcpStream) -> Way {
    Way { name, covers, open }
}

/// A stream in its middle.
pub struct Left {
    name: &'static str,
    socket: TcpStream,
}

impl Way {
    pub fn begin(&self, scene: &Scene) -> Left {
        Left { name: self.name, socket: (self.open)(scene) }
    }
}

impl Left {
    pub fn leave(self, reset: bool) {
        if reset {
            let set = rustix::net::sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
            set.unwrap_or_else(|error| panic!("{}: {error}", self.name));
        }
    }
}

/// Sends all of a request and reads until this has come.
fn answered(scene: &Scene, request: &Request, wanted: &str) -> TcpStream {
    let mut socket = scene.send_half(request, request.body.len());
    until(&mut socket, wanted, request);
    socket
}

fn until(socket: &mut TcpStream, wanted: &str, request: &Request) {
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    while !seen.windows(wanted.len()).any(|window| window == wanted.as_bytes()) {
        let read = socket.read(&mut buffer).unwrap_or(0);
        seen.extend_from_slice(&buffer[..read]);
        let said = String::from_utf8_lossy(&seen);
        assert!(read > 0, "{} {} says no {wanted:?}: {said}", request.method, request.target);
        let refused =
            ["HTTP/1.1 3", "HTTP/1.1 4", "HTTP/1.1 5"].iter().any(|status| said.starts_with(status));
        assert!(!refused, "{} {} is refused: {said}", request.method, request.target);
    }
}

/// Sends a request that is answered when its program ends, and waits until that runs.
fn runs(scene: &Scene, request: &Request, program: &str) -> TcpStream {
    let socket = scene.send_half(request, request.body.len());
    eventually("its program runs", || !processes_with(program).is_empty());
    socket
}

/// Sends the first part of a body.
fn half(scene: &Scene, request: Request) -> TcpStream {
    scene.send_half(&request.bytes(vec![b'x'; 200_000]), LARGE)
}

fn events(request: Request) -> Request {
    request.header("accept", "text/event-stream")
}

fn bytes(request: Request) -> Request {
    request.header("content-type", "application/octet-stream")
}

/// A shell line that says that it began, in other words than it is written in.
fn says(program: &str) -> String {
    format!("echo be''gun; exec {program}")
}

/// The first message of a stream of E2B's.
pub fn envelope(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let mut frame = vec![0];
    frame.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
    frame.extend(text.as_bytes());
    frame
}

pub fn connect(scene: &Scene, method: &str, message: &Value) -> Request {
    let request = scene.e2b("POST", 49983, method).header("content-type", "application/connect+json");
    request.bytes(envelope(message))
}

/// The number by which E2B's side knows a program of the scene.
pub fn pid(scene: &Scene, title: &str) -> Value {
    let list = scene.e2b("POST", 49983, "/process.Process/List").json(&json!({}));
    let list = scene.send(&list).expect(200);
    let all = list["processes"].as_array().unwrap();
    let one = all.iter().find(|one| one["config"]["cmd"].as_str().is_some_and(|cmd| cmd.contains(title)));
    one.unwrap_or_else(|| panic!("no {title} in {list:#}"))["pid"].clone()
}

fn hello(version: &str) -> Value {
    let client = json!({ "name": "t", "version": "1" });
    let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
}

fn sleep_by_tool(scene: &Scene, program: &str) -> Value {
    json!({ "sandbox_id": format!("sbx_{}", scene.bare), "command": format!("exec {program}"), "timeout_s": 1000 })
}

fn call(arguments: Value) -> Value {
    let params = json!({ "name": "sandbox_exec", "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params })
}

/// One frame of text, masked with zeros.
pub fn frame(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let mut frame = vec![0x81, 0x80 | 126];
    frame.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    frame
}

/// A client of `/mcp/ws` that was greeted.
pub fn mcp_socket(scene: &Scene) -> TcpStream {
    let request = upgrade(scene.request("GET", "/mcp/ws"));
    let mut socket = answered(scene, &request, "\r\n\r\n");
    socket.write_all(&frame(&hello("2024-11-05"))).unwrap();
    until(&mut socket, "\"protocolVersion\"", &request);
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    socket.write_all(&frame(&ready)).unwrap();
    socket
}

const SLEEPS: &str = "import subprocess\nsubprocess.run(['sleep', '9866";

pub const WAYS: &[Way] = &[
    way("events", &["GET /v1/events"], |s| answered(s, &events(s.request("GET", "/v1/events")), "\r\n\r\n")),
    way("events of a sandbox", &["GET /v1/sandboxes/{sandbox}/events"], |s| {
        answered(s, &events(s.request("GET", format!("{}/events", s.sandbox))), "\r\n\r\n")
    }),
    way("a run's stream", &["POST /v1/runs"], |s| {
        let run = json!({ "language": "bash", "code": says("sleep 98661") });
        answered(s, &events(s.request("POST", "/v1/runs")).json(&run), "begun")
    }),
    way("a run", &[], |s| {
        let run = json!({ "language": "bash", "code": "exec sleep 98662" });
        runs(s, &s.request("POST", "/v1/runs").json(&run), "sleep 98662")
    }),
    way("an exec's stream", &["POST /v1/sandboxes/{sandbox}/exec"], |s| {
        let request = events(s.request("POST", format!("{}/exec", s.sandbox)));
        answered(s, &request.json(&json!({ "command": says("sleep 98663") })), "begun")
    }),
    way("an exec", &[], |s| {
        let request = s.request("POST", format!("{}/exec", s.sandbox));
        runs(s, &request.json(&json!({ "command": "exec sleep 98664" })), "sleep 98664")
    }),
    way("an attached exec", &["GET /v1/sandboxes/{sandbox}/execs/{exec}/events"], |s| {
        answered(s, &events(s.request("GET", format!("{}/events", s.ticking))), "tick")
    }),
    way("a cell", &["POST /v1/sandboxes/{sandbox}/contexts/{context}/execute"], |s| {
        let path = format!("{}/contexts/{}/execute", s.sandbox, s.context);
        let code = "print('be' + 'gun', flush=True)\nimport time\ntime.sleep(1000)";
        answered(s, &events(s.request("POST", path)).json(&json!({ "code": code })), "begun")
    }),
    way("input", &["POST /v1/sandboxes/{sandbox}/execs/{exec}/stdin"], |s| {
        half(s, bytes(s.request("POST", format!("{}/stdin", s.reading))))
    }),
    way("a download", &["GET /v1/sandboxes/{sandbox}/files"], |s| {
        answered(s, &s.request("GET", format!("{}/files?path=large/file", s.sandbox)), "\0")
    }),
    way("an upload", &["PUT /v1/sandboxes/{sandbox}/files"], |s| {
        half(s, bytes(s.request("PUT", format!("{}/files?path=half", s.sandbox))))
    }),
    way("an archive", &["GET /v1/sandboxes/{sandbox}/files/archive"], |s| {
        answered(s, &s.request("GET", format!("{}/files/archive?path=large", s.sandbox)), "ustar")
    }),
    way("unpacking", &["PUT /v1/sandboxes/{sandbox}/files/archive"], |s| {
        let request = s.request("PUT", format!("{}/files/archive?path=half-archive", s.sandbox));
        half(s, request.header("content-type", "application/x-tar"))
    }),
    way("a watch", &["GET /v1/sandboxes/{sandbox}/files/watch"], |s| {
        answered(s, &events(s.request("GET", format!("{}/files/watch?path=seen", s.sandbox))), "tick")
    }),
    way("a terminal", &["GET /v1/sandboxes/{sandbox}/pty"], |s| {
        let line = "echo+be%27%27gun%3B+exec+sleep+98665";
        answered(s, &upgrade(s.request("GET", format!("{}/pty?cmd={line}", s.sandbox))), "begun")
    }),
    way("a tunnel", &["GET /v1/sandboxes/{sandbox}/tunnel/{port}"], |s| {
        let request = s.request("GET", format!("{}/tunnel/8000", s.sandbox));
        let request = request.header("connection", "Upgrade").header("upgrade", "tcp");
        let mut socket = answered(s, &request, "\r\n\r\n");
        socket.write_all(b"raw").unwrap();
        until(&mut socket, "tick", &request);
        socket
    }),
    way("a port", &["GET /v1/sandboxes/{sandbox}/ports/{port}/{path}"], |s| {
        answered(s, &s.request("GET", format!("{}/ports/8000/", s.sandbox)), "tick")
    }),
    way("a port's WebSocket", &[], |s| {
        answered(s, &upgrade(s.request("GET", format!("{}/ports/8000/", s.sandbox))), "tick")
    }),
    way("a body for a port", &[], |s| {
        half(s, bytes(s.request("POST", format!("{}/ports/8000/", s.sandbox))))
    }),
    way("MCP's stream of a session", &["GET /mcp"], |s| {
        let request = events(s.request("GET", "/mcp")).header("mcp-session-id", &s.mcp);
        answered(s, &request.header("mcp-protocol-version", "2025-11-25"), "\r\n\r\n")
    }),
    way("a call over MCP", &["POST /mcp"], |s| {
        let version = "2026-07-28";
        let mut message = call(sleep_by_tool(s, "sleep 98666"));
        message["params"]["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let request = s.request("POST", "/mcp").header("accept", BOTH).json(&message);
        let request = request.header("mcp-protocol-version", version);
        let request = request.header("mcp-method", "tools/call").header("mcp-name", "sandbox_exec");
        runs(s, &request, "sleep 98666")
    }),
    way("MCP's socket", &["GET /mcp/ws"], |s| {
        let mut socket = mcp_socket(s);
        socket.write_all(&frame(&call(sleep_by_tool(s, "sleep 98667")))).unwrap();
        eventually("its program runs", || !processes_with("sleep 98667").is_empty());
        socket
    }),
    way("a tool", &["POST /mcp/tools/{tool}"], |s| {
        let request = s.request("POST", "/mcp/tools/sandbox_exec").json(&sleep_by_tool(s, "sleep 98668"));
        runs(s, &request, "sleep 98668")
    }),
    // What E2B's clients start goes on without them, so it ends by itself.
    way("E2B's process", &["Process/Start"], |s| {
        let config = json!({ "cmd": "/bin/sh", "args": ["-c", says("sleep 0.5")] });
        answered(s, &connect(s, "/process.Process/Start", &json!({ "process": config })), "YmVndW4K")
    }),
    way("E2B's attached process", &["Process/Connect"], |s| {
        let asked = json!({ "process": { "pid": pid(s, "echo tick") } });
        answered(s, &connect(s, "/process.Process/Connect", &asked), "stdout")
    }),
    way("E2B's stream of input", &["Process/StreamInput"], |s| {
        let start = json!({ "start": { "process": { "pid": pid(s, "cat >") } } });
        let mut request = connect(s, "/process.Process/StreamInput", &start);
        request.body.extend(envelope(&json!({ "data": { "input": { "stdin": "eHh4" } } })));
        s.send_half(&request, LARGE)
    }),
    way("E2B's watch", &["Filesystem/WatchDir"], |s| {
        let asked = json!({ "path": "/workspace/seen", "recursive": false });
        answered(s, &connect(s, "/filesystem.Filesystem/WatchDir", &asked), "tick")
    }),
    way("E2B's code", &["POST 49999 /execute"], |s| {
        let code = "print('be' + 'gun', flush=True)\nimport time\ntime.sleep(1000)";
        answered(s, &s.e2b("POST", 49999, "/execute").json(&json!({ "code": code })), "begun")
    }),
    way("E2B's download", &["GET 49983 /files"], |s| {
        answered(s, &s.e2b("GET", 49983, "/files?path=/workspace/large/file"), "\0")
    }),
    way("E2B's upload", &["POST 49983 /files"], |s| {
        half(s, bytes(s.e2b("POST", 49983, "/files?path=/workspace/half-too")))
    }),
    way("a port of E2B's", &[], |s| answered(s, &s.e2b("GET", 8000, "/"), "tick")),
    way("a WebSocket of a port of E2B's", &[], |s| answered(s, &upgrade(s.e2b("GET", 8000, "/")), "tick")),
    way("a session's download", &["GET /workspace/se/download/{session_id}/{*path}"], |s| {
        answered(s, &s.request("GET", format!("/workspace/se/download/{}/large", s.session)), "\0")
    }),
    way("a session's upload", &["POST /workspace/se/upload/{session_id}"], |s| {
        let request = s.request("POST", format!("/workspace/se/upload/{}", s.session));
        let request = request.header("content-type", "multipart/form-data; boundary=b");
        let part = "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"half\"\r\n\r\n";
        s.send_half(&request.bytes([part.as_bytes(), &[b'x'; 200_000]].concat()), LARGE)
    }),
    way("a session's command", &["POST /workspace/se/execute/{session_id}"], |s| {
        let request = s.request("POST", format!("/workspace/se/execute/{}", s.session));
        runs(s, &request.json(&json!({ "command": "exec sleep 98669" })), "sleep 98669")
    }),
    way("a session's code", &["POST /workspace/se/execute_code/{session_id}"], |s| {
        let request = s.request("POST", format!("/workspace/se/execute_code/{}", s.session));
        runs(s, &request.json(&json!({ "code": format!("{SLEEPS}01'])") })), "sleep 986601")
    }),
    way("a handler", &["POST /workspace/se/v2/execute_code"], |s| {
        let code = format!("def handler(event):\n    {}02'])", SLEEPS.replace('\n', "\n    "));
        let request = s.request("POST", "/workspace/se/v2/execute_code");
        runs(s, &request.json(&json!({ "handler_code": code })), "sleep 986602")
    }),
];

/// Routes of the foreign APIs whose answers are whole when they begin.
const WHOLE: &str = "
    /v2/sandboxes /sandboxes /sandboxes/metrics /sandboxes/{id} /v2/sandboxes/{id}/connect /sandboxes/{id}/connect
    /sandboxes/{id}/resume /sandboxes/{id}/pause /sandboxes/{id}/timeout /sandboxes/{id}/refreshes /sandboxes/{id}/fork
    /sandboxes/{id}/snapshots /sandboxes/{id}/network /sandboxes/{id}/metrics /sandboxes/{id}/logs
    /v2/sandboxes/{id}/logs /snapshots /templates /v2/templates /v3/templates /default-templates /templates/{id}
    /templates/aliases/{alias} /volumes /volumes/{*rest} /secrets /secrets/{*rest}
    /workspace/se/api.json /workspace/se/healthy /workspace/se/session/{session_id} /workspace/se/status/{session_id}
    /workspace/se/workspaces /workspace/se/cleanup-all /workspace/se/create/{session_id} /workspace/se/files/{session_id}
    /workspace/se/files/{session_id}/ /workspace/se/files/{session_id}/{*path}
    /workspace/se/files/preview/{session_id}/{*path} /workspace/se/readfile/{session_id}/{*path}
    /workspace/se/download_from_efast/{session_id}
    Process/List Process/Update Process/SendInput Process/SendSignal Process/CloseStdin
    Filesystem/Stat Filesystem/MakeDir Filesystem/Move Filesystem/ListDir Filesystem/Remove Filesystem/CreateWatcher
    Filesystem/GetWatcherEvents Filesystem/RemoveWatcher
    49983 /health /metrics /envs 49999 /contexts /contexts/{id} /contexts/{id}/restart
";

const ENVD: &str = include_str!("../../../../../dialect/e2b/src/envd.rs");
const INTERPRETER: &str = include_str!("../../../../../dialect/e2b/src/interpreter.rs");
const PROCESS: &str = include_str!("../../../../../dialect/e2b/src/process.rs");
const FILESYSTEM: &str = include_str!("../../../../../dialect/e2b/src/filesystem.rs");

/// Fails if there is a stream that nobody here leaves, or a route of which nobody said whether it is one.
pub fn are_all_there_are(server: &Server) {
    let covered: BTreeSet<&str> = WAYS.iter().flat_map(|way| way.covers.iter().copied()).collect();
    let whole: BTreeSet<&str> = WHOLE.split_whitespace().collect();
    let document = server.get("/openapi.json").expect(200);
    let mut streams = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let port = path.ends_with("/ports/{port}/{path}") && method == "get";
            if port || (is_stream(operation) && method != "head") {
                let name = format!("{} {path}", method.to_uppercase());
                assert!(covered.contains(name.as_str()), "nobody leaves {name}");
                streams += 1;
            }
        }
    }
    assert!(streams >= 15, "only {streams} streams are described");
    for route in foreign::all_routes() {
        let (name, path) = (format!("{} {}", route.method, route.path), route.path.as_str());
        let known = covered.contains(name.as_str()) || whole.contains(path) || covers_path(&covered, path);
        assert!(known, "whether {name} is a stream is not said");
    }
    for (source, prefix) in [(PROCESS, "Process/"), (FILESYSTEM, "Filesystem/")] {
        let methods = arms(source, prefix);
        assert!(methods.len() >= 8, "{methods:?}");
        for method in methods {
            assert!(covered.contains(method.as_str()) || whole.contains(method.as_str()), "{method} is new");
        }
    }
    for (source, port) in [(ENVD, "49983"), (INTERPRETER, "49999")] {
        for path in source.split(".route(\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            let known = covered.iter().any(|name| name.ends_with(&format!("{port} {path}")));
            let rpc = path.ends_with("/{method}");
            assert!(known || rpc || whole.contains(path), "whether {path} of {port} is a stream is not said");
        }
    }
}

/// Another method of a path that somebody leaves.
fn covers_path(covered: &BTreeSet<&str>, path: &str) -> bool {
    covered.iter().any(|name| name.split_once(' ').is_some_and(|(_, known)| known == path))
}

/// Whether an operation's body or answer may take as long as it likes.
fn is_stream(operation: &Value) -> bool {
    let long = |content: &Value| {
        let kinds = content.as_object().into_iter().flat_map(|kinds| kinds.keys());
        kinds.into_iter().any(|kind| {
            matches!(kind.as_str(), "text/event-stream" | "application/octet-stream" | "application/x-tar")
        })
    };
    let responses = operation["responses"].as_object().unwrap();
    responses.contains_key("101")
        || long(&responses.get("200").unwrap_or(&Value::Null)["content"])
        || long(&operation["requestBody"]["content"])
}

/// The names that a `match` of methods knows.
fn arms(source: &str, prefix: &str) -> Vec<String> {
    let from = source.find("match method.as_str()").unwrap();
    let body = source[from..].split("\n}").next().unwrap();
    let names = body.lines().filter(|line| line.contains("=>")).flat_map(|line| {
        line.split("=>").next().unwrap().split('|').map(str::trim).filter(|name| name.starts_with('"'))
    });
    names.map(|name| format!("{prefix}{}", name.trim_matches('"'))).collect()
}
