//! Every route of the foreign APIs against every kind of caller who may not. The routes are read from the sources of their
//! routers, and the tools from the server, so that a new one has its cases.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::http::{Answer, Request};
use super::instance::Server;
use super::tenants::{new_key, on_state};
use crate::mcp::http::{call, message, post, session};
use crate::support::{Place, Who, eventually};

const E2B: &str = include_str!("../../../../dialect/e2b/src/router.rs");
const SESSION: &str = include_str!("../../../../dialect/session/src/router.rs");
const MCP: &str = include_str!("../../../../dialect/mcp/src/http.rs");

#[derive(Debug)]
pub(super) struct Route {
    pub(super) method: &'static str,
    /// With names of parameters in braces.
    pub(super) path: String,
}

/// The routes that need a key: those before the router of what needs none.
fn routes(source: &str, prefix: &str, keyed: &str) -> Vec<Route> {
    let from = source.find(keyed).unwrap_or_else(|| panic!("no {keyed}"));
    let source = source[from..].split("// What needs none").next().unwrap();
    let end = source[1..].find("pub fn ").map_or(source.len(), |end| end + 1);
    let mut all = Vec::new();
    for line in source[..end].lines() {
        let Some((_, rest)) = line.split_once(".route(\"") else { continue };
        let (path, service) = rest.split_once('"').unwrap();
        let methods = [("get(", "GET"), ("post(", "POST"), ("put(", "PUT"), ("delete(", "DELETE")];
        let known = all.len();
        for (word, method) in methods {
            let begins = |at: usize| service[..at].ends_with([' ', '.']);
            if service.match_indices(word).any(|(at, _)| begins(at)) {
                all.push(Route { method, path: format!("{prefix}{path}") });
            }
        }
        // Any method, or a service of its own.
        if all.len() == known {
            all.extend(["GET", "POST"].map(|method| Route { method, path: format!("{prefix}{path}") }));
        }
    }
    all
}

pub(super) fn all_routes() -> Vec<Route> {
    let mut all = routes(E2B, "", "pub fn routes");
    assert!(all.len() > 30, "{all:?}");
    let session = routes(SESSION, "/workspace/se", "pub fn router");
    assert!(session.len() > 15, "{session:?}");
    let mcp = routes(MCP, "", "pub fn router");
    assert!(mcp.len() >= 5, "{mcp:?}");
    all.extend(session);
    all.extend(mcp);
    all
}

/// An upload as a form has it.
const FORM: &str =
    "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"x.txt\"\r\n\r\nx\r\n--b--\r\n";

/// Asks a route about a sandbox or session of this name, with all that the route needs to go as far as it can.
fn ask(server: &Server, route: &Route, key: Option<&str>, name: &str) -> Answer {
    let mut path = String::new();
    for part in route.path.split('/').skip(1) {
        let value = match part {
            "{id}" | "{alias}" | "{session_id}" => name,
            "{tool}" => "sandbox_list",
            "{*path}" => "x.txt",
            part if part.starts_with('{') => "x",
            part => part,
        };
        path.push('/');
        path.push_str(value);
    }
    if route.path.contains("/preview/") {
        path.push_str("?sid=x");
    }
    let mut request = Request::new(route.method, path).header("x-request-id", "same");
    request = request.header("accept", "application/json, text/event-stream");
    if let Some(key) = key {
        request = request.header("authorization", &format!("Bearer {key}"));
    }
    if route.path.contains("/upload/") {
        request = request.bytes(FORM).header("content-type", "multipart/form-data; boundary=b");
    } else if matches!(route.method, "POST" | "PUT") {
        let body = json!({ "templateID": "base", "timeout": 60, "code": "1", "language": "python",
            "command": "true", "session_id": name, "name": "x", "path": "x", "content": "x",
            "filename": "x.txt", "handler_code": "def handler(event): return 1" });
        request = request.json(&body);
    }
    server.send(&request)
}

#[test]
fn without_a_good_key_no_route_of_a_foreign_api_answers() {
    let server = Server::start(Who::Root);
    let (_, expired) = new_key(&server, &["--expires", "1ms"]);
    let (id, revoked) = new_key(&server, &[]);
    on_state(&server, &["keys", "revoke", &id]);
    eventually("the key is revoked", || {
        server.send(&Request::new("GET", "/v1/me").header("x-api-key", &revoked)).status == 401
    });
    let cut = server.key[..server.key.len() - 1].to_owned();
    let odd = server.key.to_uppercase();
    for route in all_routes() {
        for key in [None, Some(expired.as_str()), Some(&revoked), Some(&cut), Some(&odd)] {
            let answer = ask(&server, &route, key, "x");
            assert_eq!(answer.status, 401, "{route:?} with {key:?}: {}", answer.text());
        }
        let target = format!("{}?api_key={}", route.path.replace(['{', '}', '*'], "x"), server.key);
        let in_query = server.send(&Request::new(route.method, target));
        assert_eq!(in_query.status, 401, "{route:?} with the key in the address");
    }
    let log = std::fs::read_to_string(server.place.path().join("log")).unwrap();
    for key in [&server.key, &expired, &revoked] {
        assert!(!log.contains(super::tenants::secret_of(key)), "a key is in the log");
    }
}

/// Whether a route answers every key alike: with a list of the operator's or of nothing, or with a refusal.
fn needs_no_scope(route: &Route) -> bool {
    let templates = route.path.contains("templates") && route.method != "DELETE";
    let constant = ["/volumes", "/secrets", "/api.json", "/healthy", "/download_from_efast/"];
    templates || constant.iter().any(|part| route.path.contains(part))
}

/// Routes of the session API that read or write files.
const OF_FILES: [&str; 7] =
    ["/create/", "/download/", "/execute_code/", "/files/", "/readfile/", "/status/", "/upload/"];

#[test]
fn without_its_scope_no_route_of_a_foreign_api_does_anything() {
    let server = Server::start(Who::Root);
    let sandbox = server.sandbox(&json!({}));
    let (bare, session) = (sandbox.rsplit('_').next().unwrap(), "00000000-0000-4000-8000-000000000001");
    let file = json!({ "content": "kept", "filename": "x.txt" });
    server.post(&format!("/workspace/se/create/{session}"), &file).expect(200);
    let seen = || {
        let (view, usage) = (server.get(&sandbox).expect(200), server.get("/v1/usage").expect(200));
        let view = ["state", "expires_at", "network", "labels"].map(|field| view[field].clone());
        let kept = server.get(&format!("/workspace/se/download/{session}/x.txt")).text();
        (view, usage["sandboxes"].clone(), server.get("/snapshots").expect(200), kept)
    };
    let before = seen();
    let of_session = routes(SESSION, "/workspace/se", "pub fn router");
    let (_, narrow) = new_key(&server, &["--scopes", "run,files,admin"]);
    let mut refused = 0;
    for (api, name) in [(&routes(E2B, "", "pub fn routes"), bare), (&of_session, session)] {
        for route in api {
            let answer = ask(&server, route, Some(&narrow), name);
            if needs_no_scope(route) {
                let whole = ask(&server, route, Some(&server.key), name);
                assert_eq!((answer.status, answer.text()), (whole.status, whole.text()), "{route:?}");
            } else {
                assert_eq!(answer.status, 403, "{route:?}: {}", answer.text());
                refused += 1;
            }
        }
    }
    assert!(refused > 35, "{refused}");
    let (_, no_files) = new_key(&server, &["--scopes", "run,sandbox,admin"]);
    let files = of_session.iter().filter(|route| OF_FILES.iter().any(|part| route.path.contains(part)));
    let mut refused = 0;
    for route in files {
        let answer = ask(&server, route, Some(&no_files), session);
        assert_eq!(answer.status, 403, "{route:?}: {}", answer.text());
        refused += 1;
    }
    assert!(refused >= 10, "{refused}");
    assert_eq!(seen(), before);
}

#[test]
fn without_its_scope_no_tool_does_anything() {
    let place = Place::new();
    let config = place.path().join("sandstorm.yaml");
    std::fs::write(&config, "dialects: {mcp: {toolsets: [files, forks, packages]}}\n").unwrap();
    let server = Server::with(Who::Root, &[], &["--config", config.to_str().unwrap()]);
    let sandbox = server.sandbox(&json!({}));
    let bare = sandbox.rsplit('_').next().unwrap();
    let context = server.post(&format!("{sandbox}/contexts"), &json!({ "language": "python" })).expect(201);
    let sleeps = json!({ "command": "sleep 600", "background": true });
    let exec = server.post(&format!("{sandbox}/exec"), &sleeps).expect(202);
    let [exec, context] = [&exec, &context].map(|made| made["id"].as_str().unwrap());
    let files = || server.get(&format!("{sandbox}/files/list?path=/workspace")).expect(200);
    let before = files();
    let mut all = tools(&server, bare, exec, context);
    all.extend(["sandbox_create", "sandbox_list"].map(|tool| (tool.to_owned(), json!({}))));
    // `languages` tells what the operator offers.
    assert_eq!(all.len() + 1, listed(&server).len(), "a tool without its case: {all:?}");
    all.push(("run_code".to_owned(), json!({ "code": "1" })));
    for scopes in ["admin", "run,files,admin", "run,sandbox,admin"] {
        let (_, key) = new_key(&server, &["--scopes", scopes]);
        let mine = session(&server, &key);
        for (tool, arguments) in &all {
            if scopes.contains(if tool.starts_with("file_") { "files" } else { "sandbox" }) {
                continue;
            }
            let answer = message(&post(&server, &key, Some(&mine), &call(tool, arguments)));
            let said = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
            let is_error = answer["result"]["isError"] == true;
            assert!(is_error && said.starts_with("forbidden: "), "{tool} with {scopes}: {answer}");
            // By plain HTTP a call has no sandbox of its own: code runs in one for it alone, by another scope.
            if scopes == "admin" {
                let request = Request::new("POST", format!("/mcp/tools/{tool}")).json(arguments);
                let request = request.header("authorization", &format!("Bearer {key}"));
                let reply = server.send(&request).json();
                let said = reply["text"].as_str().unwrap_or_default();
                assert!(reply["is_error"] == true && said.starts_with("forbidden: "), "{tool}: {reply}");
            }
        }
    }
    assert_eq!(server.get("/v1/usage").expect(200)["sandboxes"], 1);
    assert_eq!(server.get(&sandbox).expect(200)["state"], "running");
    assert!(server.get(&format!("{sandbox}/execs/{exec}")).expect(200)["ended_at"].is_null());
    assert_eq!(server.get(&format!("{sandbox}/contexts/{context}")).status, 200);
    assert_eq!(files(), before);
}

#[test]
fn what_is_anothers_is_as_absent_for_foreign_apis_as_what_never_was() {
    let server = Server::start(Who::Root);
    on_state(&server, &["tenants", "create", "stranger"]);
    let (_, stranger) = new_key(&server, &["--tenant", "stranger"]);
    let sandbox = server.sandbox(&json!({}));
    let (bare, never) = (sandbox.rsplit('_').next().unwrap(), "a".repeat(26));
    let saved = server.post(&format!("/sandboxes/{bare}/snapshots"), &json!({ "name": "mine" }));
    let saved = saved.expect(201)["snapshotID"].as_str().unwrap().to_owned();
    let unsaved = format!("{}_{never}", saved.split_once('_').unwrap().0);
    // What is looked for is there for who owns it.
    let is_saved = || server.get("/snapshots").expect(200).to_string().contains(&saved);
    assert!(server.get(&format!("/sandboxes/{bare}")).status == 200 && is_saved());
    let named = |route: &&Route| route.path.contains("{id}") || route.path.contains("{alias}");
    for route in routes(E2B, "", "pub fn routes").iter().filter(named) {
        // Of a snapshot too, where a template is named.
        let ids =
            if route.path.contains("template") { [saved.as_str(), &unsaved] } else { [bare, never.as_str()] };
        let answers = ids.map(|id| {
            let answer = ask(&server, route, Some(&stranger), id);
            (answer.status, answer.text().replace(id, "ID"))
        });
        assert_eq!(answers[0], answers[1], "{route:?}");
        assert!(matches!(answers[0].0, 400 | 404), "{route:?}: {answers:?}");
    }
    assert!(is_saved(), "another one removed it");
    // Names of sessions are everybody's own: one that another has is one that never was. Those that read come first,
    // what is made is the stranger's own.
    let named = "00000000-0000-4000-8000-000000000001";
    let unused = "00000000-0000-4000-8000-000000000002";
    let file = json!({ "content": "secret of mine", "filename": "x.txt" });
    server.post(&format!("/workspace/se/create/{named}"), &file).expect(200);
    let session_routes = routes(SESSION, "/workspace/se", "pub fn router");
    let mut of_session: Vec<_> =
        session_routes.iter().filter(|route| route.path.contains("{session_id}")).collect();
    of_session.sort_by_key(|route| (route.method != "GET", route.method == "DELETE"));
    assert!(of_session.len() > 10, "{of_session:?}");
    for route in of_session {
        let answers = [named, unused].map(|name| {
            let answer = ask(&server, route, Some(&stranger), name);
            (answer.status, answer.text().replace(name, "NAME"))
        });
        assert!(!answers[0].1.contains("secret of mine"), "{route:?}: {}", answers[0].1);
        // What they make has times and sizes of its own.
        if route.method == "GET" {
            assert_eq!(answers[0], answers[1], "{route:?}");
        } else {
            assert_eq!(answers[0].0, answers[1].0, "{route:?}: {answers:?}");
        }
    }
    let kept = server.get(&format!("/workspace/se/download/{named}/x.txt"));
    assert_eq!((kept.status, kept.text()), (200, "secret of mine".to_owned()));
    let theirs = session(&server, &stranger);
    let context = server.post(&format!("{sandbox}/contexts"), &json!({ "language": "python" })).expect(201);
    let sleeps = json!({ "command": "sleep 600", "background": true });
    let exec = server.post(&format!("{sandbox}/exec"), &sleeps).expect(202);
    let [exec, context] = [&exec, &context].map(|made| made["id"].as_str().unwrap());
    let (absent_exec, absent_context) = (format!("exec_{never}"), format!("ctx_{never}"));
    let mine = tools(&server, bare, exec, context);
    let none = tools(&server, &never, &absent_exec, &absent_context);
    // In a sandbox of the stranger's own, too.
    let own =
        server.send(&Request::new("POST", "/v1/sandboxes").json(&json!({})).header("x-api-key", &stranger));
    let own = own.expect(201)["id"].as_str().unwrap().rsplit('_').next().unwrap().to_owned();
    for ((tool, foreign), (_, absent)) in
        tools(&server, &own, exec, context).iter().zip(&tools(&server, &own, &absent_exec, &absent_context))
    {
        if !(foreign.get("exec_id").is_some() || foreign.get("context_id").is_some()) {
            continue;
        }
        let said = [foreign, absent].map(|arguments| {
            let answer = message(&post(&server, &stranger, Some(&theirs), &call(tool, arguments)));
            [exec, context, &absent_exec, &absent_context]
                .iter()
                .fold(answer.to_string(), |text, id| text.replace(*id, "ID"))
        });
        assert_eq!(said[0], said[1], "{tool}");
        assert!(said[0].contains("not_found"), "{tool}: {}", said[0]);
    }
    assert!(mine.len() >= 10, "{mine:?}");
    for ((tool, foreign), (_, absent)) in mine.iter().zip(&none) {
        let said = [(foreign, bare), (absent, never.as_str())].map(|(arguments, id)| {
            let answer = message(&post(&server, &stranger, Some(&theirs), &call(tool, arguments)));
            let mut text = answer.to_string().replace(id, "ID");
            for inside in [exec, context, &absent_exec, &absent_context] {
                text = text.replace(inside, "ID");
            }
            (answer["result"]["isError"] == true, text)
        });
        assert_eq!(said[0], said[1], "{tool}");
        assert!(said[0].0 && said[0].1.contains("not_found"), "{tool}: {}", said[0].1);
    }
    assert_eq!(server.get(&sandbox).expect(200)["state"], "running");
    assert!(server.get(&format!("{sandbox}/execs/{exec}")).expect(200)["ended_at"].is_null());
    assert_eq!(server.get(&format!("{sandbox}/contexts/{context}")).status, 200);
}

/// A way to make a sandbox, and whether it made one.
type Make = fn(&Server, usize) -> bool;

/// All at once through every API against a quota of six: six get one.
#[test]
fn the_quota_of_sandboxes_is_one_for_all_apis() {
    const WAYS: [Make; 4] = [
        |server, _| server.post("/v1/sandboxes", &json!({})).status == 201,
        |server, _| {
            server.post("/v2/sandboxes", &json!({ "templateID": "base", "timeout": 60 })).status == 201
        },
        |server, _| server.post("/mcp/tools/sandbox_create", &json!({})).json()["is_error"] == false,
        |server, number| {
            let session = format!("00000000-0000-4000-8000-{number:012}");
            server.post(&format!("/workspace/se/session/{session}"), &json!({})).status < 300
        },
    ];
    let settings = [("SANDSTORM_QUOTAS_SANDBOXES", "6"), ("SANDSTORM_QUOTAS_REQUESTS_PER_SECOND", "100000")];
    let server = Server::with(Who::Root, &settings, &[]);
    let made: usize = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..40)
            .map(|number| {
                let server = &server;
                scope.spawn(move || usize::from(WAYS[number % WAYS.len()](server, number)))
            })
            .collect();
        asked.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(made, 6);
    assert_eq!(server.get("/v1/usage").expect(200)["sandboxes"], 6);
    // And each of the ways is refused for itself.
    for (number, way) in WAYS.into_iter().enumerate() {
        assert!(!way(&server, 100 + number), "way {number}");
    }
}

/// With room for one stream and a stream that is open, no API opens another.
#[test]
fn open_streams_are_one_quota_for_all_apis() {
    let server = Server::with(Who::Root, &[("SANDSTORM_QUOTAS_OPEN_STREAMS", "1")], &[]);
    let sandbox = server.sandbox(&json!({}));
    let id = sandbox.rsplit('_').next().unwrap();
    let opened = server.post(&format!("/v2/sandboxes/{id}/connect"), &json!({ "timeout": 60 })).expect(200);
    let access = opened["envdAccessToken"].as_str().unwrap().to_owned();
    let mine = session(&server, &server.key);
    let e2b = |port: u16, target: &str| {
        let request = Request::new("POST", target).header("e2b-sandbox-id", id);
        request.header("e2b-sandbox-port", &port.to_string()).header("x-access-token", &access)
    };
    let message = json!({ "process": { "cmd": "/bin/true", "args": [] } }).to_string();
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message.as_bytes());
    let connect = "application/connect+json";
    let ways = [
        super::socket::upgrade(server.request("GET", "/mcp/ws")),
        server.request("GET", "/mcp").header("accept", "text/event-stream").header("mcp-session-id", &mine),
        server.request("GET", "/v1/events").header("accept", "text/event-stream"),
        server.request("GET", format!("{sandbox}/ports/9/")),
        e2b(49983, "/process.Process/Start").header("content-type", connect).bytes(frame.clone()),
        e2b(49983, "/process.Process/StreamInput").header("content-type", connect).bytes(frame),
        e2b(49999, "/execute").json(&json!({ "code": "1" })),
    ];
    let asked = |request: &Request| {
        let mut stream = server.open(request);
        // What refuses in a stream says so in its first piece.
        let said = if stream.status == 101 { Vec::new() } else { stream.piece().unwrap_or_default() };
        (stream.status, String::from_utf8_lossy(&said).into_owned())
    };
    let listening = server.stream(server.request("GET", "/v1/events"));
    for request in &ways {
        let (status, said) = asked(request);
        let refused = status == 429 || said.contains("resource_exhausted");
        assert!(refused, "{} {}: {status} {said}", request.method, request.target);
    }
    drop(listening);
    eventually("a place is free", || asked(&ways[0]).0 == 101);
}

/// Each tool that takes a sandbox, with arguments that fit and this one, and what is in it.
fn tools(server: &Server, bare: &str, exec: &str, context: &str) -> Vec<(String, Value)> {
    let takes = |tool: &&Value| tool["inputSchema"]["properties"].get("sandbox_id").is_some();
    let tools = listed(server);
    let tools = tools.iter().filter(takes);
    tools
        .map(|tool| (tool["name"].as_str().unwrap().to_owned(), arguments(tool, bare, exec, context)))
        .collect()
}

/// The tools as a client is shown them.
fn listed(server: &Server) -> Vec<Value> {
    let mine = session(server, &server.key);
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    let listed = message(&post(server, &server.key, Some(&mine), &list));
    listed["result"]["tools"].as_array().unwrap().clone()
}

fn arguments(tool: &Value, bare: &str, exec: &str, context: &str) -> Value {
    let schema = &tool["inputSchema"];
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut wanted: BTreeSet<&str> = required.iter().filter_map(Value::as_str).collect();
    wanted.insert("sandbox_id");
    let mut arguments = Map::new();
    for name in wanted {
        let kind = &schema["properties"][name]["type"];
        let value = match name {
            "sandbox_id" => json!(format!("sbx_{bare}")),
            "exec_id" => json!(exec),
            "context_id" => json!(context),
            // Nothing, in base64.
            "archive" => json!(""),
            "port" => json!(80),
            "signal" => json!("kill"),
            "path" | "from" | "to" => json!("/workspace/x"),
            _ if kind == "integer" || kind == "number" => json!(1),
            _ if kind == "boolean" => json!(false),
            _ if kind == "array" => json!([]),
            _ => json!("x"),
        };
        arguments.insert(name.to_owned(), value);
    }
    Value::Object(arguments)
}
