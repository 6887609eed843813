//! Living sandboxes that go on in others, as clients see it.

use sandstorm_control::server::{Quota, Settings};
use sandstorm_gateway::{GatewaySettings, ServeLimits};
use serde_json::{Value, json};

use crate::world::{PATIENCE, World, control_settings};

async fn fork(world: &World, id: &str, body: &Value) -> crate::world::Reply {
    world.call("POST", &format!("/v1/sandboxes/{id}/fork"), &body.to_string()).await
}

#[tokio::test]
async fn a_fork_has_the_files_and_names_what_it_has_not() {
    let world = World::new().await;
    assert_eq!(world.call("GET", "/v1/version", "").await.json()["capabilities"]["live_fork"], true);
    let id = world.sandbox().await;
    let place = format!("/v1/sandboxes/{id}");
    let put = world.request("PUT", &format!("{place}/files?path=kept")).header("x-api-key", &world.key);
    assert!(world.send(put, "then").await.status.is_success());
    let program = r#"{"command": "sleep 60", "background": true}"#;
    let program = world.call("POST", &format!("{place}/exec"), program).await.json();
    let wanted = json!({ "count": 2, "labels": { "of": "two" }, "lifetime": "90s" });
    let made = fork(&world, &id, &wanted).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let forks = made.json()["forks"].as_array().unwrap().clone();
    assert_eq!(forks.len(), 2);
    for fork in &forks {
        let sandbox = &fork["sandbox"];
        assert_eq!((&sandbox["state"], &sandbox["lifetime"]), (&json!("ready"), &json!(90)));
        assert_eq!(sandbox["labels"], json!({ "of": "two" }));
        assert_eq!((&fork["contexts"], &fork["problem"]), (&json!([]), &Value::Null));
        let left = &fork["not_carried"][0];
        assert_eq!(left["what"], format!("exec {}", program["id"].as_str().unwrap()));
        assert!(left["why"].as_str().unwrap().contains("stays with the source"), "{left}");
        let read = format!("/v1/sandboxes/{}/files?path=kept", sandbox["id"].as_str().unwrap());
        assert_eq!(world.call("GET", &read, "").await.text(), "then");
    }
    assert_ne!(forks[0]["sandbox"]["id"], forks[1]["sandbox"]["id"]);
    let listed = world.call("GET", "/v1/sandboxes?label=of=two", "").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn refusals_have_their_codes() {
    let rules = control_settings();
    let rules = Settings { quota: Quota { sandboxes: 3, ..rules.quota }, ..rules };
    let world = World::with(GatewaySettings::default(), ServeLimits::default(), rules).await;
    let id = world.sandbox().await;
    for bad in
        [json!({ "count": 0 }), json!({ "count": 101 }), json!({ "memory": 1 }), json!({ "lifetime": 0 })]
    {
        fork(&world, &id, &bad).await.refused(400);
    }
    assert_eq!(fork(&world, &id, &json!({ "count": 3 })).await.refused(429)["code"], "quota");
    let stranger = world
        .request("POST", &format!("/v1/sandboxes/{id}/fork"))
        .header("x-api-key", &world.stranger)
        .header("content-type", "application/json");
    world.send(stranger, "{}").await.refused(404);
    world.call("POST", &format!("/v1/sandboxes/{id}/pause"), "").await;
    assert_eq!(fork(&world, &id, &json!({})).await.refused(409)["code"], "conflict");
    world.call("POST", &format!("/v1/sandboxes/{id}/resume"), "").await;
    let listed = world.call("GET", "/v1/sandboxes", "").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "a refused fork left a sandbox");
    world.provider.forget_how_to_fork();
    let unable = fork(&world, &id, &json!({})).await.refused(501);
    assert!(unable["detail"].as_str().unwrap().contains("live_fork"), "{unable}");
    assert_eq!(world.call("GET", "/v1/version", "").await.json()["capabilities"]["live_fork"], false);
}

#[tokio::test]
async fn one_key_is_one_fork() {
    let world = World::new().await;
    let id = world.sandbox().await;
    let ask = async || {
        let request =
            world.request("POST", &format!("/v1/sandboxes/{id}/fork")).header("x-api-key", &world.key);
        let request = request.header("content-type", "application/json").header("idempotency-key", "once");
        tokio::time::timeout(PATIENCE, world.send(request, "{}")).await.unwrap()
    };
    let (first, again) = (ask().await, ask().await);
    assert_eq!((first.status, &first.body), (again.status, &again.body));
    assert_eq!(again.headers["idempotency-replayed"], "true");
    let listed = world.call("GET", "/v1/sandboxes", "").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
}
