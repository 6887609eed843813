//! Saved sandboxes, which are templates to E2B's clients.

use serde_json::{Value, json};

use crate::world::{Client, World};

async fn save(client: &Client, sandbox: &str, body: Value) -> Value {
    let saved = client.post(&format!("/sandboxes/{sandbox}/snapshots"), body).await;
    assert_eq!(saved.status, 201, "{}", saved.text());
    saved.json()
}

async fn ids(client: &Client, query: &str) -> Vec<Value> {
    let listed = client.get(&format!("/snapshots{query}")).await;
    assert_eq!(listed.status, 200, "{}", listed.text());
    listed.json().as_array().unwrap().iter().map(|row| row["snapshotID"].clone()).collect()
}

#[tokio::test]
async fn one_is_made_listed_started_from_and_removed() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let saved = save(&client, &made.id, json!({})).await;
    let id = saved["snapshotID"].as_str().unwrap();
    assert_eq!((id.len(), &saved["names"]), (31, &json!([])));
    let named = save(&client, &made.id, json!({"name": "golden:default", "memory": false})).await;
    assert_eq!(named["names"], json!(["golden"]));
    assert_eq!(ids(&client, "").await, [named["snapshotID"].clone(), saved["snapshotID"].clone()]);
    assert_eq!(ids(&client, &format!("?sandboxID={}", made.id)).await.len(), 2);
    assert_eq!(ids(&client, "?name=golden").await, [named["snapshotID"].clone()]);
    for none in ["?sandboxID=aaaaaaaaaaaaaaaaaaaaaaaaaa", "?sandboxID=no", "?name=other", "?name=golden:v2"] {
        assert!(ids(&client, none).await.is_empty(), "{none}");
    }
    let page = client.get("/snapshots?limit=1").await;
    let next = page.headers["x-next-token"].to_str().unwrap().to_owned();
    assert_eq!(ids(&client, &format!("?limit=1&nextToken={next}")).await, [saved["snapshotID"].clone()]);
    client.get("/snapshots?limit=1&nextToken=forged").await.refused(400);
    client.get("/snapshots?limit=101").await.refused(400);
    for template in [id, "golden", "golden:latest"] {
        let started = client.post("/v2/sandboxes", json!({"templateID": template, "timeout": 60})).await;
        assert_eq!(started.status, 201, "{template}: {}", started.text());
        let started = started.json();
        let path = format!("/sandboxes/{}", started["sandboxID"].as_str().unwrap());
        let detail = client.get(&path).await.json();
        let shown = if template == id { id } else { named["snapshotID"].as_str().unwrap() };
        assert_eq!((&started["templateID"], &detail["templateID"]), (&json!(shown), &json!(shown)));
        assert_eq!(detail["metadata"], json!({}));
        assert_eq!(client.delete(&path).await.status, 204);
    }
    for template in [id, "golden"] {
        assert_eq!(client.delete(&format!("/templates/{template}")).await.status, 204);
        client.delete(&format!("/templates/{template}")).await.refused(404);
        client.post("/v2/sandboxes", json!({"templateID": template})).await.refused(404);
    }
    assert!(ids(&client, "").await.is_empty());
}

#[tokio::test]
async fn one_of_the_interpreter_is_one_of_the_interpreter() {
    let world = World::new().await;
    let client = world.client();
    let new = json!({"templateID": "code-interpreter-v1", "timeout": 60});
    let made = client.post("/v2/sandboxes", new).await.json();
    let first = save(&client, made["sandboxID"].as_str().unwrap(), json!({})).await;
    // One that was started from one is saved again.
    let again = client.post("/v2/sandboxes", json!({"templateID": first["snapshotID"]})).await.json();
    let second = save(&client, again["sandboxID"].as_str().unwrap(), json!({})).await;
    let page = world.control.snapshots(&world.control.developer(), Default::default()).await.unwrap();
    assert_eq!(page.items[0].id.to_string(), second["snapshotID"].as_str().unwrap());
    assert_eq!(page.items[0].spec.labels.get("sandstorm.e2b/origin"), Some("code-interpreter-v1"));
}

#[tokio::test]
async fn what_cannot_be_saved_is_refused() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let path = format!("/sandboxes/{}/snapshots", made.id);
    for body in [
        json!({"memory": true}),
        json!({"name": "base"}),
        json!({"name": "team/golden"}),
        json!({"name": "golden:v2"}),
        json!({"name": "Golden"}),
        json!({"name": "snap_bbbbbbbbbbbbbbbbbbbbbbbbba"}),
    ] {
        client.post(&path, body).await.refused(400);
    }
    client.post("/sandboxes/aaaaaaaaaaaaaaaaaaaaaaaaaa/snapshots", json!({})).await.refused(404);
    assert_eq!(client.post(&format!("/sandboxes/{}/pause", made.id), json!({})).await.status, 204);
    client.post(&path, json!({})).await.refused(409);
    assert!(ids(&client, "").await.is_empty());
}

#[tokio::test]
async fn another_tenants_is_not_there() {
    let world = World::new().await;
    let (client, stranger) = (world.client(), world.stranger().await);
    let made = client.create().await;
    let saved = save(&client, &made.id, json!({"name": "golden"})).await;
    let id = saved["snapshotID"].as_str().unwrap();
    for template in [id, "golden"] {
        stranger.post("/v2/sandboxes", json!({"templateID": template})).await.refused(404);
        stranger.delete(&format!("/templates/{template}")).await.refused(404);
    }
    stranger.post(&format!("/sandboxes/{}/snapshots", made.id), json!({})).await.refused(404);
    assert!(ids(&stranger, "").await.is_empty());
    assert!(ids(&stranger, &format!("?sandboxID={}", made.id)).await.is_empty());
    assert_eq!(ids(&client, "").await.len(), 1);
}
