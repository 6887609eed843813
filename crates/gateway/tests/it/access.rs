//! Every route of the tables against every kind of caller who may not: generated, so that a new route has its cases.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use sandstorm_control::server::{Quota, Scope};
use sandstorm_gateway::access::{Access, OPERATOR, PUBLIC, Route};
use sandstorm_types::{ContextId, ExecId, RunId, SandboxId, SnapshotId, TenantId, Timestamp};
use serde_json::{Value, json};

use crate::world::{PATIENCE, Reply, World, promised, send};

const ALL: [(Scope, &str); 4] =
    [(Scope::Run, "run"), (Scope::Sandbox, "sandbox"), (Scope::Files, "files"), (Scope::Admin, "admin")];

/// A path of the route with ids that look right; `sandbox` is used for the sandbox.
fn path(route: &Route, sandbox: &str) -> String {
    let run = RunId::from_bits(1).to_string();
    let exec = ExecId::from_bits(1).to_string();
    let context = ContextId::from_bits(1).to_string();
    let snapshot = SnapshotId::from_bits(1).to_string();
    let mut path = route.path.to_owned();
    for (name, value) in [
        ("{sandbox}", sandbox),
        ("{run}", &run),
        ("{exec}", &exec),
        ("{context}", &context),
        ("{snapshot}", &snapshot),
        ("{port}", "8000"),
        ("{*path}", "x"),
        ("{key}", "nokeynokeynokey"),
    ] {
        path = path.replace(name, value);
    }
    let queries = ["/files", "/files/stat", "/files/exists", "/files/archive"];
    if queries.iter().any(|end| path.ends_with(end)) {
        path.push_str("?path=x");
    } else if path.ends_with("/files/search") {
        path.push_str("?pattern=x");
    }
    path
}

/// A body that the route takes, so that only who asks is wrong.
fn body(route: &Route) -> &'static str {
    match route.path.rsplit('/').next().unwrap() {
        "runs" => r#"{"language": "bash", "code": ""}"#,
        "exec" => r#"{"command": "true"}"#,
        "execute" => r#"{"code": ""}"#,
        "contexts" => r#"{"language": "python"}"#,
        "extend" => r#"{"seconds": 60}"#,
        "network" => r#"{"network": "none"}"#,
        "signal" => r#"{"signal": "kill"}"#,
        "mkdir" => r#"{"path": "x"}"#,
        "move" => r#"{"from": "x", "to": "y"}"#,
        "mode" => r#"{"path": "x", "mode": "644"}"#,
        "install" => r#"{"manager": "pip", "packages": ["six"]}"#,
        "keys" => r#"{"name": "x", "scopes": ["run"]}"#,
        "tenants" => r#"{"name": "x"}"#,
        _ => "{}",
    }
}

pub(crate) async fn ask(
    world: &World,
    admin: bool,
    route: &Route,
    key: Option<&str>,
    sandbox: &str,
) -> Reply {
    let method = if route.method == "*" { "GET" } else { route.method };
    let mut request = world.request(method, &path(route, sandbox));
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let raw = ["/stdin", "/archive", "/files"].iter().any(|end| route.path.ends_with(end));
    let text = if matches!(method, "POST" | "PUT") && !raw { body(route) } else { "" };
    if !text.is_empty() {
        request = request.header("content-type", "application/json");
    }
    let address = if admin { world.admin } else { world.address };
    let request = request.body(Full::new(text.into())).unwrap();
    tokio::time::timeout(PATIENCE, send(address, request)).await.unwrap()
}

pub(crate) fn guarded() -> impl Iterator<Item = (bool, &'static Route)> {
    let tables = PUBLIC.iter().map(|route| (false, route)).chain(OPERATOR.iter().map(|route| (true, route)));
    tables.filter(|(_, route)| matches!(route.access, Access::Key | Access::Scope(_)))
}

#[tokio::test]
async fn without_a_good_key_every_route_says_the_same() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let expired =
        world.make_key(TenantId::LOCAL, "run,sandbox,files,admin", Some(Timestamp::from_millis(1))).await;
    let cut = world.key[..world.key.len() - 1].to_owned();
    let other_case = world.key.to_uppercase();
    let mut routes = 0;
    let mut details = std::collections::BTreeSet::new();
    for (admin, route) in guarded() {
        routes += 1;
        for key in [None, Some(expired.as_str()), Some(&cut), Some(&other_case), Some("ss_x_y")] {
            let reply = ask(&world, admin, route, key, &sandbox).await;
            assert_eq!(reply.status, 401, "{route:?} {key:?}");
            assert_eq!(reply.headers["www-authenticate"], "Bearer realm=\"sandstorm\"");
            if route.method != "HEAD" {
                let mut problem = reply.refused(401);
                problem["request_id"].take();
                details.insert(problem.to_string());
            }
        }
    }
    assert!(routes > 50, "{routes}");
    assert_eq!(details.len(), 1, "{details:?}");
}

#[tokio::test]
async fn without_the_scope_every_route_refuses() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    for (wanted, _) in ALL {
        let others: Vec<_> =
            ALL.iter().filter(|(scope, _)| *scope != wanted).map(|(_, name)| *name).collect();
        let key = world.make_key(TenantId::LOCAL, &others.join(","), None).await;
        for (admin, route) in guarded().filter(|(_, route)| route.access == Access::Scope(wanted)) {
            let reply = ask(&world, admin, route, Some(&key), &sandbox).await;
            assert_eq!(reply.status, 403, "{route:?}");
            if route.method != "HEAD" {
                assert_eq!(reply.refused(403)["code"], "forbidden");
            }
        }
    }
}

#[tokio::test]
async fn what_is_anothers_is_as_absent_as_what_never_was() {
    let world = World::new().await;
    let sandbox = world.sandbox().await;
    let never = SandboxId::random().to_string();
    let odd = "sbx_not-an-id".to_owned();
    for (admin, route) in guarded().filter(|(_, route)| route.path.contains("{sandbox}")) {
        // A terminal is refused for what it lacks before its sandbox is looked for.
        if route.path.ends_with("/pty") {
            continue;
        }
        let mut answers = Vec::new();
        for id in [&sandbox, &never, &odd] {
            let reply = ask(&world, admin, route, Some(&world.stranger), id).await;
            assert_eq!(reply.status, 404, "{route:?} {id}: {}", reply.text());
            if route.method != "HEAD" {
                let mut problem = reply.refused(404);
                problem["request_id"].take();
                answers.push(problem);
            }
        }
        assert!(answers.windows(2).all(|two| two[0] == two[1]), "{route:?} {answers:?}");
    }
    assert_eq!(world.call("GET", &format!("/v1/sandboxes/{sandbox}"), "").await.json()["state"], "ready");
}

#[tokio::test]
async fn operators_routes_are_not_on_the_public_listener() {
    let world = World::new().await;
    for route in OPERATOR.iter().filter(|route| route.path.starts_with("/v1/admin")) {
        ask(&world, false, route, Some(&world.key), "x").await.refused(404);
    }
    for route in PUBLIC.iter().filter(|route| route.path.starts_with("/v1/sandboxes")) {
        let reply = ask(&world, true, route, Some(&world.key), "x").await;
        assert_eq!(reply.status, 404, "{route:?}");
    }
}

#[tokio::test]
async fn operators_make_rotate_and_revoke_keys() {
    let world = World::new().await;
    let call = async |method: &str, path: &str, body: &str| {
        let request = world.request(method, path).header("x-api-key", &world.key);
        let request = request.header("content-type", "application/json");
        send(world.admin, request.body(Full::new(body.to_owned().into())).unwrap()).await
    };
    let tenant = call("POST", "/v1/admin/tenants", r#"{"name": "third"}"#).await;
    assert_eq!(tenant.status, 201, "{}", tenant.text());
    let tenant = tenant.json()["id"].as_str().unwrap().to_owned();
    let wanted = format!(r#"{{"tenant": "{tenant}", "name": "k", "scopes": ["run"]}}"#);
    let made = call("POST", "/v1/admin/keys", &wanted).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let (id, key) =
        (made.json()["id"].as_str().unwrap().to_owned(), made.json()["key"].as_str().unwrap().to_owned());
    let me = async |key: &str| world.send(world.request("GET", "/v1/me").header("x-api-key", key), "").await;
    assert_eq!(me(&key).await.json()["tenant"], tenant);
    let listed = call("GET", &format!("/v1/admin/keys?tenant={tenant}"), "").await;
    assert!(!listed.text().contains(&key) && listed.text().contains(&id));
    let rotated = call("POST", &format!("/v1/admin/keys/{id}/rotate"), r#"{"overlap": 60}"#).await;
    assert_eq!(rotated.status, 201, "{}", rotated.text());
    let new = rotated.json()["key"].as_str().unwrap().to_owned();
    assert_eq!((me(&key).await.status.as_u16(), me(&new).await.status.as_u16()), (200, 200));
    let gone = call("DELETE", &format!("/v1/admin/keys/{id}"), "").await;
    assert!(gone.json()["revoked_at"].is_string(), "{}", gone.text());
    tokio::time::sleep(Duration::from_millis(1100)).await;
    me(&key).await.refused(401);
    assert!(call("GET", "/v1/admin/tenants", "").await.text().contains(&tenant));
    let audit = call("GET", "/v1/admin/audit?limit=1000", "").await;
    assert!(audit.text().contains("key") && !audit.text().contains(&key), "{}", audit.text());
    call("DELETE", "/v1/admin/keys/nokeynokeynokey", "").await.refused(404);
    call("POST", "/v1/admin/keys", r#"{"name": "k", "scopes": []}"#).await.refused(400);
}

#[tokio::test]
async fn a_revoked_key_ends_its_streams_within_about_a_second() {
    use http_body_util::BodyExt;
    let world = World::new().await;
    promised(Duration::from_millis(2500), async || {
        let key = world.make_key(TenantId::LOCAL, "sandbox", None).await;
        let mut stream = world.open(world.request("GET", "/v1/events").header("x-api-key", &key), "").await;
        assert_eq!(stream.status(), 200);
        let id = key.split('_').nth(1).unwrap();
        world.control.revoke_key(&world.control.developer(), id).await.unwrap();
        let revoked = Instant::now();
        let over = async { while stream.body_mut().frame().await.is_some() {} };
        tokio::time::timeout(PATIENCE, over).await.unwrap();
        revoked.elapsed()
    })
    .await;
}

#[tokio::test]
async fn the_local_tenant_has_walls_and_no_rates_and_others_have_both() {
    let mut rules = crate::world::control_settings();
    rules.quota.requests_per_second = Some(5);
    let local = Quota { requests_per_second: None, runs_per_minute: None, open_streams: 1, ..rules.quota };
    rules.local_quota = Some(local);
    let world = World::with(Default::default(), Default::default(), rules).await;
    for _ in 0..300 {
        assert_eq!(world.call("GET", "/v1/me", "").await.status, 200);
    }
    let usage = world.call("GET", "/v1/usage", "").await.json();
    assert!(usage["quota"]["requests_per_second"].is_null(), "{usage}");
    let listen = || world.request("GET", "/v1/events").header("x-api-key", &world.key);
    let _first = world.open(listen(), "").await;
    assert_eq!(world.send(listen(), "").await.refused(429)["code"], "quota");
    // The flood of one tenant takes nothing from another, which is held to its own rate.
    let stranger =
        async || world.send(world.request("GET", "/v1/me").header("x-api-key", &world.stranger), "").await;
    assert_eq!(stranger().await.status, 200);
    let mut refused = false;
    for _ in 0..500 {
        refused |= stranger().await.status == 429;
        assert_eq!(world.call("GET", "/v1/me", "").await.status, 200);
        if refused {
            break;
        }
    }
    assert!(refused, "who does not stop asks for more than five a second");
    // A quota that an operator sets names every bound, if only as none.
    let quota = |rates: Value| {
        let mut quota =
            json!({ "sandboxes": 1, "cpu_milli": 1000, "memory_bytes": 1 << 30, "open_streams": 1 });
        quota.as_object_mut().unwrap().extend(rates.as_object().unwrap().clone());
        json!({ "name": "made", "quota": quota }).to_string()
    };
    let admin = async |body: String| {
        let request = Request::post("/v1/admin/tenants").header("host", world.admin.to_string());
        let request = request.header("x-api-key", &world.key).header("content-type", "application/json");
        send(world.admin, request.body(Full::new(Bytes::from(body))).unwrap()).await
    };
    admin(quota(json!({ "runs_per_minute": 1 }))).await.refused(400);
    let made = admin(quota(json!({ "runs_per_minute": 1, "requests_per_second": null }))).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

#[tokio::test]
async fn a_tenants_rate_and_streams_are_bounded() {
    let mut rules = crate::world::control_settings();
    rules.quota.requests_per_second = Some(5);
    rules.quota.open_streams = 1;
    let world = World::with(Default::default(), Default::default(), rules).await;
    let first = world.open(world.request("GET", "/v1/events").header("x-api-key", &world.key), "").await;
    assert_eq!(first.status(), 200);
    let second = world.send(world.request("GET", "/v1/events").header("x-api-key", &world.key), "").await;
    assert_eq!(second.refused(429)["code"], "quota");
    let mut refused = None;
    for _ in 0..500 {
        let reply = world.call("GET", "/v1/me", "").await;
        if reply.status == 429 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("whoever does not stop asks for more than five a second");
    let after: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=2).contains(&after));
    tokio::time::sleep(Duration::from_secs(after)).await;
    assert_eq!(world.call("GET", "/v1/me", "").await.status, 200);
}
