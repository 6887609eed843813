//! Pages that call this API.

use axum::body::Body;
use http::Request;
use serde_json::json;

use crate::world::{Answer, Client, ENVD, INTERPRETER, LISTENS, World};

const PAGE: &str = "https://app.test";

/// What a browser asks before it sends a request of a page.
async fn preflight(client: &Client, host: &str, path: &str, names: &str) -> Answer {
    let request = Request::options(path)
        .header("host", host)
        .header("origin", PAGE)
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", names);
    client.send(request.body(Body::empty()).unwrap()).await
}

fn assert_welcome(answer: &Answer, names: &str) {
    assert_eq!((answer.status.as_u16(), answer.text().as_str()), (204, ""));
    assert_eq!(answer.headers["access-control-allow-origin"], "*");
    assert_eq!(answer.headers["access-control-allow-headers"], names);
    let methods = answer.headers["access-control-allow-methods"].to_str().unwrap();
    assert!(["GET", "POST", "PUT", "DELETE"].iter().all(|method| methods.contains(method)), "{methods}");
    assert!(!answer.headers.contains_key("access-control-allow-credentials"));
}

#[tokio::test]
async fn a_preflight_needs_no_key_anywhere() {
    let client = World::new().await.nobody();
    let sandbox = "aaaaaaaaaaaaaaaaaaaaaaaaaa";
    for (host, path, names) in [
        ("localhost:7300".to_owned(), "/v2/sandboxes", "content-type,x-api-key,lang"),
        ("localhost:7300".to_owned(), "/sandboxes/x/timeout", "x-api-key"),
        // On one host for everything nothing but the path, or what will be sent, says what it is for.
        ("localhost:7300".to_owned(), "/process.Process/Start", "authorization,connect-protocol-version"),
        ("localhost:7300".to_owned(), "/execute", "content-type,e2b-sandbox-id,x-access-token"),
        ("localhost:7300".to_owned(), "/health", "e2b-sandbox-id,e2b-sandbox-port"),
        (format!("{ENVD}-{sandbox}.sandbox.test"), "/files?path=a", "x-access-token,x-metadata-author"),
        (format!("{INTERPRETER}-{sandbox}.sandbox.test"), "/contexts", "content-type"),
    ] {
        assert_welcome(&preflight(&client, &host, path, names).await, names);
    }
    // What is no list of names is not given back.
    let odd = preflight(&client, "localhost", "/v2/sandboxes", "a\"b").await;
    assert!(!odd.headers.contains_key("access-control-allow-headers"));
}

#[tokio::test]
async fn a_preflight_wakes_nothing() {
    let world = World::new().await;
    let client = world.client();
    let new =
        json!({"templateID": "base", "timeout": 60, "autoPause": true, "autoResume": {"enabled": true}});
    let id = client.post("/v2/sandboxes", new).await.json()["sandboxID"].as_str().unwrap().to_owned();
    assert_eq!(client.post(&format!("/sandboxes/{id}/pause"), json!({})).await.status, 204);
    for (host, path) in [
        (format!("{ENVD}-{id}.localhost"), "/process.Process/Start".to_owned()),
        (format!("{INTERPRETER}-{id}.localhost"), "/execute".to_owned()),
        ("localhost".to_owned(), format!("/v2/sandboxes/{id}/connect")),
    ] {
        assert_welcome(&preflight(&world.nobody(), &host, &path, "x-access-token").await, "x-access-token");
        assert_eq!(client.get(&format!("/sandboxes/{id}")).await.json()["state"], "paused", "{path}");
    }
    // What is no preflight is no way around a token.
    let plain = Request::options("/files?path=a").header("host", format!("{ENVD}-{id}.localhost"));
    world.nobody().send(plain.body(Body::empty()).unwrap()).await.refused(401);
}

#[tokio::test]
async fn a_page_reads_answers_of_ours_and_programs_decide_about_theirs() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let listed = client.get("/v2/sandboxes?limit=1").await;
    assert_eq!(listed.headers["access-control-allow-origin"], "*");
    let shown = listed.headers["access-control-expose-headers"].to_str().unwrap();
    assert!(shown.contains("x-next-token") && shown.contains("retry-after"), "{shown}");
    for (token, status) in [(made.token.as_str(), 200), ("wrong", 401)] {
        let request = client.inside("POST", &made, ENVD, "/process.Process/List");
        let mut request = request.header("content-type", "application/json").body(Body::from("{}")).unwrap();
        request.headers_mut().insert("x-access-token", token.parse().unwrap());
        let answer = client.send(request).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.headers["access-control-allow-origin"], "*", "{status}");
    }
    let host = format!("{LISTENS}-{}.localhost", made.id);
    let theirs = preflight(&client, &host, "/", "content-type").await;
    assert_eq!(theirs.status, 200, "the program answers");
    assert!(!theirs.headers.contains_key("access-control-allow-origin"));
}
