//! The revision without sessions, as its clients speak it to `/mcp`: every request stands for itself, state is by handle.

use serde_json::{Value, json};

use super::http::{BOTH, message};
use crate::server::http::Request;
use crate::server::instance::Server;
use crate::server::tenants::{new_key, on_state};
use crate::support::{Place, Who, eventually};

const REVISION: &str = "2026-07-28";

#[derive(Debug)]
struct Client<'s> {
    server: &'s Server,
    key: &'s str,
    capabilities: Value,
}

impl<'s> Client<'s> {
    fn new(server: &'s Server) -> Self {
        Self { server, key: &server.key, capabilities: json!({}) }
    }

    fn ask(&self, method: &str, name: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        });
        let request = Request::new("POST", "/mcp")
            .header("authorization", &format!("Bearer {}", self.key))
            .header("accept", BOTH)
            .header("mcp-protocol-version", REVISION)
            .header("mcp-method", method)
            .header("mcp-name", name)
            .json(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }));
        message(&self.server.send(&request))
    }

    #[track_caller]
    fn call(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", tool, json!({ "name": tool, "arguments": arguments }));
        assert!(answer["result"].is_object(), "{tool}: {answer}");
        answer["result"].clone()
    }

    /// The data of a call that must go well.
    #[track_caller]
    fn good(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_ne!(result["isError"], true, "{tool}: {result:#}");
        result["structuredContent"].clone()
    }

    fn task(&self, method: &str, id: &str) -> Value {
        self.ask(method, id, json!({ "taskId": id }))
    }
}

#[test]
fn without_a_session_state_is_by_handle() {
    let server = Server::start(Who::Root);
    let client = Client::new(&server);
    let once = client.good("run_code", json!({ "code": "y = 5\ny" }));
    assert!(once.get("sandbox_id").is_none(), "{once:#}");
    let kept = client.good("run_code", json!({ "code": "y = 5", "keep": "yes" }));
    let handles =
        json!({ "code": "y + 1", "sandbox_id": kept["sandbox_id"], "context_id": kept["context_id"] });
    assert_eq!(client.good("run_code", handles)["results"][0]["text/plain"], "6");
    client.good("sandbox_delete", json!({ "sandbox_id": kept["sandbox_id"] }));
}

/// Data, two ways on from one state, a chart, edits, a program in the background, and nothing left.
#[test]
fn a_conversation_over_http() {
    let place = Place::new();
    let config = place.path().join("sandstorm.yaml");
    std::fs::write(&config, "dialects:\n  mcp:\n    toolsets: [files, forks]\n").unwrap();
    let server = Server::with(Who::Root, &[], &["--config", config.to_str().unwrap()]);
    let client = Client::new(&server);

    let sandbox = client.good("sandbox_create", json!({}))["sandbox_id"].clone();
    let with = |more: Value| {
        let mut arguments = json!({ "sandbox_id": sandbox });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    let csv = "month,sales\nJanuary,3\nFebruary,5\nMarch,4\n";
    client.good("file_write", with(json!({ "path": "sales.csv", "content": csv })));
    let load = "import csv\nrows = list(csv.DictReader(open('/workspace/sales.csv')))\nsum(int(row['sales']) for row in rows)";
    let loaded = client.good("run_code", with(json!({ "code": load })));
    assert_eq!(loaded["results"][0]["text/plain"], "12");
    let context = loaded["context_id"].clone();

    // Two ways on from here. Later it could not be copied: who drew a chart keeps the file of a font open.
    let forked = client.good("sandbox_fork", with(json!({ "count": 2 })));
    let copies = forked["copies"].as_array().unwrap();
    assert_eq!(copies.len(), 2, "{forked:#}");
    for copy in copies {
        let copied = &copy["sandbox"]["sandbox_id"];
        let context = &copy["contexts"][0]["context_id"];
        assert_ne!(*copied, sandbox);
        let go_on =
            json!({ "sandbox_id": copied, "context_id": context, "code": "rows.append(None)\nlen(rows)" });
        assert_eq!(client.good("run_code", go_on)["results"][0]["text/plain"], "4", "{copy:#}");
        client.good("sandbox_delete", json!({ "sandbox_id": copied }));
    }
    let draw = "import matplotlib.pyplot as plt\nplt.bar([row['month'] for row in rows], [int(row['sales']) for row in rows])\nplt.show()";
    let chart =
        client.call("run_code", with(json!({ "code": draw, "context_id": context, "timeout_s": 120 })));
    assert_ne!(chart["isError"], true, "{chart:#}");
    let blocks = chart["content"].as_array().unwrap();
    assert!(blocks.iter().any(|block| block["mimeType"] == "image/png"), "{chart:#}");

    client.good("file_write", with(json!({ "path": "report.py", "content": "print('total', 12)\n" })));
    client.good("file_move", with(json!({ "from": "report.py", "to": "tools/report.py" })));
    let ran = client.good("sandbox_exec", with(json!({ "command": "python3 tools/report.py" })));
    assert_eq!(ran["result"]["stdout"], "total 12\n");

    let serve = json!({ "command": "python3 -m http.server 8000", "background": true });
    let exec = client.good("sandbox_exec", with(serve))["exec_id"].clone();
    let fetch = "curl -fs http://127.0.0.1:8000/sales.csv || echo not yet";
    eventually("the page is served", || {
        client.good("sandbox_exec", with(json!({ "command": fetch })))["result"]["stdout"] == csv
    });
    let stop = json!({ "exec_id": exec, "signal": "terminate" });
    client.good("exec_signal", with(stop));
    eventually("the server in the sandbox has ended", || {
        client.good("exec_poll", with(json!({ "exec_id": exec, "wait_s": 5 })))["running"] == false
    });

    let own = with(json!({ "code": "len(rows)", "context_id": context }));
    assert_eq!(client.good("run_code", own)["results"][0]["text/plain"], "3");
    client.good("sandbox_delete", with(json!({})));
    assert_eq!(server.get("/v1/sandboxes").expect(200)["items"], json!([]));
    assert_eq!(client.good("sandbox_list", json!({}))["sandboxes"], json!([]));
}

/// A call that takes long is a task for who knows tasks; its handle is its owner's alone, and cancelling it ends the program.
#[test]
fn long_calls_become_tasks() {
    let server = Server::with(Who::Root, &[("SANDSTORM_DIALECTS_MCP_TASK_AFTER", "200ms")], &[]);
    let mut client = Client::new(&server);
    let sandbox = client.good("sandbox_create", json!({}))["sandbox_id"].clone();
    let slow =
        json!({ "sandbox_id": sandbox, "command": "until test -e go; do sleep 0.05; done; echo went" });
    client.capabilities = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let task = client.call("sandbox_exec", slow);
    assert_eq!(task["resultType"], "task", "{task:#}");
    let id = task["taskId"].as_str().unwrap_or_else(|| panic!("{task:#}"));
    assert_eq!(client.task("tasks/get", id)["result"]["status"], "working");

    on_state(&server, &["tenants", "create", "neighbour"]);
    let (_, other) = new_key(&server, &["--tenant", "neighbour"]);
    let neighbour = Client { server: &server, key: &other, capabilities: client.capabilities.clone() };
    for method in ["tasks/get", "tasks/cancel"] {
        let (theirs, nobodys) = (neighbour.task(method, id), neighbour.task(method, "none"));
        assert!(theirs["error"]["message"].as_str().unwrap().contains("no such task"), "{theirs}");
        assert_eq!(theirs["error"], nobodys["error"]);
    }

    client.good("file_write", json!({ "sandbox_id": sandbox, "path": "go", "content": "" }));
    let mut done = Value::Null;
    eventually("the task is done", || {
        done = client.task("tasks/get", id)["result"].clone();
        done["status"] == "completed"
    });
    assert_eq!(done["result"]["structuredContent"]["result"]["stdout"], "went\n", "{done:#}");

    let endless = json!({ "sandbox_id": sandbox, "command": "sleep 600", "timeout_s": 900 });
    let id = client.call("sandbox_exec", endless)["taskId"].as_str().unwrap().to_owned();
    assert!(client.task("tasks/cancel", &id)["error"].is_null());
    eventually("the cancelled program is gone", || {
        let look = json!({ "sandbox_id": sandbox, "command": "pgrep -x sleep || echo none" });
        client.good("sandbox_exec", look)["result"]["stdout"] == "none\n"
    });
    assert_eq!(client.task("tasks/get", &id)["result"]["status"], "cancelled");
}
