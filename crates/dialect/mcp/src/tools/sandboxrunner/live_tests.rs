//! The tools over their own route, on sandboxes in memory, which have a small shell and no language.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::{Extension, Router};
use http::{Request, StatusCode};
use sandstorm_control::server::{Control, Setup, testing};
use sandstorm_control::{Runner, Tools as RunnerTools};
use sandstorm_language::Roots;
use sandstorm_provider::Provider;
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_store::{AuditKey, Store, StoreConfig};
use sandstorm_types::{Limits, SandboxId};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

use crate::{McpSettings, Server, Toolset, router};

struct World {
    control: Control,
    router: Router,
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
        let mcp = McpSettings {
            toolsets: [Toolset::SandboxRunner].into(),
            largest_message: 4096,
            ..McpSettings::default()
        };
        let router = router(&Server::new(control.clone(), mcp)).layer(Extension(control.developer()));
        Self { control, router, _state: state }
    }

    async fn post(&self, tool: &str, body: String) -> (StatusCode, Value) {
        let request = Request::post(format!("/mcp/tools/{tool}")).body(Body::from(body)).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    async fn call(&self, tool: &str, arguments: Value) -> Value {
        let (status, reply) = self.post(tool, arguments.to_string()).await;
        assert_eq!(status, StatusCode::OK, "{tool}: {reply}");
        reply
    }

    async fn fine(&self, tool: &str, arguments: Value) -> Value {
        let reply = self.call(tool, arguments).await;
        assert_eq!(reply["is_error"], false, "{tool}: {reply}");
        reply
    }

    async fn sandbox(&self) -> String {
        let made = self.fine("create_sandbox", json!({ "image": "python:3.12" })).await;
        assert!(made["text"].as_str().unwrap().contains("no image is used"), "{made}");
        made["metadata"]["sandbox_id"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn a_sandbox_lives_from_create_to_terminate() {
    let world = World::new().await;
    let arguments = json!({ "cpu_limit": "0.5", "memory_limit": "256M", "workspace_dir": "/workspace/a", "environment": { "A": "b" } });
    let made = world.fine("create_sandbox", arguments).await;
    let id = made["metadata"]["sandbox_id"].clone();
    assert_eq!((&made["metadata"]["container_id"], &made["metadata"]["status"]), (&id, &json!("running")));
    assert!(made["text"].as_str().unwrap().contains("memory 256MiB"), "{made}");
    let listed = world.fine("list_sandboxes", json!({})).await;
    assert_eq!((&listed["metadata"]["count"], &listed["metadata"]["sandboxes"][0]["id"]), (&json!(1), &id));
    let env = world
        .fine(
            "exec_command",
            json!({ "sandbox_id": id, "command": "sh -c 'echo $A'", "working_dir": "/workspace/a" }),
        )
        .await;
    assert_eq!(env["metadata"]["stdout"], "b\n");
    let gone = world.fine("terminate_sandbox", json!({ "sandbox_id": id })).await;
    assert_eq!(gone["metadata"], json!({ "sandbox_id": id }));
    let late = world.call("exec_command", json!({ "sandbox_id": id, "command": "true" })).await;
    assert_eq!(
        (&late["is_error"], &late["metadata"]["error_code"]),
        (&json!(true), &json!("CONTAINER_NOT_RUNNING")),
        "{late}"
    );
    for wrong in [json!({ "memory_limit": "much" }), json!({ "network_mode": "vpn" }), json!({ "cpus": 1 })] {
        assert_eq!(world.call("create_sandbox", wrong).await["is_error"], true);
    }
}

#[tokio::test]
async fn bodies_are_counted_at_every_door() {
    let world = World::new().await;
    let initialize = json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        },
    });
    let ask = |path: &str, body: &Value| {
        let request = Request::post(path)
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(Body::from(body.to_string()))
            .unwrap();
        world.router.clone().oneshot(request)
    };
    let doors = [("/mcp", initialize), ("/mcp/tools/list_sandboxes", json!({}))];
    let mut full = world.control.body_room(&world.control.developer());
    full.grow(testing::settings().body_memory.as_u64() as usize).unwrap();
    for (path, body) in &doors {
        let refused = ask(path, body).await.unwrap();
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{path}");
        assert_eq!(refused.headers()["retry-after"], "1", "{path}");
    }
    let told = world.post("list_sandboxes", "{}".to_owned()).await.1;
    assert_eq!(
        (&told["is_error"], &told["metadata"]["error_code"]),
        (&json!(true), &json!("TOO_MANY_BODIES")),
        "{told}"
    );
    drop(full);
    for (path, body) in &doors {
        let answer = ask(path, body).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        // As long as the answer lasts, its request has room.
        let more = testing::settings().body_memory.as_u64() as usize;
        let mut other = world.control.body_room(&world.control.developer());
        assert!(other.grow(more).is_err(), "{path}");
        drop(answer);
        other.grow(more).unwrap();
    }
}

#[tokio::test]
async fn commands_are_words_and_their_failures_are_errors() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let run = |command: &str| json!({ "sandbox_id": id, "command": command });
    let said = world.fine("exec_command", run("echo 'a b' $HOME \"; rm\"")).await;
    assert_eq!(said["metadata"]["stdout"], "a b $HOME ; rm\n");
    assert_eq!((&said["metadata"]["exit_code"], &said["metadata"]["stdout_size"]), (&json!(0), &json!(15)));
    // Words that the original looked for and refused.
    world.fine("exec_command", run("echo sudo curl /etc/ chown")).await;
    let failed = world.call("exec_command", run("sh -c 'exit 3'")).await;
    assert_eq!((&failed["is_error"], &failed["metadata"]["exit_code"]), (&json!(true), &json!(3)));
    assert_eq!(failed["metadata"]["error_code"], "EXECUTION_FAILED");
    let slow =
        world.call("exec_command", json!({ "sandbox_id": id, "command": "sleep 30", "timeout": 1 })).await;
    assert_eq!(
        (&slow["metadata"]["error_code"], &slow["metadata"]["timed_out"]),
        (&json!("TIMEOUT"), &json!(true)),
        "{slow}"
    );
    for wrong in ["", "echo 'a"] {
        assert_eq!(world.call("exec_command", run(wrong)).await["is_error"], true);
    }
    let nobody = SandboxId::random().to_string();
    let nobody = world.call("exec_command", json!({ "sandbox_id": nobody, "command": "true" })).await;
    assert_eq!(nobody["metadata"]["error_code"], "CONTAINER_NOT_FOUND", "{nobody}");
    assert_eq!(nobody["is_error"], true);
}

#[tokio::test]
async fn files_go_up_and_down() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let up = |content: &str, force: bool| json!({ "sandbox_id": id, "path": "a/x.txt", "content": content, "mode": "0600", "force_overwrite": force });
    let first = world.fine("upload_file", up("one", false)).await;
    assert_eq!(
        (&first["metadata"]["size"], &first["metadata"]["path"]),
        (&json!(3), &json!("/workspace/a/x.txt"))
    );
    let refused = world.call("upload_file", up("two", false)).await;
    assert!(
        refused["is_error"] == true && refused["text"].as_str().unwrap().contains("force_overwrite"),
        "{refused}"
    );
    world.fine("upload_file", up("two", true)).await;
    let read = |path: &str| json!({ "sandbox_id": id, "path": path });
    assert_eq!(world.fine("read_file", read("a/x.txt")).await["text"], "two");
    assert_eq!(world.fine("read_file", read("a/x.txt.backup")).await["text"], "one");
    assert_eq!(world.fine("download_file", read("a/x.txt")).await["metadata"]["content"], "two");
    let bytes = json!({ "sandbox_id": id, "path": "b", "content": "/w==", "encoding": "base64" });
    world.fine("write_file", bytes).await;
    assert_eq!(world.call("read_file", read("b")).await["is_error"], true);
    let down = json!({ "sandbox_id": id, "path": "b", "encoding": "base64" });
    assert_eq!(world.fine("read_file", down).await["text"], "/w==");
    let small = json!({ "sandbox_id": id, "path": "a/x.txt", "max_size": 2 });
    assert_eq!(world.call("read_file", small).await["is_error"], true);
    let all = world.fine("list_files", json!({ "sandbox_id": id, "recursive": true })).await;
    assert_eq!(all["metadata"]["count"], 4, "{all}");
    let file = &all["metadata"]["files"][1];
    assert_eq!(
        (&file["name"], &file["mode"], &file["is_dir"]),
        (&json!("x.txt"), &json!("0600"), &json!(false))
    );
    assert_eq!(
        world.call("list_files", json!({ "sandbox_id": id, "path": "/nowhere" })).await["is_error"],
        true
    );
}

/// `cat` stands in for an interpreter: it shows the script that it was given.
#[tokio::test]
async fn a_language_tool_writes_files_runs_and_sweeps_up() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let arguments = json!({
        "sandbox_id": id,
        "code": "print(1)",
        "files": { "data/a.txt": "x" },
        "options": { "python_cmd": "cat", "use_venv": "true" },
    });
    let ran = world.fine("run_python", arguments).await;
    assert_eq!(
        (&ran["metadata"]["stdout"], &ran["metadata"]["language"]),
        (&json!("print(1)"), &json!("python"))
    );
    assert!(ran["text"].as_str().unwrap().contains("use_venv"), "{ran}");
    let left = world.fine("list_files", json!({ "sandbox_id": id, "recursive": true })).await;
    assert_eq!(left["metadata"]["count"], 2, "the folder and its file: {left}");
    let other = world.call("run_python", json!({ "sandbox_id": id, "code": "1", "language": "go" })).await;
    assert!(other["text"].as_str().unwrap().contains("run_generic"), "{other}");
    let generic =
        json!({ "sandbox_id": id, "code": "import os\nprint(1)", "options": { "python_cmd": "cat" } });
    let generic = world.fine("run_generic", generic).await;
    assert_eq!(
        (&generic["metadata"]["detected_language"], &generic["metadata"]["was_auto_detected"]),
        (&json!("python"), &json!(true))
    );
}

#[tokio::test]
async fn what_reaches_no_tool_is_refused_by_status() {
    let world = World::new().await;
    assert_eq!(world.post("no_such_tool", "{}".into()).await.0, StatusCode::NOT_FOUND);
    assert_eq!(world.post("list_sandboxes", "{".into()).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(world.post("list_sandboxes", "[]".into()).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(world.post("list_sandboxes", " ".repeat(5000)).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(world.post("list_sandboxes", String::new()).await.0, StatusCode::OK);
    // Any tool of the server, not only of this set.
    let core = world.fine("sandbox_create", json!({})).await;
    assert!(core["metadata"]["sandbox_id"].is_string(), "{core}");
    let wrong = world.call("sandbox_create", json!({ "no_such_argument": 1 })).await;
    assert_eq!(wrong["is_error"], true);
}
