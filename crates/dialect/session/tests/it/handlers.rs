//! Handlers: the shapes of what can go wrong, and that nothing is left behind.

use sandstorm_control::server::SandboxQuery;
use serde_json::{Value, json};

use crate::world::{World, settings};

fn coded(detail: &Value, code: &str) {
    let mut names: Vec<_> = detail.as_object().unwrap().keys().cloned().collect();
    names.sort();
    assert_eq!(names, ["description", "error_code", "error_detail", "solution"]);
    assert_eq!(detail["error_code"], code, "{detail}");
}

#[tokio::test]
async fn without_python_there_is_no_executor() {
    let world = World::with(sandstorm_dialect_session::SessionSettings {
        python: "python3".to_owned(),
        ..settings()
    })
    .await;
    let answer =
        world.client().post("/v2/execute_code", json!({"handler_code": "def handler(event): pass"})).await;
    coded(&answer.refused(503), "Sandbox.NotInitialized");
    let caller = world.control.developer();
    let left = world.control.sandboxes(&caller, SandboxQuery::default()).await.unwrap();
    assert!(left.items.is_empty(), "{:?}", left.items);
}

#[tokio::test]
async fn a_process_that_leaves_no_report_is_an_exception() {
    // The stand-in for Python ends at once, with a complaint.
    let world = World::new().await;
    let answer =
        world.client().post("/v2/execute_code", json!({"handler_code": "def handler(event): pass"})).await;
    let detail = answer.refused(500);
    coded(&detail, "Sandbox.ExecException");
    assert!(detail["error_detail"].as_str().unwrap().contains("exit code 1"), "{detail}");
    let caller = world.control.developer();
    let left = world.control.sandboxes(&caller, SandboxQuery::default()).await.unwrap();
    assert!(left.items.is_empty(), "{:?}", left.items);
}

#[tokio::test]
async fn parameters_are_looked_at_first() {
    let world = World::new().await;
    let client = world.client();
    for body in [
        json!({"handler_code": ""}),
        json!({"handler_code": "print(1)"}),
        json!({"handler_code": "handler", "event": {"__timeout": "soon"}}),
        json!({"handler_code": "handler", "event": {"__timeout": []}}),
    ] {
        coded(&client.post("/v2/execute_code", body).await.refused(400), "Sandbox.InvalidParameter");
    }
    let wrong = client.post("/v2/execute_code", json!({"event": [], "context": "x"})).await.invalid();
    assert_eq!(
        wrong,
        [
            (json!(["body", "handler_code"]), json!("missing")),
            (json!(["body", "event"]), json!("dict_type")),
            (json!(["body", "context"]), json!("dict_type")),
        ]
    );
}
