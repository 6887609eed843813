//! `process.Process`.

use axum::body::Body;
use data_encoding::BASE64;
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::world::{ENVD, World};

fn shell(line: &str) -> Value {
    json!({"process": {"cmd": "/bin/sh", "args": ["-c", line], "envs": {}}, "stdin": false})
}

fn printed(messages: &[Value], stream: &str) -> String {
    let pieces = messages.iter().filter_map(|message| message["event"]["data"][stream].as_str());
    let bytes: Vec<u8> = pieces.flat_map(|piece| BASE64.decode(piece.as_bytes()).unwrap()).collect();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_program_is_started_heard_and_ended() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let (messages, end) = client.stream(&made, "/process.Process/Start", shell("echo hi")).await;
    assert!(messages[0]["event"]["start"]["pid"].as_u64().unwrap() > 1);
    assert_eq!(printed(&messages, "stdout"), "hi\n");
    let last = &messages.last().unwrap()["event"]["end"];
    assert_eq!(last, &json!({"exitCode": 0, "exited": true, "status": "exit status 0"}));
    assert_eq!(end, json!({}));
    // One that ended is known for a while, and has nothing left to be steered.
    let pid = &messages[0]["event"]["start"]["pid"];
    let (again, _) = client.stream(&made, "/process.Process/Connect", json!({"process": {"pid": pid}})).await;
    assert_eq!(again[0], messages[0]);
    let kill = json!({"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"});
    let killed = client.rpc(&made, "/process.Process/SendSignal", kill).await;
    assert_eq!((killed.status.as_u16(), &killed.json()["code"]), (404, &json!("not_found")));
}

/// What clients take the end of a sandbox from: the connection breaks off, and `/health` says that there is none.
#[tokio::test]
async fn a_sandbox_that_ends_takes_its_streams_along() {
    let world = World::new().await;
    let client = world.client();
    for ended_by in ["delete", "timeout"] {
        let made = client.create().await;
        let request = client.streaming(&made, "/process.Process/Start", shell("sleep 60"));
        let mut pieces = client.ask(request).await.into_body().into_data_stream();
        let first = pieces.next().await.unwrap().unwrap();
        assert_eq!(first[0], 0, "a message and no end");
        let path = format!("/sandboxes/{}", made.id);
        let ended = match ended_by {
            "delete" => client.delete(&path).await,
            _ => client.post(&format!("{path}/timeout"), json!({"timeout": 0})).await,
        };
        assert_eq!(ended.status, 204, "{ended_by}");
        let rest: Vec<_> = pieces.collect().await;
        let (last, before) = rest.split_last().unwrap();
        assert!(last.is_err(), "{ended_by}: {rest:?}");
        assert!(before.iter().all(|piece| piece.as_ref().is_ok_and(|piece| piece[0] == 0)), "{rest:?}");
        let health = client.inside("GET", &made, ENVD, "/health").body(Body::empty()).unwrap();
        assert_eq!(client.send(health).await.refused(502), "The sandbox was not found");
    }
}

#[tokio::test]
async fn bad_ends_are_told() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    let (messages, _) = client.stream(&made, "/process.Process/Start", shell("exit 3")).await;
    let last = &messages.last().unwrap()["event"]["end"];
    assert_eq!((&last["exitCode"], &last["error"]), (&json!(3), &json!("exit status 3")));
}

#[tokio::test]
async fn what_cannot_be_done_is_told_in_the_stream_or_the_answer() {
    let world = World::new().await;
    let client = world.client();
    let made = client.create().await;
    for (message, code) in [
        (json!({}), "invalid_argument"),
        (json!({"process": {}}), "invalid_argument"),
        (json!({"process": {"cmd": "true", "cwd": "/no/such"}}), "invalid_argument"),
        (json!({"process": {"cmd": "true"}, "pty": {"size": {"cols": 9999, "rows": 1}}}), "invalid_argument"),
        (json!([]), "invalid_argument"),
    ] {
        let (messages, end) = client.stream(&made, "/process.Process/Start", message.clone()).await;
        assert_eq!((messages.len(), &end["error"]["code"]), (0, &json!(code)), "{message} {end}");
    }
    for (method, message, code) in [
        ("SendInput", json!({"process": {"pid": 7}, "input": {"stdin": "aGk="}}), "not_found"),
        ("CloseStdin", json!({"process": {"tag": "none"}}), "not_found"),
        ("Update", json!({}), "invalid_argument"),
        ("SendSignal", json!({"process": {"pid": 7}, "signal": "SIGNAL_SIGKILL"}), "not_found"),
        ("Nothing", json!({}), "unimplemented"),
    ] {
        let answer = client.rpc(&made, &format!("/process.Process/{method}"), message).await;
        assert_eq!(answer.json()["code"], code, "{method}");
    }
    let (_, end) = client.stream(&made, "/process.Process/Connect", json!({"process": {"pid": 7}})).await;
    assert_eq!(end["error"]["message"], "process with pid 7 not found");
    let (_, end) = client.stream(&made, "/process.Process/StreamInput", json!({"keepalive": {}})).await;
    assert_eq!(end, json!({}));
    let data = json!({"data": {"input": {"stdin": "aGk="}}});
    let (_, end) = client.stream(&made, "/process.Process/StreamInput", data).await;
    assert_eq!(end["error"]["code"], "invalid_argument");
    assert_eq!(client.rpc(&made, "/process.Process/List", json!({})).await.json(), json!({"processes": []}));
}
