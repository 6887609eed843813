//! Saved sandboxes, as clients see them: in our words, and in those of the first Sandstorm's SDK.

use sandstorm_control::server::{Settings, SnapshotLimits};
use sandstorm_gateway::{GatewaySettings, ServeLimits};
use sandstorm_types::{Enforcement, SnapshotId, TenantId};
use serde_json::{Value, json};

use crate::world::{PATIENCE, Reply, World, control_settings};

async fn with_file(world: &World, content: &'static str) -> String {
    let id = world.sandbox().await;
    let put = world.request("PUT", &format!("/v1/sandboxes/{id}/files?path=kept"));
    assert!(world.send(put.header("x-api-key", &world.key), content).await.status.is_success());
    id
}

async fn save(world: &World, id: &str, body: &Value) -> Reply {
    world.call("POST", &format!("/v1/sandboxes/{id}/snapshots"), &body.to_string()).await
}

async fn as_(world: &World, key: &str, method: &str, path: &str, body: &'static str) -> Reply {
    let request = world.request(method, path).header("x-api-key", key);
    world.send(request.header("content-type", "application/json"), body).await
}

/// What a sandbox that was made from the snapshot has in its file.
async fn restored(world: &World, snapshot: &str) -> String {
    let wanted = json!({ "template": { "snapshot": snapshot }, "enforcement": "best_effort" });
    let made = world.call("POST", "/v1/sandboxes", &wanted.to_string()).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.json()["template"], json!({ "snapshot": snapshot }));
    let read = format!("/v1/sandboxes/{}/files?path=kept", made.json()["id"].as_str().unwrap());
    world.call("GET", &read, "").await.text()
}

#[tokio::test]
async fn one_is_saved_listed_restored_and_removed() {
    let world = World::new().await;
    let id = with_file(&world, "then").await;
    let made = save(&world, &id, &json!({ "name": "golden" })).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let snapshot = made.json();
    let first = snapshot["id"].as_str().unwrap().to_owned();
    let place = format!("/v1/snapshots/{first}");
    assert_eq!(made.headers["location"], place);
    assert_eq!((&snapshot["name"], &snapshot["sandbox"]), (&json!("golden"), &json!(id)));
    assert_eq!((&snapshot["provider"], &snapshot["left_out"]), (&json!("memory"), &json!([])));
    assert!(snapshot["size_bytes"].as_u64().unwrap() > 0);
    let mut shown = snapshot.clone();
    shown.as_object_mut().unwrap().remove("left_out");
    assert_eq!(world.call("GET", &place, "").await.json(), shown);
    assert_eq!(world.call("DELETE", &format!("/v1/sandboxes/{id}"), "").await.status, 204);
    assert_eq!(restored(&world, &first).await, "then");

    let other = with_file(&world, "now").await;
    let second = save(&world, &other, &json!({})).await.json()["id"].as_str().unwrap().to_owned();
    let ids = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap();
        items.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    let page = world.call("GET", "/v1/snapshots?limit=1", "").await.json();
    assert_eq!(ids(&page), [second.clone()]);
    let next = format!("/v1/snapshots?limit=1&cursor={}", page["next_cursor"].as_str().unwrap());
    let last = world.call("GET", &next, "").await.json();
    assert_eq!((ids(&last), &last["next_cursor"]), (vec![first.clone()], &Value::Null));
    for (query, expected) in [(format!("sandbox={other}"), &second), ("name=golden".to_owned(), &first)] {
        assert_eq!(
            ids(&world.call("GET", &format!("/v1/snapshots?{query}"), "").await.json()),
            [expected.clone()]
        );
    }
    for bad in ["limit=0", "limit=1001", "sandbox=x", "colour=red", "cursor=x"] {
        world.call("GET", &format!("/v1/snapshots?{bad}"), "").await.refused(400);
    }
    as_(&world, &world.stranger, "GET", &next, "").await.refused(400);
    assert_eq!(world.call("DELETE", &place, "").await.status, 204);
    world.call("DELETE", &place, "").await.refused(404);
    world.call("GET", &place, "").await.refused(404);
    let gone = json!({ "template": { "snapshot": first } }).to_string();
    world.call("POST", "/v1/sandboxes", &gone).await.refused(404);
    let audit = world.control.audit(&world.control.developer(), None, 0, 1000).await.unwrap();
    for action in ["snapshot.create", "snapshot.delete"] {
        assert!(audit.iter().any(|row| row.audit.action == action), "{action}");
    }
}

#[tokio::test]
async fn another_tenants_snapshot_is_as_absent_as_none() {
    let world = World::new().await;
    let id = with_file(&world, "secret").await;
    let snapshot =
        save(&world, &id, &json!({ "name": "golden" })).await.json()["id"].as_str().unwrap().to_owned();
    let never = SnapshotId::random().to_string();
    for (method, rest) in [("GET", ""), ("DELETE", ""), ("POST", "/restore")] {
        let mut answers = Vec::new();
        for id in [snapshot.as_str(), &never, "snap_not-an-id"] {
            let path = format!("/v1/snapshots/{id}{rest}");
            let mut problem = as_(&world, &world.stranger, method, &path, "").await.refused(404);
            problem["request_id"].take();
            answers.push(problem);
        }
        assert!(answers.windows(2).all(|two| two[0] == two[1]), "{method} {answers:?}");
    }
    for list in ["/v1/snapshots", "/v1/snapshots?name=golden"] {
        assert_eq!(as_(&world, &world.stranger, "GET", list, "").await.json()["items"], json!([]));
    }
    for list in ["/original/v1/snapshots".to_owned(), format!("/v1/snapshots?sandboxId={id}")] {
        assert_eq!(as_(&world, &world.stranger, "GET", &list, "").await.json(), json!([]));
    }
    let without = world.make_key(TenantId::LOCAL, "run,files", None).await;
    for path in ["/v1/snapshots", "/original/v1/snapshots", "/v1/snapshots?provider=memory"] {
        as_(&world, &without, "GET", path, "").await.refused(403);
        as_(&world, "ss_x_y", "GET", path, "").await.refused(401);
    }
    assert_eq!(restored(&world, &snapshot).await, "secret");
}

#[tokio::test]
async fn what_cannot_be_saved_is_refused_by_name() {
    let snapshots = SnapshotLimits { count: 1, bytes: 1 << 20 };
    let rules = Settings { snapshots, ..control_settings() };
    let world = World::with(GatewaySettings::default(), ServeLimits::default(), rules).await;
    let id = with_file(&world, "x").await;
    for bad in
        [json!({ "name": "A B" }), json!({ "name": "" }), json!({ "memory": true }), json!({ "name": 1 })]
    {
        save(&world, &id, &bad).await.refused(400);
    }
    world.call("POST", &format!("/v1/sandboxes/{id}/pause"), "").await;
    save(&world, &id, &json!({})).await.refused(409);
    world.call("POST", &format!("/v1/sandboxes/{id}/resume"), "").await;
    assert_eq!(save(&world, &id, &json!({})).await.status, 201);
    assert_eq!(save(&world, &id, &json!({})).await.refused(429)["code"], "quota");
    let original = world.call("POST", &format!("/v1/sandboxes/{id}/snapshot"), "").await;
    assert_eq!(original.refused(429)["code"], "quota", "it is one quota for all doors");
}

#[tokio::test]
async fn one_key_is_one_snapshot() {
    let world = World::new().await;
    let id = with_file(&world, "x").await;
    let ask = async |body: &'static str| {
        let path = format!("/v1/sandboxes/{id}/snapshots");
        let request = world.request("POST", &path).header("x-api-key", &world.key);
        let request = request.header("content-type", "application/json").header("idempotency-key", "once");
        tokio::time::timeout(PATIENCE, world.send(request, body)).await.unwrap()
    };
    let (first, again) = tokio::join!(ask("{}"), ask("{}"));
    assert_eq!(
        (first.status.as_u16(), again.status.as_u16()),
        (201, 201),
        "{} {}",
        first.text(),
        again.text()
    );
    assert_eq!((&first.body, &first.headers["location"]), (&again.body, &again.headers["location"]));
    let replayed = |reply: &Reply| reply.headers.contains_key("idempotency-replayed");
    assert_ne!(replayed(&first), replayed(&again));
    ask(r#"{"name": "other"}"#).await.refused(409);
    let listed = world.call("GET", "/v1/snapshots", "").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_first_sandstorms_sdk_saves_lists_and_restores() {
    // The SDK cannot say that it does without walls which the provider in memory does not have.
    let rules = Settings { enforcement: Enforcement::BestEffort, ..control_settings() };
    let world = World::with(GatewaySettings::default(), ServeLimits::default(), rules).await;
    let id = with_file(&world, "then").await;
    let run = r#"{"spec": {"code": "hi", "language": "python"}}"#;
    for prefix in ["", "/original"] {
        let saved = world.call("POST", &format!("{prefix}/v1/sandboxes/{id}/snapshot"), "{}").await;
        assert_eq!(saved.status, 200, "{}", saved.text());
        let saved = saved.json();
        assert_eq!((&saved["sandboxId"], &saved["provider"]), (&json!(id), &json!("memory")));
        assert!(saved["size"].as_u64().unwrap() > 0 && saved["timestamp"].is_string(), "{saved}");
        let snapshot = saved["id"].as_str().unwrap();
        let made = world.call("POST", &format!("{prefix}/v1/snapshots/{snapshot}/restore"), "").await;
        assert_eq!(made.status, 200, "{}", made.text());
        let made = made.json()["sandboxId"].as_str().unwrap().to_owned();
        let read = world.call("GET", &format!("/v1/sandboxes/{made}/files?path=kept"), "").await;
        assert_eq!(read.text(), "then");
    }
    let count = async |path: &str| match world.call("GET", path, "").await.json() {
        Value::Array(items) => items.len(),
        other => panic!("{path}: {other}"),
    };
    assert_eq!(count("/original/v1/snapshots").await, 2);
    assert_eq!(count(&format!("/v1/snapshots?sandboxId={id}&provider=memory")).await, 2);
    assert_eq!(count("/v1/snapshots?provider=e2b").await, 0);
    assert_eq!(count("/original/v1/snapshots?sandboxId=theirs").await, 0);
    world.call("GET", "/original/v1/snapshots?limit=1", "").await.refused(400);
    world.call("GET", "/original/v1/runs", "").await.refused(404);
    let ran = world.call("POST", "/original/v1/sandboxes/run", run).await;
    assert_eq!(ran.status, 200, "{}", ran.text());
    for path in
        ["/original/v1/usage", "/v1/usage?start=2020-01-01T00:00:00.000Z&end=2999-01-01T00:00:00.000Z"]
    {
        let usage = world.call("GET", path, "").await.json();
        assert_eq!((&usage["totalRuns"], &usage["totalCost"]), (&json!(1), &json!(0.0)), "{usage}");
        assert_eq!(usage["providerBreakdown"]["memory"]["runs"], 1, "{usage}");
        assert!(usage["avgLatency"].as_f64().is_some_and(|mean| mean >= 0.0), "{usage}");
    }
    world.call("GET", "/v1/usage?start=yesterday", "").await.refused(400);
    let theirs = as_(&world, &world.stranger, "GET", "/original/v1/usage", "").await.json();
    assert_eq!((&theirs["totalRuns"], &theirs["providerBreakdown"]), (&json!(0), &json!({})));
}
