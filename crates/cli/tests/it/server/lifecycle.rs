//! What happens to a sandbox by itself: its lifetime, its idle time, what is told of it, what is kept.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::instance::Server;
use crate::support::{Place, Who, eventually, run, stderr, stdout};

fn state(server: &Server, sandbox: &str) -> String {
    server.get(sandbox).expect(200)["state"].as_str().unwrap().to_owned()
}

/// Does what has to be done within so many seconds, and gives it more of them until it is. With what came of it, and the
/// seconds that it took.
fn soon_enough<T>(attempt: impl Fn(u32) -> Option<T>) -> (T, u32) {
    let spans = [1, 4, 15, 60];
    spans.into_iter().find_map(|seconds| Some((attempt(seconds)?, seconds))).expect("a minute is long enough")
}

#[test]
fn a_lifetime_ends_as_it_was_asked_to() {
    let server = Server::start(Who::Root);
    let lives = |seconds: u32, then: &str| {
        server.sandbox(&json!({ "lifetime": format!("{seconds}s"), "on_end": then }))
    };
    // It has to be extended while it lives: a machine that is too slow for that gives it longer.
    let (extended, seconds) = soon_enough(|seconds| {
        let sandbox = lives(seconds, "delete");
        let longer = server.post(&format!("{sandbox}/extend"), &json!({ "lifetime": "10m" }));
        (longer.status == 200).then(|| {
            assert_eq!(longer.json()["state"], "ready");
            sandbox
        })
    });
    // These were made after it, and have as long as it had.
    let (paused, deleted) = (lives(seconds, "pause"), lives(seconds, "delete"));
    eventually("one is paused", || state(&server, &paused) == "paused");
    eventually("one is gone", || state(&server, &deleted) == "terminated");
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
    let unused =
        |seconds: u32| server.sandbox(&json!({ "idle_timeout": format!("{seconds}s"), "on_end": "delete" }));
    let (busy, seconds) = soon_enough(|seconds| {
        let sandbox = unused(seconds);
        let program = json!({ "command": "sleep 1000", "background": true });
        let begun = server.post(&format!("{sandbox}/exec"), &program);
        (begun.status == 202).then_some(sandbox)
    });
    // When this one ends, the other one's time would be over as well.
    let idle = unused(seconds);
    eventually("the idle one ends", || {
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
    // One may be taken while the program still works.
    eventually("a sample shows what it did", || {
        let samples = samples();
        let last = samples.as_array().unwrap().last();
        let value = |name: &str| last.map_or(0, |sample| sample[name].as_u64().unwrap());
        value("disk_bytes") >= 10 << 20 && value("memory_bytes") > 0 && value("cpu_ms") > 0
    });
}

/// A backup as the guide on operating says: the copy, its anchor and the secrets, all given to the server's user.
fn restored(server: &Server, copy: &Path) -> Place {
    let place = Place::new();
    let script = "mkdir $1/state && cp $2 $1/state/sandstorm.db && cp $2.anchor $1/state/audit.anchor && \
                  cp -r $3/secrets $1/state && chown -R --reference=$3 $1/state";
    let arguments = [place.path(), copy, &server.state()];
    let restored = std::process::Command::new("sh").args(["-c", script, "sh"]).args(arguments).status();
    assert!(restored.unwrap().success());
    place
}

/// While others run programs as fast as they can, so that the audit grows between the anchor and the copy, and after both.
#[test]
fn backups_of_a_running_server_verify_and_can_be_served() {
    let server = Server::start(Who::Root);
    let echo = |word: &str| json!({ "language": "bash", "code": format!("echo {word}") });
    let ran = server.post("/v1/runs", &echo("kept")).expect(200);
    let kept = format!("/v1/runs/{}", ran["id"].as_str().unwrap());
    let state = server.state();
    let backup = |file: &Path| {
        run(Who::Root, &["backup", file.to_str().unwrap(), "--state-dir", state.to_str().unwrap()])
    };
    let copy = |number: usize| server.place.path().join(format!("backup-{number}.db"));
    let (over, runs) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    server.post("/v1/runs", &echo("more")).expect(200);
                    runs.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Between two of them at least one run ends.
        let made: Vec<_> = (0..20)
            .map(|number| {
                eventually("a run ends", || runs.load(Ordering::Relaxed) > number);
                backup(&copy(number))
            })
            .collect();
        over.store(true, Ordering::Relaxed);
        for made in made {
            assert!(made.status.success(), "{}", stderr(&made));
        }
    });
    let again = backup(&copy(0));
    assert!(!again.status.success() && stderr(&again).contains("exist"), "{}", stderr(&again));
    let mut records = Vec::new();
    for number in 0..20 {
        let place = restored(&server, &copy(number));
        let at = place.path().join("state");
        let verify = || run(Who::Root, &["audit", "verify", "--json", "--state-dir", at.to_str().unwrap()]);
        let verified = verify();
        assert!(verified.status.success(), "{number}: {}", stdout(&verified));
        let report: Value = serde_json::from_str(&stdout(&verified)).unwrap();
        assert_eq!((&report["whole"], &report["not_anchored"]), (&json!(true), &json!(0)), "{number}");
        records.push(report["records"].as_u64().unwrap());
        // One with the anchor that is there now: it speaks of records that came later.
        if number == 0 {
            let ours = std::fs::read(at.join("audit.anchor")).unwrap();
            std::fs::copy(state.join("audit.anchor"), at.join("audit.anchor")).unwrap();
            let late = verify();
            assert!(!late.status.success() && stdout(&late).contains("cut off"), "{}", stdout(&late));
            std::fs::write(at.join("audit.anchor"), ours).unwrap();
        }
        let serving = Server::on(Who::Root, place, &server.key);
        assert_eq!(serving.get(&kept).expect(200)["result"]["stdout"], "kept\n", "{number}");
    }
    assert!(records.is_sorted() && records[19] > records[0] + 5, "hardly anything was recorded: {records:?}");
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
