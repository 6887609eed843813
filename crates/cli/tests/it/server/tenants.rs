//! Keys, tenants and quotas: who gets in, who sees what, how much each may have.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::{self, Request};
use super::instance::Server;
use super::socket::{Message, WebSocket};
use crate::support::{PATIENCE, Place, Who, eventually, run, sandstorm, stderr, stdout};

/// `sandstorm …` on the state directory of a server.
pub fn on_state(server: &Server, args: &[&str]) -> String {
    let state = server.state();
    let mut all = args.to_vec();
    all.extend(["--state-dir", state.to_str().unwrap()]);
    let output = run(Who::Root, &all);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

/// A key with these arguments of `keys create`.
pub fn new_key(server: &Server, args: &[&str]) -> (String, String) {
    let mut all = vec!["keys", "create", "--json"];
    all.extend(args);
    let made: Value = serde_json::from_str(&on_state(server, &all)).unwrap();
    (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
}

/// What of a key must never show up anywhere: `ss_<id>_<secret>`, where the secret may hold `_` itself.
pub(super) fn secret_of(key: &str) -> &str {
    key.splitn(3, '_').nth(2).unwrap()
}

fn with_key(server: &Server, key: &str, request: Request) -> http::Answer {
    server.send(&request.header("authorization", &format!("Bearer {key}")))
}

#[test]
fn a_server_without_keys_listens_on_loopback_only() {
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = run(Who::Root, &["serve", "--dev-no-auth", "--listen", listen]);
        assert_eq!(refused.status.code(), Some(2), "{listen}: {}", stderr(&refused));
        assert!(stderr(&refused).contains("loopback"), "{}", stderr(&refused));
    }
    // However the address is said.
    let place = Place::new();
    let file = place.path().join("sandstorm.yaml");
    std::fs::write(&file, "serve: {listen: \"0.0.0.0:0\"}\n").unwrap();
    let refused = run(Who::Root, &["serve", "--dev-no-auth", "--config", file.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let mut by_variable = sandstorm(Who::Root);
    by_variable.env("SANDSTORM_SERVE_LISTEN", "0.0.0.0:0").args(["serve", "--dev-no-auth"]);
    let refused = by_variable.output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let server = Server::with(Who::Root, &[], &["--dev-no-auth"]);
    assert_eq!(server.key, "");
    let open = |host: &str| {
        let bytes = format!("GET /v1/sandboxes HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        super::walk::raw(&server, bytes.as_bytes())
    };
    assert!(open(&format!("127.0.0.1:{}", server.port)).starts_with("HTTP/1.1 200"));
    assert!(open("localhost").starts_with("HTTP/1.1 200"));
    let rebound = open("attacker.example");
    assert!(rebound.starts_with("HTTP/1.1 4"), "{rebound}");
}

#[test]
fn every_bad_key_gets_the_same_answer() {
    let server = Server::start(Who::Root);
    let (_, expired) = new_key(&server, &["--expires", "1ms"]);
    let (id, revoked) = new_key(&server, &[]);
    on_state(&server, &["keys", "revoke", &id]);
    let good = server.key.clone();
    let changed = format!("{}{}", &good[..good.len() - 1], if good.ends_with('x') { 'y' } else { 'x' });
    let presented: Vec<Vec<(&str, String)>> = vec![
        vec![],
        vec![("authorization", format!("Bearer {expired}"))],
        vec![("authorization", format!("Bearer {revoked}"))],
        vec![("authorization", format!("Bearer {changed}"))],
        vec![("authorization", format!("Bearer {}", &good[..good.len() - 1]))],
        vec![("authorization", format!("Bearer {}", good.to_uppercase()))],
        vec![("authorization", format!("Bearer\t{good}"))],
        vec![("authorization", format!("Basic {good}"))],
        vec![("authorization", good.clone())],
        vec![("authorization", format!("Bearer {good}")), ("authorization", format!("Bearer {good}"))],
        vec![("authorization", format!("Bearer {good}")), ("x-api-key", good.clone())],
        vec![("x-api-key", String::new())],
        vec![("x-api-key", "ss_".to_owned())],
        vec![("x-api-key", "x".repeat(5000))],
    ];
    std::thread::sleep(Duration::from_millis(1100));
    let mut bodies = BTreeMap::new();
    for headers in presented {
        let mut request = Request::new("GET", "/v1/sandboxes").header("x-request-id", "the-same");
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        let answer = server.send(&request);
        assert_eq!(answer.status, 401, "{headers:?}: {}", answer.text());
        *bodies.entry(answer.text()).or_insert(0) += 1;
    }
    assert_eq!(bodies.len(), 1, "{bodies:#?}");
    let in_query = server.send(&Request::new("GET", format!("/v1/sandboxes?api_key={good}")));
    assert_eq!(in_query.status, 401);
    assert_eq!(server.send(&Request::new("GET", "/v1/sandboxes").header("x-api-key", &good)).status, 200);
    // No key is in the log, however it was presented.
    let log = std::fs::read_to_string(server.place.path().join("log")).unwrap();
    assert!(!log.contains(secret_of(&good)) && !log.contains(&revoked), "{log}");
}

#[test]
fn revoking_a_key_ends_its_open_streams() {
    let server = Server::start(Who::Root);
    let (id, key) = new_key(&server, &["--scopes", "sandbox"]);
    let mut mine = Borrowed { server: &server, key };
    let sandbox = mine.post("/v1/sandboxes", &json!({})).expect(201);
    let path = format!("/v1/sandboxes/{}", sandbox["id"].as_str().unwrap());
    let mut terminal = mine.terminal(&format!("{path}/pty?rows=24&cols=80"));
    terminal.send_bytes(b"echo he''re\n");
    terminal.read_until("here");
    let mut events = mine.stream(&format!("{path}/events"));
    on_state(&server, &["keys", "revoke", &id]);
    let began = Instant::now();
    while !matches!(terminal.read(), Message::Closed(_)) {}
    while events.next_event().is_some() {}
    // They would go on for as long as the sandbox lives, and nobody who listens gives up as soon.
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    assert_eq!(mine.get(&path).status, 401);
    mine.key.clear();
}

/// The same server with another key.
struct Borrowed<'a> {
    server: &'a Server,
    key: String,
}

impl Borrowed<'_> {
    fn get(&self, target: &str) -> http::Answer {
        with_key(self.server, &self.key, Request::new("GET", target))
    }

    fn post(&self, target: &str, body: &Value) -> http::Answer {
        with_key(self.server, &self.key, Request::new("POST", target).json(body))
    }

    fn stream(&self, target: &str) -> http::Events {
        let request = Request::new("GET", target)
            .header("authorization", &format!("Bearer {}", self.key))
            .header("accept", "text/event-stream");
        http::open(self.server.port, &request).unwrap().events()
    }

    fn terminal(&self, target: &str) -> WebSocket {
        let request = Request::new("GET", target).header("authorization", &format!("Bearer {}", self.key));
        WebSocket::by(self.server.port, request)
    }
}

/// A body that the route takes, so that only who asks is wrong.
fn body(path: &str) -> Value {
    match path.rsplit('/').next().unwrap() {
        "exec" => json!({ "command": "true" }),
        "execute" => json!({ "code": "1" }),
        "contexts" => json!({ "language": "python" }),
        "extend" => json!({ "lifetime": "10m" }),
        "network" => json!({ "network": "none" }),
        "signal" => json!({ "signal": "kill" }),
        "mkdir" => json!({ "path": "x" }),
        "move" => json!({ "from": "x", "to": "y" }),
        "mode" => json!({ "path": "x", "mode": "644" }),
        _ => json!({}),
    }
}

/// The address of a route with these objects in it.
fn address(path: &str, objects: &BTreeMap<&str, String>) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    for part in &mut parts {
        *part = match *part {
            "{port}" => "80",
            "{*path}" => "x",
            // A route with another kind of object has to be said here whose object it is tried with.
            name if name.starts_with('{') => {
                objects.get(name).unwrap_or_else(|| panic!("nobody tries {name} of {path}"))
            }
            part => part,
        };
    }
    let query = match parts.last() {
        Some(&("files" | "stat" | "exists" | "archive")) => "?path=/etc/passwd",
        Some(&"list") => "?path=/",
        Some(&"search") => "?pattern=x",
        _ => "",
    };
    parts.join("/") + query
}

/// What is another's and what never was cannot be told apart: for each route of the table that names something, with what
/// is really there. The second time with a sandbox of one's own around what is another's.
#[test]
fn one_tenant_cannot_see_anothers_objects() {
    let server = Server::start(Who::Root);
    on_state(&server, &["tenants", "create", "other"]);
    let (_, other) = new_key(&server, &["--tenant", "other"]);
    let sandbox = server.sandbox(&json!({}));
    let context = server.post(&format!("{sandbox}/contexts"), &json!({ "language": "python" })).expect(201);
    let exec = server
        .post(&format!("{sandbox}/exec"), &json!({ "command": "sleep 600", "background": true }))
        .expect(202);
    let ran = server.post("/v1/runs", &json!({ "language": "bash", "code": "true" })).expect(200);
    let text = |value: &Value| value["id"].as_str().unwrap().to_owned();
    let ours = BTreeMap::from([
        ("{sandbox}", sandbox.rsplit('/').next().unwrap().to_owned()),
        ("{context}", text(&context)),
        ("{exec}", text(&exec)),
        ("{run}", text(&ran)),
    ]);
    let absent = |id: &String| {
        let (prefix, _) = id.split_once('_').unwrap();
        format!("{prefix}_{}a", "a".repeat(25))
    };
    let never: BTreeMap<_, _> = ours.iter().map(|(name, id)| (*name, absent(id))).collect();
    let theirs = with_key(&server, &other, Request::new("POST", "/v1/sandboxes").json(&json!({})));
    let theirs = text(&theirs.expect(201));
    let (mut cases, mut inside) = (0, 0);
    let mut routes: Vec<_> = sandstorm_gateway::access::PUBLIC.iter().collect();
    // What ends something comes last, or it would be gone for the others.
    routes.sort_by_key(|route| route.method == "DELETE");
    for route in routes {
        // HEAD is the same without a body.
        let named = route.path.contains('{') && route.access != sandstorm_gateway::access::Access::Open;
        if !named || route.method == "HEAD" {
            continue;
        }
        let method = if route.method == "*" { "GET" } else { route.method };
        let ask = |key: &str, objects: &BTreeMap<&str, String>| {
            let request = Request::new(method, address(route.path, objects)).header("x-request-id", "same");
            let request = match route.path.rsplit('/').next().unwrap() {
                _ if !matches!(method, "POST" | "PUT") => request,
                "archive" => request.bytes("").header("content-type", "application/x-tar"),
                "files" | "stdin" => request.bytes("x"),
                _ => request.json(&body(route.path)),
            };
            let answer = with_key(&server, key, request);
            let mut said = answer.text();
            for (name, id) in objects {
                said = said.replace(id, name);
            }
            (answer.status, said)
        };
        cases += 1;
        let (foreign, absent) = (ask(&other, &ours), ask(&other, &never));
        assert_eq!(foreign, absent, "{route:?}");
        // A terminal is refused for what it lacks before anything is looked for.
        let early = route.path.ends_with("/pty") && foreign.0 == 426;
        assert!(foreign.0 == 404 || early, "{route:?}: {foreign:?}");
        if route.path.contains("{sandbox}")
            && (route.path.contains("{exec}") || route.path.contains("{context}"))
        {
            inside += 1;
            let with = |objects: &BTreeMap<&'static str, String>| {
                let mut objects = objects.clone();
                objects.insert("{sandbox}", theirs.clone());
                ask(&other, &objects)
            };
            let (foreign, absent) = (with(&ours), with(&never));
            assert_eq!(foreign, absent, "{route:?} in a sandbox of theirs");
            assert_ne!(foreign.0 / 100, 2, "{route:?} in a sandbox of theirs: {foreign:?}");
        }
        // What is looked at here is there for who owns it: a case with nothing to find would prove nothing.
        if method == "GET" && !route.path.contains("events") && !route.path.contains("watch") {
            let own = ask(&server.key, &ours);
            assert_ne!(own.0, 404, "{route:?}: {}", own.1);
        }
    }
    assert!(cases > 40 && inside >= 8, "{cases} {inside}");
    for (list, what) in [("/v1/sandboxes?include_ended=true", &theirs), ("/v1/runs", &String::new())] {
        let listed = with_key(&server, &other, Request::new("GET", list)).expect(200);
        let ids: Vec<_> =
            listed["items"].as_array().unwrap().iter().filter_map(|it| it["id"].as_str()).collect();
        assert!(ids.iter().all(|id| id == what), "{list}: {ids:?}");
    }
    // Nothing was done to any of it.
    assert_eq!(server.get(&sandbox).expect(200)["state"], "running");
    let alive = server.get(&format!("{sandbox}/execs/{}", ours["{exec}"])).expect(200);
    assert!(alive["ended_at"].is_null(), "{alive:#}");
    let cell =
        server.post(&format!("{sandbox}/contexts/{}/execute", ours["{context}"]), &json!({ "code": "6*7" }));
    assert!(cell.expect(200).to_string().contains("42"));
}

#[test]
fn a_key_does_what_its_scopes_say() {
    let server = Server::start(Who::Root);
    let sandbox = server.sandbox(&json!({}));
    let (_, files) = new_key(&server, &["--scopes", "files"]);
    let (_, runs) = new_key(&server, &["--scopes", "run"]);
    let status = |key: &str, target: &str| with_key(&server, key, Request::new("GET", target)).status;
    assert_eq!(status(&files, &format!("{sandbox}/files/list?path=/workspace")), 200);
    assert_eq!(status(&files, &sandbox), 403);
    assert_eq!(status(&files, "/v1/runs"), 403);
    assert_eq!(status(&runs, "/v1/runs"), 200);
    assert_eq!(status(&runs, &format!("{sandbox}/files/list?path=/workspace")), 403);
    // Operators' routes are not on this listener at all, whoever asks.
    assert_eq!(server.get("/v1/admin/keys").status, 404);
}

/// Five hundred at once against a quota of twenty: twenty get one.
#[test]
fn a_quota_holds_against_a_burst() {
    let settings = [("SANDSTORM_QUOTAS_SANDBOXES", "20"), ("SANDSTORM_QUOTAS_REQUESTS_PER_SECOND", "100000")];
    let server = Server::with(Who::Root, &settings, &[]);
    let answers: Vec<http::Answer> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..25)
            .map(|_| {
                scope.spawn(|| (0..20).map(|_| server.post("/v1/sandboxes", &json!({}))).collect::<Vec<_>>())
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 201).collect();
    assert_eq!(made, 20);
    for answer in refused {
        assert_eq!(
            (answer.status, answer.json()["code"].as_str()),
            (429, Some("quota")),
            "{}",
            answer.text()
        );
        assert!(answer.header("retry-after").is_some());
    }
    assert_eq!(server.get("/v1/usage").expect(200)["sandboxes"], 20);
}

#[test]
fn too_many_requests_are_told_when_to_come_back() {
    // So few that no machine is too slow to ask for more.
    let server = Server::with(Who::Root, &[("SANDSTORM_QUOTAS_REQUESTS_PER_SECOND", "1")], &[]);
    let mut asked = std::iter::repeat_with(|| server.get("/v1/limits")).take(200);
    let refused = asked.find(|answer| answer.status == 429).expect("some are refused");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=2).contains(&wait), "{wait}");
    std::thread::sleep(Duration::from_secs(wait));
    assert_eq!(server.get("/v1/limits").status, 200);
}

/// More memory than the machine may promise: the rest waits, and gets its turn or a clear answer.
#[test]
fn a_burst_past_the_memory_waits_or_is_refused() {
    let full = |wait: &str| {
        let settings = [
            ("SANDSTORM_ADMISSION_MEMORY", "320M"),
            ("SANDSTORM_ADMISSION_WAIT", wait),
            ("SANDSTORM_ADMISSION_QUEUE", "2"),
        ];
        Server::with(Who::Root, &settings, &[])
    };
    let wish = json!({ "limits": { "memory": "96M", "disk": "32M", "inodes": 1000 } });
    // A sandbox in which something runs has its whole limits, of which two fit; one that rests has what it uses.
    let busy = |server: &Server| {
        let id = server.sandbox(&wish);
        let work = json!({ "command": "sleep 1000", "background": true });
        server.post(&format!("{id}/exec"), &work).expect(202);
        id
    };
    let server = full("1s");
    let _both = (busy(&server), busy(&server));
    let began = Instant::now();
    let refused = server.post("/v1/sandboxes", &wish);
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").is_some() && began.elapsed() >= Duration::from_secs(1));
    drop(server);
    // Whoever waits long enough gets what another gives back.
    let server = full("1m");
    let (first, _second) = (busy(&server), busy(&server));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| server.post("/v1/sandboxes", &wish).status);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(server.delete(&first).status, 204);
        assert_eq!(waiting.join().unwrap(), 201);
    });
}

#[test]
fn the_audit_tells_what_happened_and_that_it_was_not_changed() {
    let server = Server::start(Who::Root);
    let sandbox = server.sandbox(&json!({ "env": { "TOKEN": "canary-in-env" } }));
    server.exec(&sandbox, "echo canary-in-command");
    assert_eq!(server.delete(&sandbox).status, 204);
    let listed = on_state(&server, &["audit", "list", "--json"]);
    for action in ["sandbox.create", "exec.command", "sandbox.delete"] {
        assert!(listed.contains(action), "{action}: {listed}");
    }
    assert!(!listed.contains("canary-in-env"), "{listed}");
    let verified: Value = serde_json::from_str(&on_state(&server, &["audit", "verify", "--json"])).unwrap();
    assert_eq!(verified["whole"], true, "{verified:#}");
}

#[test]
fn open_pages_tell_nothing_of_tenants() {
    let server = Server::start(Who::Root);
    on_state(&server, &["tenants", "create", "canary-tenant"]);
    let (id, key) = new_key(&server, &["--tenant", "canary-tenant", "--name", "canary-key"]);
    let mine = Borrowed { server: &server, key };
    let made =
        mine.post("/v1/sandboxes", &json!({ "labels": { "canary": "label" }, "env": { "CANARY": "env" } }));
    let sandbox = made.expect(201)["id"].as_str().unwrap().to_owned();
    mine.post(&format!("/v1/sandboxes/{sandbox}/exec"), &json!({ "command": "echo canary-output" }))
        .expect(200);
    mine.get("/v1/sandboxes/canary-path");
    for target in ["/metrics", "/healthz", "/readyz", "/openapi.json", "/no/such/canary"] {
        let text = server.send(&Request::new("GET", target)).text().to_lowercase();
        let told = text.replace("/no/such/canary", "");
        assert!(
            !told.contains("canary") && !told.contains(&sandbox) && !told.contains(&id),
            "{target}: {text}"
        );
    }
}

#[test]
fn an_idempotency_key_makes_one_of_many() {
    let server = Server::start(Who::Root);
    let ask = |key: &str, body: &Value| {
        server.send(&server.request("POST", "/v1/sandboxes").json(body).header("idempotency-key", key))
    };
    let body = json!({ "labels": { "n": "1" } });
    let ids: Vec<String> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..5).map(|_| scope.spawn(|| ask("one", &body))).collect();
        let answers = asked.into_iter().map(|answer| answer.join().unwrap().expect(201));
        answers.map(|made| made["id"].as_str().unwrap().to_owned()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(ask("one", &json!({ "labels": { "n": "2" } })).status, 409);
    assert_ne!(ask("two", &body).expect(201)["id"], ids[0].as_str());
    // Another tenant's key of the same name is another key.
    on_state(&server, &["tenants", "create", "other"]);
    let (_, other) = new_key(&server, &["--tenant", "other"]);
    let theirs = with_key(
        &server,
        &other,
        Request::new("POST", "/v1/sandboxes").json(&body).header("idempotency-key", "one"),
    );
    assert_ne!(theirs.expect(201)["id"], ids[0].as_str());
}

#[test]
fn keys_of_both_forms_open_the_door() {
    let server = Server::start(Who::Root);
    let (id, native) = new_key(&server, &[]);
    assert!(native.starts_with(&format!("ss_{id}_")) && native.rsplit_once('_').is_some(), "{native}");
    let (_, e2b) = new_key(&server, &["--form", "e2b"]);
    assert!(e2b.len() == 44 && e2b.starts_with("e2b_"), "{e2b}");
    for key in [&native, &e2b] {
        eventually("the running server knows the key", || {
            with_key(&server, key, Request::new("GET", "/v1/me")).status == 200
        });
    }
}
