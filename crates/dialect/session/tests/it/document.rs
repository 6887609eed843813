//! The description of the API and the API say the same.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::world::World;

const ROUTES: &str = include_str!("../../src/router.rs");

/// Paths of the routes as the source writes them. A second form with a slash at the end is not described apart.
fn routed() -> BTreeSet<String> {
    let after = ROUTES.split(".route(\"").skip(1);
    let paths = after.map(|text| text.split('"').next().unwrap().replace("{*", "{"));
    paths.filter(|path| !path.ends_with('/')).map(|path| format!("/workspace/se{path}")).collect()
}

#[tokio::test]
async fn every_route_is_described_and_every_description_is_a_route() {
    let world = World::new().await;
    let client = world.client();
    let document = client.get("/api.json").await.json();
    let described = document["paths"].as_object().unwrap();
    assert_eq!(described.keys().cloned().collect::<BTreeSet<_>>(), routed());
    for (path, methods) in described {
        let path =
            path.strip_prefix("/workspace/se").unwrap().replace("{session_id}", "s").replace("{path}", "p");
        for method in methods.as_object().unwrap().keys() {
            let answer = client.call(&method.to_uppercase(), &path, "", Vec::new()).await;
            let unknown = answer.status.as_u16() == 405
                || (answer.status.as_u16() == 404 && answer.json()["detail"] == "Not Found");
            assert!(!unknown, "{method} {path}: {}", answer.status);
        }
    }
}

#[tokio::test]
async fn the_document_holds_together() {
    let world = World::new().await;
    let document = world.client().get("/api.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    let mut references = Vec::new();
    gather(&document, &mut references);
    assert!(references.len() > 20);
    for reference in references {
        let place = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(place).is_some(), "{reference}");
    }
}

fn gather(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            references.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| gather(value, references));
        }
        Value::Array(items) => items.iter().for_each(|item| gather(item, references)),
        _ => {}
    }
}
