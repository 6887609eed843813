//! Requests that are sent twice.

use serde_json::json;

use crate::world::{Reply, World};

async fn create(world: &World, key: &str, owner: &str, body: &str) -> Reply {
    let request = world.request("POST", "/v1/sandboxes").header("x-api-key", owner);
    let request = request.header("content-type", "application/json").header("idempotency-key", key);
    world.send(request, body.to_owned()).await
}

#[tokio::test]
async fn a_repeated_request_gets_the_first_answer() {
    let world = World::new().await;
    let body = r#"{"enforcement": "best_effort"}"#;
    let first = create(&world, "k1", &world.key, body).await;
    assert_eq!(first.status, 201, "{}", first.text());
    let again = create(&world, "k1", &world.key, body).await;
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    assert_eq!(again.headers["location"], first.headers["location"]);
    let other = create(&world, "k1", &world.key, r#"{"enforcement": "best_effort", "user": "root"}"#).await;
    assert_eq!(other.refused(409)["code"], "conflict");
    let stranger = create(&world, "k1", &world.stranger, body).await;
    assert_eq!(stranger.status, 201);
    assert_ne!(stranger.json()["id"], first.json()["id"]);
    for bad in ["", "a b", &"x".repeat(256)] {
        create(&world, bad, &world.key, body).await.refused(400);
    }
    let listed = world.call("GET", "/v1/sandboxes", "").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_stream_takes_no_key() {
    let world = World::new().await;
    let request =
        world.request("POST", "/v1/runs").header("x-api-key", &world.key).header("idempotency-key", "k");
    let request = request.header("content-type", "application/json").header("accept", "text/event-stream");
    world.send(request, r#"{"language": "bash", "code": ""}"#).await.refused(400);
}

#[tokio::test]
async fn requests_at_once_make_one() {
    let world = World::new().await;
    let body = r#"{"enforcement": "best_effort"}"#;
    let all = futures_util::future::join_all((0..10).map(|_| create(&world, "k", &world.key, body))).await;
    assert!(all.iter().all(|reply| reply.json()["id"] == all[0].json()["id"]));
    let listed = world.call("GET", "/v1/sandboxes", "").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn one_key_can_be_used_in_several_sandboxes() {
    let world = World::new().await;
    let mut said = Vec::new();
    for _ in 0..2 {
        let path = format!("/v1/sandboxes/{}/exec", world.sandbox().await);
        let request = world.request("POST", &path).header("x-api-key", &world.key);
        let request = request.header("content-type", "application/json").header("idempotency-key", "k");
        said.push(world.send(request, r#"{"command": "echo hi"}"#).await.json());
    }
    assert_ne!(said[0]["id"], said[1]["id"]);
    assert_eq!(said[0]["stdout"], json!("hi\n"));
}
