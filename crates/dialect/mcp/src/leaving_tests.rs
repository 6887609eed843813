//! Clients that leave in the middle of something, over every way in. On sandboxes in memory, which have a small shell.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::{Extension, Router};
use sandstorm_control::server::{Control, NewSandbox, SandboxQuery, Setup, testing};
use sandstorm_control::{Runner, Tools as RunnerTools};
use sandstorm_language::Roots;
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{Closing, Provider};
use sandstorm_store::{AuditKey, Store, StoreConfig};
use sandstorm_types::Limits;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::{McpSettings, Server, router};

/// As long as a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(45);
const HEAD: &str =
    "host: x\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\n";

struct World {
    control: Control,
    closing: Closing,
    address: SocketAddr,
    _server: AbortOnDropHandle<()>,
    _state: TempDir,
}

impl World {
    async fn new() -> Self {
        let state = TempDir::new().unwrap();
        let config = StoreConfig::in_directory(state.path(), None, AuditKey::from_bytes([7; 32]));
        let store = Store::open(&config).await.unwrap();
        let provider: Arc<dyn Provider> = Arc::new(MemoryProvider::default());
        let runner = Runner::new(RunnerTools {
            provider: Arc::clone(&provider),
            limits: Limits::default(),
            roots: Roots::host(),
            cache: None,
            layers: None,
        });
        let control =
            Control::start(Setup { store, provider, runner, settings: testing::settings() }).await.unwrap();
        let closing = Closing::of(&CancellationToken::new());
        let settings = McpSettings {
            closing: closing.clone(),
            gone_after: Duration::from_millis(300),
            ..McpSettings::default()
        };
        let routes: Router =
            router(&Server::new(control.clone(), settings)).layer(Extension(control.developer()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = TaskTracker::new().spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { control, closing, address, _server: AbortOnDropHandle::new(serving), _state: state }
    }

    /// Sends a message to `/mcp`; what is answered is still to be read.
    async fn post(&self, headers: &str, message: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let body = message.to_string();
        let length = body.len();
        let request = format!("POST /mcp HTTP/1.1\r\n{HEAD}{headers}content-length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// The number of a session of its own.
    async fn session(&self) -> String {
        let mut stream = self.post("", &hello("2025-11-25")).await;
        let said = until(&mut stream, "\r\n\r\n").await;
        let line = said.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        line.unwrap_or_else(|| panic!("{said}")).to_owned()
    }

    async fn sandbox(&self) -> String {
        let caller = self.control.developer();
        self.control.create_sandbox(&caller, NewSandbox::default()).await.unwrap().id.to_string()
    }

    async fn running(&self) -> usize {
        let all = self.control.sandboxes(&self.control.developer(), SandboxQuery::default()).await.unwrap();
        all.items.iter().map(|sandbox| sandbox.execs_running).sum()
    }

    async fn eventually_running(&self, wanted: usize) {
        let began = Instant::now();
        while self.running().await != wanted {
            assert!(began.elapsed() < PATIENCE, "{} programs run, not {wanted}", self.running().await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn hello(version: &str) -> Value {
    let client = json!({ "name": "t", "version": "1" });
    let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
}

fn call(id: u64, tool: &str, arguments: Value) -> Value {
    let params = json!({ "name": tool, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
}

/// Reads until this text has come.
async fn until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut said = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&said).into_owned();
        if text.contains(wanted) {
            return text;
        }
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut said)).await;
        assert_ne!(read.expect("an answer comes").unwrap(), 0, "{text}");
    }
}

/// One frame of text, masked with zeros.
fn frame(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    let mut frame = vec![0x81, 0x80 | 126];
    frame.extend(u16::try_from(text.len()).unwrap().to_be_bytes());
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    frame
}

async fn socket(world: &World) -> TcpStream {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let upgrade = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
        sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    stream.write_all(format!("GET /mcp/ws HTTP/1.1\r\nhost: x\r\n{upgrade}\r\n").as_bytes()).await.unwrap();
    until(&mut stream, "\r\n\r\n").await;
    stream.write_all(&frame(&hello("2024-11-05"))).await.unwrap();
    until(&mut stream, "\"protocolVersion\"").await;
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    stream.write_all(&frame(&ready)).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_that_leaves_takes_its_calls_along_and_no_other_client() {
    let world = World::new().await;
    let mut stays = socket(&world).await;
    let mut leaves = socket(&world).await;
    let sandbox = world.sandbox().await;
    let sleep = json!({ "sandbox_id": sandbox, "command": "sleep 1000", "timeout_s": 1000 });
    leaves.write_all(&frame(&call(2, "sandbox_exec", sleep))).await.unwrap();
    world.eventually_running(1).await;
    drop(leaves);
    world.eventually_running(0).await;
    assert!(!world.closing.is_cancelled());
    stays
        .write_all(&frame(&call(3, "sandbox_exec", json!({ "sandbox_id": sandbox, "command": "echo here" }))))
        .await
        .unwrap();
    let said = until(&mut stays, "\"id\":3").await;
    assert!(said.contains("here") && !said.contains("stopping"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_from_its_session_leaves_no_call_behind() {
    let world = World::new().await;
    let session = world.session().await;
    let headers = format!("mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n");
    let sandbox = world.sandbox().await;
    let begun = async || {
        let sleep = json!({ "sandbox_id": sandbox, "command": "sleep 1000", "timeout_s": 1000 });
        let sleep = call(7, "sandbox_exec", sleep);
        let answer = world.post(&headers, &sleep).await;
        world.eventually_running(1).await;
        answer
    };
    let gone = begun().await;
    drop(gone);
    world.eventually_running(0).await;
    // One that keeps something open in its session may still come back for the answer.
    let mut listens = TcpStream::connect(world.address).await.unwrap();
    let listen = format!("GET /mcp HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\n{headers}\r\n");
    listens.write_all(listen.as_bytes()).await.unwrap();
    until(&mut listens, "\r\n\r\n").await;
    let gone = begun().await;
    drop(gone);
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(world.running().await, 1);
    drop(listens);
    world.eventually_running(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_session_a_call_ends_with_its_connection() {
    let world = World::new().await;
    let version = "2026-07-28";
    let sandbox = world.sandbox().await;
    let sleep = json!({ "sandbox_id": sandbox, "command": "sleep 1000", "timeout_s": 1000 });
    let mut message = call(7, "sandbox_exec", sleep);
    message["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let headers =
        format!("mcp-protocol-version: {version}\r\nmcp-method: tools/call\r\nmcp-name: sandbox_exec\r\n");
    let answer = world.post(&headers, &message).await;
    world.eventually_running(1).await;
    drop(answer);
    world.eventually_running(0).await;
}
