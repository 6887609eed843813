//! `/mcp` of a server: keys, sessions, pages, and what must not get through.

use serde_json::{Value, json};

use crate::server::http::{Answer, Request};
use crate::server::instance::Server;
use crate::server::tenants::{new_key, on_state};
use crate::support::Who;

pub const BOTH: &str = "application/json, text/event-stream";

fn hello() -> Value {
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
}

pub fn post(server: &Server, key: &str, session: Option<&str>, body: &Value) -> Answer {
    let mut request = Request::new("POST", "/mcp")
        .header("authorization", &format!("Bearer {key}"))
        .header("accept", BOTH)
        .json(body);
    if let Some(session) = session {
        request = request.header("mcp-session-id", session).header("mcp-protocol-version", "2025-11-25");
    }
    server.send(&request)
}

/// The message of an answer, which may come as one event.
pub fn message(answer: &Answer) -> Value {
    let text = answer.text();
    let data =
        text.lines().filter_map(|line| line.strip_prefix("data: ")).rfind(|data| data.starts_with('{'));
    serde_json::from_str(data.unwrap_or(&text)).unwrap_or_else(|_| panic!("{}: {text}", answer.status))
}

pub fn session(server: &Server, key: &str) -> String {
    let answer = post(server, key, None, &hello());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.header("mcp-session-id").unwrap().to_owned()
}

pub fn call(tool: &str, arguments: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": { "name": tool, "arguments": arguments } })
}

#[test]
fn a_session_is_its_keys_alone_and_takes_its_sandbox_along() {
    let server = Server::start(Who::Root);
    let (_, other) = new_key(&server, &[]);
    let mine = session(&server, &server.key);
    let ran =
        message(&post(&server, &server.key, Some(&mine), &call("run_code", &json!({ "code": "x = 1\nx" }))));
    let data = &ran["result"]["structuredContent"];
    assert_eq!(data["results"][0]["text/plain"], "1", "{ran}");
    let sandbox = format!("/v1/sandboxes/{}", data["sandbox_id"].as_str().unwrap());
    // Another key finds no such session, whatever it wants of it.
    for body in [
        call("run_code", &json!({ "code": "x" })),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }),
    ] {
        assert_eq!(post(&server, &other, Some(&mine), &body).status, 404);
    }
    for method in ["GET", "DELETE"] {
        let request = Request::new(method, "/mcp")
            .header("authorization", &format!("Bearer {other}"))
            .header("accept", "text/event-stream")
            .header("last-event-id", "0")
            .header("mcp-session-id", &mine);
        assert_eq!(server.send(&request).status, 404, "{method}");
    }
    assert_eq!(
        post(
            &server,
            &server.key,
            Some("11111111-1111-1111-1111-111111111111"),
            &call("sandbox_list", &json!({}))
        )
        .status,
        404
    );
    // Ended by its owner, its sandbox ends too.
    let end = server.request("DELETE", "/mcp").header("mcp-session-id", &mine);
    assert!(server.send(&end).status < 300);
    crate::support::eventually("the sandbox of the session is gone", || {
        matches!(server.get(&sandbox).expect(200)["state"].as_str(), Some("terminated"))
    });
}

/// With a session, a call is a task only if its client makes it one: whatever that client knows, it gets its answer.
#[test]
fn in_a_session_long_calls_are_waited_for() {
    let server = Server::with(Who::Root, &[("SANDSTORM_DIALECTS_MCP_TASK_AFTER", "10ms")], &[]);
    let mut hello = hello();
    hello["params"]["capabilities"] = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let answer = post(&server, &server.key, None, &hello);
    let session = answer.header("mcp-session-id").unwrap().to_owned();
    let slow = call("run_code", &json!({ "code": "import time\ntime.sleep(0.5)\n1" }));
    let ran = message(&post(&server, &server.key, Some(&session), &slow));
    assert_eq!(ran["result"]["structuredContent"]["results"][0]["text/plain"], "1", "{ran}");
}

#[test]
fn handles_of_others_are_no_handles() {
    let server = Server::start(Who::Root);
    on_state(&server, &["tenants", "create", "neighbour"]);
    let (_, other) = new_key(&server, &["--tenant", "neighbour"]);
    let sandbox = server.sandbox(&json!({}));
    let id = sandbox.rsplit('/').next().unwrap();
    let theirs = session(&server, &other);
    for (tool, arguments) in [
        ("sandbox_get", json!({ "sandbox_id": id })),
        ("sandbox_delete", json!({ "sandbox_id": id })),
        ("run_code", json!({ "code": "1", "sandbox_id": id })),
        ("file_read", json!({ "sandbox_id": id, "path": "/etc/passwd" })),
        ("port_url", json!({ "sandbox_id": id, "port": 80 })),
    ] {
        let answer = message(&post(&server, &other, Some(&theirs), &call(tool, &arguments)));
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        assert!(answer["result"]["isError"] == true && text.starts_with("not_found"), "{tool}: {answer}");
    }
    assert_eq!(server.get(&sandbox).expect(200)["state"], "ready");
}

#[test]
fn who_has_no_key_is_told_where_to_read() {
    let server = Server::start(Who::Root);
    let answer = server.send(&Request::new("POST", "/mcp").header("accept", BOTH).json(&hello()));
    assert_eq!(answer.status, 401);
    let place = format!("http://127.0.0.1:{}/.well-known/oauth-protected-resource/mcp", server.port);
    assert!(answer.header("www-authenticate").unwrap().contains(&format!("resource_metadata=\"{place}\"")));
    let metadata = server.send(&Request::new("GET", "/.well-known/oauth-protected-resource/mcp")).expect(200);
    assert_eq!(metadata["resource"], format!("http://127.0.0.1:{}/mcp", server.port));
    assert_eq!(metadata["bearer_methods_supported"], json!(["header"]));
    // Nowhere else.
    let in_query = Request::new("POST", format!("/mcp?access_token={}", server.key)).header("accept", BOTH);
    assert_eq!(server.send(&in_query.json(&hello())).status, 401);
}

#[test]
fn pages_of_others_and_strange_messages_get_nothing() {
    let server = Server::start(Who::Root);
    for (method, path) in [("POST", "/mcp"), ("GET", "/mcp/ws")] {
        let page = server
            .request(method, path)
            .header("accept", BOTH)
            .header("origin", "https://evil.example")
            .json(&hello());
        assert_eq!(server.send(&page).status, 403, "{path}");
    }
    let mine = session(&server, &server.key);
    let many: Vec<Value> =
        (0..10_000).map(|id| json!({ "jsonrpc": "2.0", "id": id, "method": "ping" })).collect();
    for body in [Value::Array(many), json!([[hello()]]), json!({ "jsonrpc": "1.0" }), json!("x"), json!(null)]
    {
        let status = post(&server, &server.key, Some(&mine), &body).status;
        assert!(
            (400..500).contains(&status),
            "{status} for {}",
            &body.to_string()[..40.min(body.to_string().len())]
        );
    }
    let large = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "run_code", "arguments": { "code": "#".repeat(20 << 20) } } });
    // The refusal may come while it is still being sent.
    let large =
        server.request("POST", "/mcp").header("accept", BOTH).header("mcp-session-id", &mine).json(&large);
    if let Ok(answer) = crate::server::http::open(server.port, &large) {
        assert_eq!(answer.status, 413);
    }
    // It lives and answers.
    let list = message(&post(
        &server,
        &server.key,
        Some(&mine),
        &json!({ "jsonrpc": "2.0", "id": 9, "method": "tools/list" }),
    ));
    assert!(list["result"]["tools"].is_array(), "{list}");
}
