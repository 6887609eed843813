//! The control plane.

use axum::body::Body;
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::world::{ENVD, LISTENS, Made, World};

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
async fn a_list_from_a_moment_on_has_what_started_then() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let started = client.get(&format!("/sandboxes/{}", made.id)).await.json()["startedAt"].clone();
    let started = started.as_str().unwrap();
    let from = async |moment: &str| {
        let page = client.get(&format!("/v2/sandboxes?startedAfter={moment}")).await.json();
        page.as_array().unwrap().len()
    };
    assert_eq!(from(started).await, 1);
    // As Python writes it.
    assert_eq!(from(&started.replace('Z', "000%2B00:00")).await, 1);
    assert_eq!(from("2999-01-01T00:00:00Z").await, 0);
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
    let long = client.post(&format!("{path}/timeout"), json!({"timeout": 86_401})).await;
    assert_eq!(long.refused(400), "Timeout cannot be greater than 24 hours");
}

#[tokio::test]
async fn what_is_paused_without_memory_has_its_files_and_nothing_that_ran() {
    let world = World::new().await;
    let client = world.client();
    let new = json!({"templateID": "base", "timeout": 60, "autoPause": true, "autoPauseMemory": false});
    let made = client.post("/v2/sandboxes", new).await.json();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    let made =
        Made { id: text("sandboxID"), token: text("envdAccessToken"), traffic: text("trafficAccessToken") };
    let path = format!("/sandboxes/{}", made.id);
    let write = client
        .inside("POST", &made, ENVD, "/files?path=kept")
        .header("content-type", "application/octet-stream");
    assert_eq!(client.send(write.body(Body::from("x")).unwrap()).await.status, 200);
    // By hand, and at the end of its time.
    for (ask, body) in [("pause", json!({"memory": false})), ("timeout", json!({"timeout": 0}))] {
        let start = json!({"process": {"cmd": "/bin/sh", "args": ["-c", "sleep 600"]}, "stdin": false});
        let request = client.streaming(&made, "/process.Process/Start", start);
        let mut pieces = client.ask(request).await.into_body().into_data_stream();
        pieces.next().await.unwrap().unwrap();
        assert_eq!(client.post(&format!("{path}/{ask}"), body).await.status, 204, "{ask}");
        assert!(
            pieces.collect::<Vec<_>>().await.last().unwrap().is_err(),
            "{ask}: the program ended with its stream"
        );
        let detail = client.get(&path).await.json();
        assert_eq!(
            (&detail["state"], &detail["lifecycle"]["onTimeout"]),
            (&json!("paused"), &json!("pause"))
        );
        let rebooted = client.post(&format!("/v2{path}/connect"), json!({"memory": false})).await;
        assert!(rebooted.refused(400).contains("memory: false"));
        assert_eq!(client.post(&format!("{path}/connect"), json!({"timeout": 60})).await.status, 201);
        let running = client.rpc(&made, "/process.Process/List", json!({})).await.json();
        assert_eq!(running, json!({"processes": []}), "{ask}");
        let read = client.inside("GET", &made, ENVD, "/files?path=kept").body(Body::empty()).unwrap();
        assert_eq!(client.send(read).await.text(), "x", "{ask}");
    }
    for odd in [
        json!({"templateID": "base", "autoPauseMemory": false}),
        json!({"templateID": "base", "autoPause": true, "autoPauseMemory": false, "autoResume": {"enabled": true}}),
    ] {
        client.post("/v2/sandboxes", odd).await.refused(400);
    }
}

#[tokio::test]
async fn no_time_left_is_the_end_at_once() {
    let world = World::new().await;
    let client = world.client();
    let killed = client.create().await;
    let path = format!("/sandboxes/{}", killed.id);
    world.stranger().await.post(&format!("{path}/timeout"), json!({"timeout": 0})).await.refused(404);
    assert_eq!(client.post(&format!("{path}/timeout"), json!({"timeout": 0})).await.status, 204);
    client.get(&path).await.refused(404);
    client.post(&format!("{path}/timeout"), json!({"timeout": 0})).await.refused(404);
    let paused = json!({"templateID": "base", "timeout": 60, "autoPause": true});
    let paused = client.post("/v2/sandboxes", paused).await.json();
    let path = format!("/sandboxes/{}", paused["sandboxID"].as_str().unwrap());
    for _ in 0..2 {
        assert_eq!(client.post(&format!("{path}/timeout"), json!({"timeout": 0})).await.status, 204);
        assert_eq!(client.get(&path).await.json()["state"], "paused");
    }
    assert_eq!(client.post(&format!("{path}/connect"), json!({"timeout": 60})).await.status, 201);
    assert_eq!(client.get(&path).await.json()["state"], "running");
}

#[tokio::test]
async fn the_domain_leads_back_to_this_server() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let path = format!("/sandboxes/{}", made.id);
    for (host, wanted) in [
        ("127.0.0.1:7300", "localhost:7300"),
        ("api.sandbox.test:7300", "sandbox.test:7300"),
        ("sandbox.test", "sandbox.test"),
    ] {
        let ask = |method: &str, path: &str, body: Value| {
            let request = http::Request::builder().method(method).uri(path).header("host", host);
            client.send(request.body(axum::body::Body::from(body.to_string())).unwrap())
        };
        let new = ask("POST", "/v2/sandboxes", json!({"templateID": "base", "timeout": 60})).await.json();
        assert_eq!(new["domain"], wanted);
        let connected = ask("POST", &format!("{path}/connect"), json!({"timeout": 60})).await.json();
        assert_eq!(connected["domain"], wanted);
        assert_eq!(ask("GET", &path, json!({})).await.json()["domain"], wanted);
        // And it does: by that host the sandbox is found.
        let id = new["sandboxID"].as_str().unwrap();
        let health = http::Request::get("/health").header("host", format!("49983-{id}.{wanted}"));
        let health = health.header("x-access-token", new["envdAccessToken"].as_str().unwrap());
        assert_eq!(client.send(health.body(axum::body::Body::empty()).unwrap()).await.status, 204);
        client.delete(&format!("/sandboxes/{id}")).await;
    }
}

#[tokio::test]
async fn programs_see_the_host_that_their_owner_chose() {
    let world = World::new().await;
    let client = world.client();
    let network = json!({"maskRequestHost": "${PORT}-app.example.com"});
    let made = client.post("/v2/sandboxes", json!({"templateID": "base", "network": network})).await.json();
    let plain = client.create().await;
    let id = made["sandboxID"].as_str().unwrap();
    for (id, wanted) in [(id, "8080-app.example.com"), (&plain.id, "")] {
        let request = http::Request::get("/").header("host", format!("{LISTENS}-{id}.localhost"));
        let answer = client.send(request.body(axum::body::Body::empty()).unwrap()).await;
        assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, wanted));
    }
    let detail = client.get(&format!("/sandboxes/{id}")).await.json();
    assert_eq!(detail["network"]["maskRequestHost"], "${PORT}-app.example.com");
    assert_eq!(detail["metadata"], json!({}));
}

/// The server of E2B does not start a gateway either: its client does, in the sandbox.
#[tokio::test]
async fn an_mcp_gateway_is_the_templates() {
    let world = World::new().await;
    let client = world.client();
    let made = client.post("/v2/sandboxes", json!({"templateID": "base", "mcp": {"github": {}}})).await;
    assert_eq!(made.status, 201);
    let none =
        client.post("/v2/sandboxes", json!({"templateID": "mcp-gateway", "mcp": {"github": {}}})).await;
    let words = none.refused(404);
    assert!(words.contains("dialects.e2b.templates") && words.contains("/mcp"), "{words}");
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
    // Those that were started at that moment count, too.
    let starts = async |id: &str| client.get(&format!("/sandboxes/{id}")).await.json()["startedAt"].clone();
    let last = client.get("/v2/sandboxes?limit=1").await.json()[0]["sandboxID"].as_str().unwrap().to_owned();
    let since = starts(&last).await;
    let after = client.get(&format!("/v2/sandboxes?startedAfter={}", since.as_str().unwrap())).await.json();
    let after: Vec<_> = after.as_array().unwrap().iter().map(|row| row["sandboxID"].clone()).collect();
    assert!(after.contains(&json!(last)), "{after:?}");
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
        (json!({"templateID": "mcp-gateway", "mcp": {}}), 404),
        (json!({"templateID": "base", "volumeMounts": [{"name": "v", "path": "/v"}]}), 400),
        (json!({"templateID": "base", "metadata": {"k": "x".repeat(300)}}), 400),
        (json!({"templateID": "base", "metadata": {"sandstorm.e2b/private": "no"}}), 400),
        (json!({"templateID": "base", "envVars": {"1A": ""}}), 400),
        (json!({"templateID": "base", "network": {"denyOut": ["example.com"]}}), 400),
        (json!({"templateID": "base", "network": {"httpsPorts": [8443]}}), 400),
        (json!({"templateID": "base", "network": {"maskRequestHost": "a b"}}), 400),
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
