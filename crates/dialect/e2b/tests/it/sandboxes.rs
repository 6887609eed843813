//! The control plane.

use serde_json::{Value, json};

use crate::world::World;

#[tokio::test]
async fn a_sandbox_is_made_found_and_ended() {
    let world = World::new().await;
    let client = world.client();
    let new = json!({"templateID": "code-interpreter-v1", "timeout": 60, "metadata": {"user": "u 1"},
        "envVars": {"A": "1"}, "unknown": true});
    let made = client.post("/v2/sandboxes", new).await;
    assert_eq!(made.status, 201);
    let made = made.json();
    for key in ["templateID", "sandboxID", "clientID", "envdVersion", "envdAccessToken", "trafficAccessToken"]
    {
        assert!(made[key].is_string(), "{key}");
    }
    let id = made["sandboxID"].as_str().unwrap();
    assert_eq!(id.len(), 26);
    let detail = client.get(&format!("/sandboxes/{id}")).await.json();
    assert_eq!(detail["metadata"], json!({"user": "u 1"}));
    assert_eq!(detail["state"], "running");
    assert_eq!(detail["templateID"], "code-interpreter-v1");
    assert_eq!(detail["lifecycle"], json!({"autoResume": false, "onTimeout": "kill"}));
    assert_eq!(detail["envdAccessToken"], made["envdAccessToken"]);
    assert_eq!(client.delete(&format!("/sandboxes/{id}")).await.status, 204);
    client.delete(&format!("/sandboxes/{id}")).await.refused(404);
    client.get(&format!("/sandboxes/{id}")).await.refused(404);
}

#[tokio::test]
async fn both_versions_make_and_connect() {
    let world = World::new().await;
    let client = world.client();
    let old = client.post("/sandboxes", json!({"templateID": "base", "secure": true})).await;
    assert_eq!(old.status, 201);
    let id = old.json()["sandboxID"].as_str().unwrap().to_owned();
    for path in [format!("/sandboxes/{id}/connect"), format!("/v2/sandboxes/{id}/connect")] {
        let connected = client.post(&path, json!({"timeout": 100})).await;
        assert_eq!(connected.status, 200);
        assert_eq!(connected.json()["envdAccessToken"], old.json()["envdAccessToken"]);
    }
    // Ids of old have a second part.
    assert_eq!(client.get(&format!("/sandboxes/{id}-abcdef12")).await.status, 200);
    client.post(&format!("/sandboxes/{id}/resume"), json!({})).await.refused(409);
}

#[tokio::test]
async fn lifetimes_are_set_and_never_shortened_by_connecting() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let path = format!("/sandboxes/{}", made.id);
    let ends = async || client.get(&path).await.json()["endAt"].as_str().unwrap().to_owned();
    assert_eq!(client.post(&format!("{path}/timeout"), json!({"timeout": 1000})).await.status, 204);
    let long = ends().await;
    assert_eq!(client.post(&format!("/v2{path}/connect"), json!({"timeout": 10})).await.status, 200);
    assert_eq!(ends().await, long);
    assert_eq!(client.post(&format!("{path}/refreshes"), json!({"duration": 60})).await.status, 204);
    assert_eq!(ends().await, long);
    assert_eq!(client.post(&format!("{path}/timeout"), json!({"timeout": 10})).await.status, 204);
    assert!(ends().await < long);
    let zero = client.post(&format!("{path}/timeout"), json!({"timeout": 0})).await;
    assert_eq!(zero.refused(400), "Timeout must be greater than 0");
    let long = client.post(&format!("{path}/timeout"), json!({"timeout": 86_401})).await;
    assert_eq!(long.refused(400), "Timeout cannot be greater than 24 hours");
}

#[tokio::test]
async fn pausing_twice_is_a_conflict_and_connecting_wakes() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let path = format!("/sandboxes/{}", made.id);
    assert_eq!(client.post(&format!("{path}/pause"), json!({})).await.status, 204);
    client.post(&format!("{path}/pause"), json!({})).await.refused(409);
    assert_eq!(client.get(&path).await.json()["state"], "paused");
    let closed = client.rpc(&made, "/process.Process/List", json!({})).await;
    assert_eq!(closed.refused(502), "The sandbox was not found");
    assert_eq!(client.post(&format!("{path}/connect"), json!({"timeout": 60})).await.status, 201);
    assert_eq!(client.rpc(&made, "/process.Process/List", json!({})).await.status, 200);
}

#[tokio::test]
async fn lists_have_filters_pages_and_orders() {
    let world = World::new().await;
    let client = world.client();
    for n in 0..3 {
        let new =
            json!({"templateID": "base", "timeout": 60, "metadata": {"n": n.to_string(), "all": "y y"}});
        assert_eq!(client.post("/v2/sandboxes", new).await.status, 201);
    }
    let numbers = |list: &Value| -> Vec<String> {
        let rows = list.as_array().unwrap().iter();
        rows.map(|row| row["metadata"]["n"].as_str().unwrap().to_owned()).collect()
    };
    let all = client.get("/v2/sandboxes?metadata=all%3Dy%252520y&state=running%2Cpaused").await;
    assert_eq!(all.json().as_array().unwrap().len(), 3);
    assert_eq!(all.headers["x-total-running"], "3");
    assert!(all.headers.get("x-next-token").is_none());
    let one = client.get("/v2/sandboxes?metadata=n%3D1").await.json();
    assert_eq!(numbers(&one), ["1"]);
    let first = client.get("/v2/sandboxes?limit=2&order=asc").await;
    let token = first.headers["x-next-token"].to_str().unwrap();
    let second = client.get(&format!("/v2/sandboxes?limit=2&order=asc&nextToken={token}")).await;
    assert!(second.headers.get("x-next-token").is_none());
    let mut seen = numbers(&first.json());
    seen.extend(numbers(&second.json()));
    let mut newest = numbers(&client.get("/v2/sandboxes").await.json());
    newest.reverse();
    assert_eq!(seen, newest);
    assert_eq!(client.get("/v2/sandboxes?state=paused").await.json(), json!([]));
    assert_eq!(client.get("/v2/sandboxes?template=other").await.json(), json!([]));
    assert_eq!(client.get("/sandboxes").await.json().as_array().unwrap().len(), 3);
    for bad in
        ["limit=0", "limit=101", "order=up", "state=dead", "metadata=x", "nextToken=x", "startedAfter=now"]
    {
        client.get(&format!("/v2/sandboxes?{bad}")).await.refused(400);
    }
}

#[tokio::test]
async fn a_repeated_request_makes_one_sandbox() {
    let world = World::new().await;
    let client = world.client();
    let ask = async |template: &str| {
        let request = http::Request::post("/v2/sandboxes").header("idempotency-key", "abc-1");
        let body = json!({"templateID": template, "timeout": 60}).to_string();
        client.send(request.body(axum::body::Body::from(body)).unwrap()).await
    };
    let (first, second) = (ask("base").await, ask("base").await);
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 201));
    assert_eq!(first.json(), second.json());
    assert_eq!(client.get("/v2/sandboxes").await.json().as_array().unwrap().len(), 1);
    ask("code-interpreter-v1").await.refused(409);
}

#[tokio::test]
async fn a_full_quota_is_not_worth_another_try() {
    let world = World::new().await;
    let client = world.client();
    for _ in 0..4 {
        client.create().await;
    }
    let refused = client.post("/v2/sandboxes", json!({"templateID": "base"})).await;
    refused.refused(429);
    assert_eq!(refused.headers["should-retry"], "false");
}

#[tokio::test]
async fn what_is_not_offered_is_refused_in_words() {
    let world = World::new().await;
    let client = world.client();
    for (body, status) in [
        (json!({"templateID": "nothing"}), 404),
        (json!({"templateID": "base:other"}), 404),
        (json!({}), 400),
        (json!({"templateID": "base", "timeout": -1}), 400),
        (json!({"templateID": "base", "timeout": "soon"}), 400),
        (json!({"templateID": "base", "mcp": {}}), 400),
        (json!({"templateID": "base", "volumeMounts": [{"name": "v", "path": "/v"}]}), 400),
        (json!({"templateID": "base", "metadata": {"k": "x".repeat(300)}}), 400),
        (json!({"templateID": "base", "metadata": {"sandstorm.e2b/private": "no"}}), 400),
        (json!({"templateID": "base", "envVars": {"1A": ""}}), 400),
        (json!({"templateID": "base", "network": {"denyOut": ["192.0.2.1"]}}), 400),
    ] {
        client.post("/v2/sandboxes", body).await.refused(status);
    }
    client.post("/v3/templates", json!({"name": "x"})).await.refused(400);
    assert_eq!(client.get("/templates/aliases/base").await.status, 200);
    client.get("/templates/aliases/other").await.refused(404);
    client.delete("/templates/base").await.refused(404);
    client.get("/sandboxes/NO").await.refused(400);
    assert_eq!(client.get("/health").await.status, 200);
}
