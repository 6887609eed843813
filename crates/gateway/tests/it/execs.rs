//! What a client may choose about an exec, and what it can find out before and while one runs.

use sandstorm_control::server::{Quota, Settings};
use sandstorm_gateway::{GatewaySettings, ServeLimits};
use sandstorm_types::ExecId;

use crate::world::{World, control_settings};

#[tokio::test]
async fn a_chosen_id_is_begun_once() {
    let world = World::new().await;
    let (one, other) = (world.sandbox().await, world.sandbox().await);
    let id = ExecId::random();
    let body = format!(r#"{{"command": "echo hi", "id": "{id}"}}"#);
    let done = world.call("POST", &format!("/v1/sandboxes/{one}/exec"), &body).await;
    assert_eq!((done.status.as_u16(), &done.json()["id"]), (200, &id.to_string().into()), "{}", done.text());
    for sandbox in [&one, &other] {
        let twice = world.call("POST", &format!("/v1/sandboxes/{sandbox}/exec"), &body).await;
        assert_eq!(twice.refused(409)["code"], "conflict");
    }
    let found = world.call("GET", &format!("/v1/sandboxes/{one}/execs/{id}"), "").await;
    assert_eq!(found.json()["running"], false);
    world.call("GET", &format!("/v1/sandboxes/{other}/execs/{id}"), "").await.refused(404);
    for bad in ["exec_short", "sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa", ""] {
        let body = format!(r#"{{"command": "true", "id": "{bad}"}}"#);
        world.call("POST", &format!("/v1/sandboxes/{one}/exec"), &body).await.refused(400);
    }
}

#[tokio::test]
async fn less_output_may_be_kept_but_not_more() {
    let world = World::new().await;
    let path = format!("/v1/sandboxes/{}/exec", world.sandbox().await);
    let cut = world.call("POST", &path, r#"{"command": "echo 0123456789", "output": 4}"#).await.json();
    assert_eq!((&cut["stdout"], &cut["truncated"]["stdout"]), (&"0123".into(), &true.into()), "{cut}");
    assert_eq!(cut["metrics"]["stdout_bytes"], 11);
    world.call("POST", &path, r#"{"command": "true", "output": "1T"}"#).await.refused(400);
}

#[tokio::test]
async fn a_long_answer_takes_a_streams_place_or_is_cut() {
    let rules = control_settings();
    let rules = Settings { quota: Quota { open_streams: 1, ..rules.quota }, ..rules };
    let world = World::with(GatewaySettings::default(), ServeLimits::default(), rules).await;
    let sandbox = format!("/v1/sandboxes/{}/exec", world.sandbox().await);
    let length = 600_000;
    let code = "x".repeat(length);
    let (run, exec) = (
        format!(r#"{{"language": "bash", "code": "{code}", "enforcement": "best_effort"}}"#),
        format!(r#"{{"command": "cat", "stdin": "{code}"}}"#),
    );
    let seat = world.control.open_stream(&world.control.developer()).unwrap();
    for (path, body) in [("/v1/runs", &run), (&*sandbox, &exec)] {
        let cut = world.call("POST", path, body).await;
        assert_eq!(cut.status, 200, "{path}: {}", cut.text());
        let cut = cut.json();
        let said = cut["stdout"].as_str().unwrap().len();
        assert!(said < length, "{path}: all of {said} bytes");
        assert_eq!(cut["truncated"]["stdout"], true, "{path}");
    }
    drop(seat);
    for (path, body) in [("/v1/runs", &run), (&*sandbox, &exec)] {
        let whole = world.call("POST", path, body).await.json();
        assert_eq!(whole["stdout"].as_str().unwrap().len(), length, "{path}");
        assert_eq!(whole["truncated"]["stdout"], false, "{path}");
        world.control.open_stream(&world.control.developer()).expect("its place is free again");
    }
}

#[tokio::test]
async fn a_server_tells_what_it_can_do_and_a_sandbox_what_it_uses() {
    let world = World::new().await;
    let can = world.call("GET", "/v1/version", "").await.json()["capabilities"].clone();
    assert_eq!((&can["exec_stdin"], &can["template_image"]), (&true.into(), &false.into()), "{can}");
    assert_eq!(can["isolation"], "process");
    assert!(can["limits"].as_array().unwrap().contains(&"disk".into()), "{can}");
    let id = world.sandbox().await;
    let usage = async || world.call("GET", &format!("/v1/sandboxes/{id}/usage"), "").await.json();
    let before = usage().await["disk_bytes"].as_u64().unwrap();
    let put =
        world.request("PUT", &format!("/v1/sandboxes/{id}/files?path=a")).header("x-api-key", &world.key);
    assert_eq!(world.send(put, vec![1; 1 << 20]).await.status, 200);
    assert!(usage().await["disk_bytes"].as_u64().unwrap() >= before + (1 << 20));
    world.call("POST", &format!("/v1/sandboxes/{id}/pause"), "").await;
    world.call("GET", &format!("/v1/sandboxes/{id}/usage"), "").await.refused(409);
}
