//! What is another's is answered as what never was.

use axum::body::Body;
use http::Request;
use serde_json::json;

use crate::world::{Answer, Client, ENVD, INTERPRETER, Made, World};

const NEVER: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaa";

async fn ask(client: &Client, method: &str, path: &str) -> Answer {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    client.send(request.body(Body::from(json!({"timeout": 60}).to_string())).unwrap()).await
}

#[tokio::test]
async fn another_tenant_finds_nothing_on_the_control_plane() {
    let world = World::new().await;
    let made = world.client().create().await;
    let stranger = world.stranger().await;
    for (method, path) in [
        ("GET", "/sandboxes/ID"),
        ("DELETE", "/sandboxes/ID"),
        ("POST", "/sandboxes/ID/connect"),
        ("POST", "/v2/sandboxes/ID/connect"),
        ("POST", "/sandboxes/ID/pause"),
        ("POST", "/sandboxes/ID/resume"),
        ("POST", "/sandboxes/ID/timeout"),
        ("POST", "/sandboxes/ID/refreshes"),
        ("POST", "/sandboxes/ID/fork"),
        ("POST", "/sandboxes/ID/snapshots"),
        ("PUT", "/sandboxes/ID/network"),
        ("GET", "/sandboxes/ID/metrics"),
        ("GET", "/sandboxes/ID/logs"),
        ("GET", "/v2/sandboxes/ID/logs"),
    ] {
        let foreign = ask(&stranger, method, &path.replace("ID", &made.id)).await;
        let never = ask(&stranger, method, &path.replace("ID", NEVER)).await;
        let same = foreign.text().replace(&made.id, NEVER);
        assert_eq!((foreign.status.as_u16(), same), (404, never.text()), "{method} {path}");
        assert_eq!(foreign.headers, never.headers, "{method} {path}");
    }
    assert_eq!(stranger.get("/v2/sandboxes").await.json(), json!([]));
    let metrics = stranger.get(&format!("/sandboxes/metrics?sandbox_ids={}", made.id)).await;
    assert_eq!(metrics.json(), json!({"sandboxes": {}}));
    assert_eq!(world.client().get(&format!("/sandboxes/{}", made.id)).await.status, 200);
}

/// With the wrong token a sandbox that lives and one that never was are the same.
#[tokio::test]
async fn a_token_opens_its_own_sandbox_only() {
    let world = World::new().await;
    let client = world.client();
    let (made, other) = (client.create().await, client.create().await);
    for (port, path) in [
        (ENVD, "/health"),
        (ENVD, "/metrics"),
        (ENVD, "/envs"),
        (ENVD, "/files?path=/etc/passwd"),
        (ENVD, "/process.Process/List"),
        (ENVD, "/filesystem.Filesystem/Stat"),
        (INTERPRETER, "/contexts"),
        (INTERPRETER, "/execute"),
    ] {
        for token in [&other.token, &made.traffic, "", "x"] {
            let at = |id: &str| Made { id: id.to_owned(), token: token.to_owned(), traffic: String::new() };
            let send = async |made: Made| {
                let request =
                    client.inside("POST", &made, port, path).header("content-type", "application/json");
                client.send(request.body(Body::from("{}")).unwrap()).await
            };
            let (living, never) = (send(at(&made.id)).await, send(at(NEVER)).await);
            assert_eq!(living, never, "{path} {token}");
            assert!(matches!(living.status.as_u16(), 401 | 403), "{path}: {}", living.status);
        }
        let without = Request::post(path).header("e2b-sandbox-id", &made.id).header("e2b-sandbox-port", port);
        let refused = client.send(without.body(Body::empty()).unwrap()).await;
        assert!(matches!(refused.status.as_u16(), 401 | 403), "{path}: {}", refused.status);
    }
}

#[tokio::test]
async fn signatures_of_others_and_of_nobody_are_the_same() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let at = |id: &str| {
        // The form of a signature, and of none of them.
        let wrong = "A".repeat(43);
        let request = Request::get(format!("/files?path=/etc/passwd&signature=v1_{wrong}"));
        request.header("e2b-sandbox-id", id).header("e2b-sandbox-port", ENVD).body(Body::empty()).unwrap()
    };
    let (living, never) = (client.send(at(&made.id)).await, client.send(at(NEVER)).await);
    assert_eq!(living, never);
    assert_eq!(living.refused(401), "invalid signature");
}

#[tokio::test]
async fn with_its_token_a_sandbox_that_ended_is_said_to_have() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    assert_eq!(client.delete(&format!("/sandboxes/{}", made.id)).await.status, 204);
    let request = client.inside("GET", &made, ENVD, "/health").body(Body::empty()).unwrap();
    let gone = client.send(request).await;
    let body = json!({"sandboxId": made.id, "message": "The sandbox was not found", "code": 502});
    assert_eq!((gone.status.as_u16(), gone.json()), (502, body));
}

#[tokio::test]
async fn processes_and_watchers_of_another_sandbox_are_not_found() {
    let world = World::new().await;
    let client = world.client();
    let (made, other) = (client.create().await, client.create().await);
    let watch =
        client.rpc(&made, "/filesystem.Filesystem/CreateWatcher", json!({"path": "/home/user"})).await;
    if watch.status == 200 {
        let id = watch.json()["watcherId"].clone();
        for method in ["GetWatcherEvents", "RemoveWatcher"] {
            let path = format!("/filesystem.Filesystem/{method}");
            let foreign = client.rpc(&other, &path, json!({"watcherId": id})).await;
            assert_eq!(foreign.json()["code"], "not_found");
        }
    }
    let start = json!({"process": {"cmd": "/bin/sh", "args": ["-c", "echo"]}, "stdin": false, "tag": "t"});
    let (messages, _) = client.stream(&made, "/process.Process/Start", start).await;
    let pid = messages[0]["event"]["start"]["pid"].clone();
    for selector in [json!({"pid": pid}), json!({"tag": "t"})] {
        let (_, end) = client.stream(&other, "/process.Process/Connect", json!({"process": selector})).await;
        assert_eq!(end["error"]["code"], "not_found");
    }
}
