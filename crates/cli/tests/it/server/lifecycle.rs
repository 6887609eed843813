//! What happens to a sandbox by itself: its lifetime, its idle time, what is told of it, what is kept.

use std::time::Duration;

use serde_json::{Value, json};

use super::instance::Server;
use crate::support::{Place, Who, eventually, run, stderr};

fn state(server: &Server, sandbox: &str) -> String {
    server.get(sandbox).expect(200)["state"].as_str().unwrap().to_owned()
}

#[test]
fn a_lifetime_ends_as_it_was_asked_to() {
    let server = Server::start(Who::Root);
    let short = |then: &str| server.sandbox(&json!({ "lifetime": "1s", "on_end": then }));
    let (paused, deleted, extended) = (short("pause"), short("delete"), short("delete"));
    let longer = server.post(&format!("{extended}/extend"), &json!({ "lifetime": "1m" })).expect(200);
    assert_eq!(longer["state"], "ready");
    eventually("one is paused", Duration::from_secs(4), || state(&server, &paused) == "paused");
    eventually("one is gone", Duration::from_secs(4), || state(&server, &deleted) == "terminated");
    assert_eq!(state(&server, &extended), "ready");
    assert_eq!(server.exec(&extended, "echo here")["stdout"], "here\n");
    // A paused one wakes up with everything that it had, and is given time anew.
    assert_eq!(server.post(&format!("{paused}/resume"), &json!({})).expect(200)["state"], "ready");
    let past_the_most = server.post(&format!("{extended}/extend"), &json!({ "lifetime": "1000d" }));
    assert_eq!(past_the_most.status, 400, "{}", past_the_most.text());
}

#[test]
fn a_sandbox_that_nobody_uses_ends() {
    let server = Server::start(Who::Root);
    let idle = server.sandbox(&json!({ "idle_timeout": "1s", "on_end": "delete" }));
    let busy = server.sandbox(&json!({ "idle_timeout": "1s", "on_end": "delete" }));
    server.post(&format!("{busy}/exec"), &json!({ "command": "sleep 60", "background": true })).expect(202);
    eventually("the idle one ends", Duration::from_secs(5), || {
        // Listing asks nothing of a sandbox, as looking at this one alone would.
        let listed = server.get("/v1/sandboxes").expect(200);
        let ids: Vec<&str> =
            listed["items"].as_array().unwrap().iter().filter_map(|s| s["id"].as_str()).collect();
        !ids.contains(&idle.rsplit('/').next().unwrap())
    });
    assert_eq!(state(&server, &busy), "running");
}

#[test]
fn what_happens_is_told_in_order_and_again() {
    let server = Server::start(Who::Root);
    let mut live = server.stream(server.request("GET", "/v1/events?after=0"));
    let sandbox = server.sandbox(&json!({}));
    server.exec(&sandbox, "true");
    server.exec(&sandbox, "exit 3");
    assert_eq!(server.delete(&sandbox).status, 204);
    let mut told = Vec::new();
    for event in live.by_ref() {
        told.push(event.data["type"].as_str().unwrap().to_owned());
        if told.last().is_some_and(|last| last == "sandbox:terminated") {
            break;
        }
    }
    let wanted = [
        "sandbox:creating",
        "sandbox:ready",
        "execute:start",
        "execute:success",
        "execute:complete",
        "execute:start",
        "execute:error",
        "execute:complete",
        "sandbox:terminating",
        "sandbox:terminated",
    ];
    assert_eq!(told, wanted);
    // The same for one sandbox, which ends with its last event.
    let again: Vec<String> = server
        .stream(server.request("GET", format!("{sandbox}/events?after=0")))
        .map(|event| event.data["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(again, wanted);
}

#[test]
fn a_sandbox_is_measured_while_it_lives() {
    let server = Server::start(Who::Root);
    let sandbox = server.sandbox(&json!({}));
    server.exec(&sandbox, "head -c 10M /dev/zero > file; for i in $(seq 20000); do :; done");
    let samples = || server.get(&format!("{sandbox}/metrics")).expect(200)["samples"].clone();
    eventually("there is a sample", Duration::from_secs(15), || {
        samples().as_array().is_some_and(|samples| !samples.is_empty())
    });
    let last = samples().as_array().unwrap().last().unwrap().clone();
    assert!(last["disk_bytes"].as_u64().unwrap() >= 10 << 20, "{last:#}");
    assert!(last["memory_bytes"].as_u64().unwrap() > 0 && last["cpu_ms"].as_u64().unwrap() > 0, "{last:#}");
}

#[test]
fn a_backup_of_a_running_server_can_be_served() {
    let server = Server::start(Who::Root);
    let ran = server.post("/v1/runs", &json!({ "language": "bash", "code": "echo kept" })).expect(200);
    let state = server.state();
    let file = server.place.path().join("backup.db");
    let args = ["backup", file.to_str().unwrap(), "--state-dir", state.to_str().unwrap()];
    let made = run(Who::Root, &args);
    assert!(made.status.success(), "{}", stderr(&made));
    let again = run(Who::Root, &args);
    assert!(!again.status.success() && stderr(&again).contains("exist"), "{}", stderr(&again));
    // As the guide on operating says: secrets and anchor belong to it, and all is given to the server's user.
    let place = Place::new();
    let script = "mkdir $1/state && cp $2 $1/state/sandstorm.db && cp -r $3/secrets $3/audit.anchor $1/state && \
                  chown -R --reference=$3 $1/state";
    let arguments = [place.path(), &file, &state];
    let restored = std::process::Command::new("sh").args(["-c", script, "sh"]).args(arguments).status();
    assert!(restored.unwrap().success());
    let restored = Server::on(Who::Root, place, &server.key);
    let view = restored.get(&format!("/v1/runs/{}", ran["id"].as_str().unwrap())).expect(200);
    assert_eq!(view["result"]["stdout"], "kept\n");
}

/// A trace that a caller began reaches the program inside, and comes back in the answer.
#[test]
fn a_trace_goes_all_the_way() {
    let server = Server::start(Who::Root);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let answer = server.send(
        &server
            .request("POST", "/v1/runs")
            .json(&json!({ "language": "bash", "code": "echo $TRACEPARENT" }))
            .header("traceparent", &format!("00-{trace}-00f067aa0ba902b7-01")),
    );
    assert!(answer.header("traceparent").is_some_and(|parent| parent.contains(trace)));
    let result: Value = answer.expect(200);
    assert!(result["stdout"].as_str().unwrap().starts_with(&format!("00-{trace}-")), "{result:#}");
}
