//! Sessions: made, looked at, ended.

use sandstorm_types::{ByteSize, Phase};
use serde_json::json;

use crate::world::{DAY, World};

#[tokio::test]
async fn a_session_is_made_once_and_ended_as_often_as_one_likes() {
    let world = World::new().await;
    let client = world.client();
    assert_eq!(client.get("/healthy").await.fields(), json!({"status": "success"}));

    let nothing = client.get("/status/s").await.fields();
    let wanted = json!({"id": "s", "exists": false, "created_at": null, "mount_point": null, "is_mounted": false, "files": []});
    assert_eq!(nothing, wanted);
    assert_eq!(client.get("/workspaces").await.fields(), json!({"workspaces": {}}));

    assert_eq!(client.post("/session/s", json!({})).await.fields(), json!({"session_id": "s"}));
    let twice = client.post("/session/s", json!({})).await.refused(409);
    assert_eq!(
        (&twice["type"], &twice["message"]),
        (&json!("SandboxError"), &json!("Session already exists"))
    );

    let status = client.get("/status/s").await.fields();
    assert_eq!((&status["exists"], &status["is_mounted"]), (&json!(true), &json!(true)));
    assert_eq!(status["mount_point"], "/workspace");
    assert!(status["created_at"].as_f64().unwrap() > 1.7e9);
    let listed = client.get("/workspaces").await.fields();
    assert_eq!(listed["workspaces"]["s"]["mount_point"], "/workspace");

    for _ in 0..2 {
        assert_eq!(client.delete("/session/s").await.fields(), json!({"status": "success"}));
    }
    assert_eq!(client.get("/status/s").await.fields()["exists"], false);
    client.post("/session/s", json!({"size": null})).await.fields();
}

#[tokio::test]
async fn limits_are_those_of_the_settings() {
    let world = World::new().await;
    world.client().post("/session/s", json!({"size": "64M"})).await.fields();
    let view =
        world.control.named_sandbox(&world.control.developer(), "session", "s").await.unwrap().unwrap();
    assert_eq!(view.spec.limits.disk, ByteSize::mib(64));
    // Files live in memory: the limit covers both.
    assert_eq!(view.spec.limits.memory, ByteSize::mib(512 + 64));
    assert_eq!((view.spec.limits.processes, view.spec.limits.cpu_time), (100, None));
    assert_eq!(view.spec.lifetime.after, DAY);
    assert_eq!(view.spec.lifetime.then, sandstorm_types::OnEnd::Delete);
    assert_eq!(view.spec.env.get("HOME"), Some("/workspace"));
    assert_eq!(view.spec.network, sandstorm_types::NetworkPolicy::None);
}

#[tokio::test]
async fn bad_requests_are_named_field_by_field() {
    let world = World::new().await;
    let client = world.client();
    let missing = client.call("POST", "/session/s", "", Vec::new()).await.invalid();
    assert_eq!(missing, [(json!(["body"]), json!("missing"))]);
    let plain = client.call("POST", "/session/s", "text/plain", b"{}".to_vec()).await.invalid();
    assert_eq!(plain, [(json!(["body"]), json!("model_attributes_type"))]);
    let broken =
        client.call("POST", "/session/s", "application/json", b"{\n\"a\" x".to_vec()).await.invalid();
    assert_eq!(broken, [(json!(["body", 7]), json!("json_invalid"))]);
    let both = client.post("/session/s", json!({"size": "much", "persistent": "maybe"})).await.invalid();
    assert_eq!(
        both,
        [
            (json!(["body", "size"]), json!("value_error")),
            (json!(["body", "persistent"]), json!("bool_parsing"))
        ]
    );
    client.post("/session/s", json!({"size": "1"})).await.refused(400);
    let long = client.get(&format!("/status/{}", "x".repeat(201))).await.invalid();
    assert_eq!(long, [(json!(["path", "session_id"]), json!("string_too_long"))]);
    assert_eq!(client.get("/status/%ff").await.refused(400), "the path of the request is not UTF-8");
    assert_eq!(client.get("/nothing").await.refused(404), "Not Found");
    assert_eq!(client.get("/session/s").await.refused(405), "Method Not Allowed");
    let large = vec![b' '; 33 * 1024 * 1024];
    client.call("POST", "/session/s", "application/json", large).await.refused(413);
    assert_eq!(client.get("/status/s").await.fields()["exists"], false);
}

#[tokio::test]
async fn ids_are_text_and_never_paths() {
    let world = World::new().await;
    let client = world.client();
    for id in ["..%2f..%2fetc", "%2e%2e", "a%20b", "%E4%BC%9A", "preview"] {
        client.post(&format!("/create/{id}"), json!({"content": id, "filename": "me.txt"})).await.fields();
    }
    for id in ["..%2f..%2fetc", "%2e%2e", "a%20b", "%E4%BC%9A", "preview"] {
        let mine = client.get(&format!("/download/{id}/me.txt")).await;
        assert_eq!(mine.body, id.as_bytes());
    }
    let listed = client.get("/workspaces").await.fields();
    assert!(
        listed["workspaces"]["../../etc"].is_object() && listed["workspaces"]["会"].is_object(),
        "{listed}"
    );
}

#[tokio::test]
async fn cleaning_up_spares_what_runs_unless_forced() {
    let world = World::new().await;
    let client = world.client();
    for id in ["busy", "idle"] {
        client.post(&format!("/session/{id}"), json!({})).await.fields();
    }
    let running = client.clone();
    let running = async move { running.post("/execute/busy", json!({"command": "sleep 600"})).await };
    let cleaning = async {
        let caller = world.control.developer();
        loop {
            let view = world.control.named_sandbox(&caller, "session", "busy").await.unwrap().unwrap();
            if view.execs_running > 0 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        let gentle = client.post("/cleanup-all", json!({})).await.fields();
        assert_eq!((&gentle["total"], &gentle["success"]), (&json!(2), &json!(1)));
        assert_eq!(gentle["skipped"], json!(["busy: the session is running"]));
        assert_eq!(gentle["failed"], json!([]));
        assert_eq!(client.get("/status/idle").await.fields()["exists"], false);
        let forced = client.post("/cleanup-all", json!({"force": true})).await.fields();
        assert_eq!(forced, json!({"total": 1, "success": 1, "failed": [], "skipped": []}));
        assert_eq!(client.get("/workspaces").await.fields(), json!({"workspaces": {}}));
    };
    let both = futures_util::future::join(running, cleaning);
    tokio::time::timeout(std::time::Duration::from_secs(60), both).await.unwrap();
}

#[tokio::test]
async fn a_session_that_sleeps_is_woken_by_its_use_alone() {
    let world = World::new().await;
    let client = world.client();
    client.post("/create/s", json!({"content": "x", "filename": "a.txt"})).await.fields();
    let caller = world.control.developer();
    let view = world.control.named_sandbox(&caller, "session", "s").await.unwrap().unwrap();
    world.control.pause_sandbox(&caller, view.id).await.unwrap();
    let status = client.get("/status/s").await.fields();
    assert_eq!(
        (&status["exists"], &status["is_mounted"], &status["files"]),
        (&json!(true), &json!(false), &json!([]))
    );
    assert_eq!(world.control.sandbox(&caller, view.id).await.unwrap().phase, Phase::Paused);
    assert_eq!(client.get("/download/s/a.txt").await.body, b"x");
}
