//! Commands and code in a session.

use std::time::Duration;

use serde_json::json;

use crate::world::{World, settings};

#[tokio::test]
async fn a_command_has_streams_and_a_return_code() {
    let world = World::new().await;
    let client = world.client();
    let body = json!({"command": "echo out && echo err >&2 ; pwd ; false", "args": null});
    let done = client.post("/execute/s", body).await.fields();
    assert_eq!(done, json!({"stdout": "out\n/workspace\n", "stderr": "err\n", "returncode": 1}));
    let words = client
        .post("/execute/s", json!({"command": "printf '%s|%s'", "args": ["a b", "$HOME"]}))
        .await
        .fields();
    assert_eq!(words["stdout"], "a b|$HOME");
    // What an execution wrote is left in the session.
    let log = client.post("/execute/s", json!({"command": "cat stdout.log"})).await.fields();
    assert_eq!(log["stdout"], "a b|$HOME");
}

#[tokio::test]
async fn time_is_limited_and_the_limit_is_named() {
    let world = World::with(sandstorm_dialect_session::SessionSettings {
        timeout: Duration::from_secs(2),
        ..settings()
    })
    .await;
    let done = world.client().post("/execute/s", json!({"command": "echo on; sleep 60"})).await.fields();
    assert_eq!(done, json!({"stdout": "on\n", "stderr": "", "returncode": 124, "limits_hit": ["wall"]}));
}

#[tokio::test]
async fn who_goes_away_ends_what_they_started() {
    let world = World::new().await;
    let client = world.client();
    client.post("/session/s", json!({})).await.fields();
    let caller = world.control.developer();
    let running = async || {
        let view = world.control.named_sandbox(&caller, "session", "s").await.unwrap().unwrap();
        view.execs_running
    };
    let started = async {
        while running().await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        answer = client.post("/execute/s", json!({"command": "sleep 3600"})) => panic!("{}", answer.json()),
        () = started => {}
    }
    let ended = async {
        while running().await > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("the program ends with its request");
}

#[tokio::test]
async fn code_is_a_file_that_stays() {
    let world = World::new().await;
    let client = world.client();
    // The stand-in for Python shows the script that it was given.
    let named =
        client.post("/execute_code/s", json!({"code": "x = 1\n", "filename": "d/first"})).await.fields();
    assert_eq!(named, json!({"stdout": "x = 1\n", "stderr": "", "returncode": 0}));
    assert_eq!(client.get("/download/s/d/first.py").await.body, b"x = 1\n");
    for code in ["1", "2"] {
        let body = json!({"code": code, "filename": null, "script_type": null, "output_params": []});
        assert_eq!(client.post("/execute_code/s", body).await.fields()["stdout"], code);
    }
    let indented = json!({"code": "\n    if x:\n        y()\n  ", "filename": "d/first"});
    assert_eq!(client.post("/execute_code/s", indented).await.fields()["stdout"], "\nif x:\n    y()\n");
    let files = client.get("/files/s").await.fields();
    // Two scripts without a name in the same second do not meet.
    assert_eq!(files["files"].as_array().unwrap().len(), 2, "{files}");
    let shell = client
        .post("/execute_code/s", json!({"code": "echo", "script_type": "shell", "filename": "a"}))
        .await;
    assert_eq!(shell.fields()["returncode"], 2);
    assert_eq!(client.get("/download/s/a.sh").await.body, b"echo");
}

#[tokio::test]
async fn wrong_fields_run_nothing() {
    let world = World::new().await;
    let client = world.client();
    let wrong = client.post("/execute/s", json!({"args": "x"})).await.invalid();
    assert_eq!(
        wrong,
        [(json!(["body", "command"]), json!("missing")), (json!(["body", "args"]), json!("list_type"))]
    );
    let wrong = client
        .post("/execute_code/s", json!({"code": "", "script_type": "ruby", "args": [1]}))
        .await
        .invalid();
    assert_eq!(
        wrong,
        [(json!(["body", "args", 0]), json!("string_type")), (json!(["body", "script_type"]), json!("enum"))]
    );
    assert_eq!(client.get("/status/s").await.fields()["exists"], false);
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_told() {
    let world = World::with(sandstorm_dialect_session::SessionSettings {
        python: "python3".to_owned(),
        ..settings()
    })
    .await;
    let client = world.client();
    let detail = client.post("/execute_code/s", json!({"code": "1"})).await.refused(400);
    assert_eq!(detail["type"], "SandboxError");
}

#[tokio::test]
async fn efast_is_not_offered_and_says_so() {
    let world = World::new().await;
    let client = world.client();
    let asked = json!({"file_params": [{"docid": "gns://a", "rev": "b"}], "token": "t"});
    let detail = client.post("/download_from_efast/s", asked).await.refused(501);
    assert_eq!(detail["type"], "SandboxError");
    assert_eq!(
        client.post("/download_from_efast/s", json!({"file_params": []})).await.refused(400),
        "No file parameters provided"
    );
    let without = json!({"file_params": [{"docid": "a"}, {}]});
    assert_eq!(
        client.post("/download_from_efast/s", without).await.refused(400),
        "Missing docid in file_params[1]"
    );
    client.post("/download_from_efast/s", json!({"file_params": [1]})).await.invalid();
    assert_eq!(client.get("/status/s").await.fields()["exists"], false);
}
