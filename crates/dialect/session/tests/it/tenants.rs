//! Walls between tenants, and scopes of keys.

use sandstorm_control::server::Scope;
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn nobody_meets_the_sessions_of_others() {
    let world = World::new().await;
    let (owner, stranger) =
        (world.client(), world.stranger("stranger", &[Scope::Sandbox, Scope::Files]).await);
    owner.post("/create/s", json!({"content": "secret", "filename": "a.txt"})).await.fields();
    assert_eq!(stranger.get("/workspaces").await.fields(), json!({"workspaces": {}}));
    assert_eq!(stranger.get("/status/s").await.fields()["exists"], false);
    stranger.delete("/session/s").await.fields();
    // The same name is another session for another tenant.
    assert_eq!(stranger.get("/download/s/a.txt").await.refused(404), "File not found");
    stranger.post("/create/s", json!({"content": "mine", "filename": "a.txt"})).await.fields();
    let forced = stranger.post("/cleanup-all", json!({"force": true})).await.fields();
    assert_eq!(forced["total"], 1);
    assert_eq!(owner.get("/download/s/a.txt").await.body, b"secret");
}

#[tokio::test]
async fn a_key_needs_the_scopes() {
    let world = World::new().await;
    let none = world.stranger("runner", &[Scope::Run]).await;
    for (method, path) in
        [("GET", "/status/s"), ("GET", "/workspaces"), ("GET", "/download/s/a"), ("DELETE", "/session/s")]
    {
        let detail = none.call(method, path, "", Vec::new()).await.refused(403);
        assert_eq!(detail["type"], "SandboxError", "{method} {path}");
    }
    none.post("/execute/s", json!({"command": "true"})).await.refused(403);
    none.upload("/upload/s", "file", Some("a"), b"x").await.refused(403);
    let handler = none.post("/v2/execute_code", json!({"handler_code": "handler"})).await.refused(403);
    assert_eq!(handler["error_code"], "Sandbox.InvalidParameter");
    let without_files = world.stranger("without files", &[Scope::Sandbox]).await;
    without_files.post("/create/s", json!({"content": "", "filename": "a"})).await.refused(403);
}
