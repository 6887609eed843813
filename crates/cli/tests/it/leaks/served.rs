//! The soak of a server: runs mixed with kills, timeouts and floods, sandboxes, contexts and forks, with a warm pool and
//! zygotes. When the server has ended, nothing of them is left; while it runs, it does not grow.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{Counts, PLACE, RUNS, entries, stage};
use crate::server::instance::Server;
use crate::support::{self, Who};

/// Clients at the same time.
const CLIENTS: usize = 8;

const SCENE: &str = "leaks::served::inside";

#[test]
fn a_soak_of_a_server_leaves_nothing_behind() {
    stage(SCENE, 400);
}

#[test]
#[ignore = "long"]
fn a_long_soak_of_a_server_leaves_nothing_behind() {
    stage(SCENE, 20_000);
}

/// Runs with what each has to end with.
fn programs() -> Vec<(Value, &'static str)> {
    let python = |code: &str, wishes: Value| {
        let mut run = json!({ "language": "python", "code": code });
        run.as_object_mut().unwrap().extend(wishes.as_object().unwrap().clone());
        run
    };
    let bash = |code: &str| json!({ "language": "bash", "code": code, "limits": { "wall": "5m" } });
    vec![
        (python("print(1)", json!({})), "ok"),
        (python("import sys; sys.exit(3)", json!({})), "error"),
        (python("import os; os.kill(os.getpid(), 9)", json!({})), "error"),
        (python("while True: pass", json!({ "limits": { "wall": "300ms" } })), "timeout"),
        (python("x = bytearray(1 << 30)", json!({ "limits": { "memory": "64MiB" } })), "memory"),
        (python("while True: print('x' * 65536)", json!({ "limits": { "output": "256KiB" } })), "output"),
        (
            // A flood of processes: the limit holds, the program goes on and ends.
            python(
                "import os\nfor _ in range(200):\n    try:\n        if os.fork() == 0: os.pause() if hasattr(os, 'pause') else __import__('signal').pause()\n    except OSError: break\nprint('full')",
                json!({ "limits": { "processes": 20 } }),
            ),
            "ok",
        ),
        (
            python(
                "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)",
                json!({}),
            ),
            "ok",
        ),
        (python("open('/tmp/a', 'wb').write(bytes(3 << 20))", json!({})), "ok"),
        (bash("(setsid bash -c 'trap \"\" TERM HUP; sleep 600' &); exit 0"), "ok"),
        (bash("for i in 1 2 3; do sleep 600 & done; kill -STOP -1; exit 3"), "error"),
        (bash("yes | head -c 100000"), "ok"),
    ]
}

fn one(number: usize, server: &Server, programs: &[(Value, &'static str)]) {
    match number % 40 {
        17 => give_up(server, number),
        29 => a_sandbox(server),
        38 => drop(server.sandbox(&json!({ "lifetime": "1s", "on_end": "delete" }))),
        _ => {
            let (run, status) = &programs[number % programs.len()];
            let result = server.post("/v1/runs", run).expect(200);
            assert_eq!(result["status"], *status, "run {number}: {run}: {result:#}");
        }
    }
}

/// A client that goes away in the middle.
fn give_up(server: &Server, number: usize) {
    let run =
        json!({ "language": "python", "code": "import time\nprint('in', flush=True)\ntime.sleep(600)" });
    let mut events = server.stream(server.request("POST", "/v1/runs").json(&run));
    // Now and then before it has begun.
    if number % 80 == 17 {
        while events.next_event().is_some_and(|event| event.data["type"] != "stdout") {}
    }
}

/// A life of a sandbox: a context, a program in the background, a fork, the end.
fn a_sandbox(server: &Server) {
    let sandbox = server.sandbox(&json!({}));
    let context = server.post(&format!("{sandbox}/contexts"), &json!({ "language": "python" })).expect(201);
    let cell = |sandbox: &str, context: &str, code: &str| {
        let path = format!("{sandbox}/contexts/{context}/execute");
        server.post(&path, &json!({ "code": code })).expect(200)
    };
    let context = context["id"].as_str().unwrap();
    assert_eq!(cell(&sandbox, context, "x = 20; print('set')")["stdout"], "set\n");
    let forked = server.post(&format!("{sandbox}/fork"), &json!({})).expect(201);
    let fork = format!("/v1/sandboxes/{}", forked["forks"][0]["sandbox"]["id"].as_str().unwrap());
    let copy = forked["forks"][0]["contexts"][0]["to"].as_str().unwrap();
    assert_eq!(cell(&fork, copy, "print(x + 22)")["stdout"], "42\n");
    server
        .post(&format!("{sandbox}/exec"), &json!({ "command": "sleep 600", "background": true }))
        .expect(202);
    for one in [sandbox, fork] {
        assert_eq!(server.delete(&one).status, 204);
    }
}

/// Memory and descriptors of the server's own processes; jails and what runs in them are not among them.
fn weight(server: &Server) -> (u64, usize) {
    let own: Vec<i32> = server.processes();
    let resident = |pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    let open = |pid: &i32| entries(&PathBuf::from(format!("/proc/{pid}/fd"))).len();
    (own.iter().map(resident).sum(), own.iter().map(open).sum())
}

fn crowd(server: &Server, from: usize, to: usize) {
    let (programs, next) = (programs(), AtomicUsize::new(from));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= to {
                        return;
                    }
                    one(number, server, &programs);
                }
            });
        }
    });
}

#[test]
#[ignore = "the part of the tests above that happens on their stage"]
fn inside() {
    let (Ok(runs), Ok(place)) = (std::env::var(RUNS), std::env::var(PLACE)) else { return };
    let runs: usize = runs.parse().unwrap();
    let place = PathBuf::from(place);
    let name = place.file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_owned();
    let parent = format!("sandstorm-soak-{name}-{runs}");
    let alone = Counts::take(&place, &parent).processes;
    let empty =
        || support::eventually("every process is gone", || Counts::take(&place, &parent).processes == alone);
    // Everything that a first use leaves for the next one is there before anybody counts.
    soak(&parent, 40);
    empty();
    let before = Counts::take(&place, &parent);
    assert!(before.groups.is_empty() && before.leases == 0, "{before:#?}");
    soak(&parent, runs);
    empty();
    before.is_all_that_is_left(&place, &parent);
}

#[expect(clippy::print_stderr, reason = "the figures of a soak are part of its result")]
fn soak(parent: &str, runs: usize) {
    let settings = [
        ("SANDSTORM_CGROUP_PARENT", parent),
        ("SANDSTORM_QUOTAS_RUNS_PER_MINUTE", "1000000"),
        ("SANDSTORM_QUOTAS_REQUESTS_PER_SECOND", "100000"),
        ("SANDSTORM_POOL_MAX", "16"),
    ];
    let server = Server::with(Who::Root, &settings, &[]);
    let quarter = runs / 4;
    crowd(&server, 0, quarter);
    let (memory, descriptors) = weight(&server);
    crowd(&server, quarter, runs);
    let (memory_after, descriptors_after) = weight(&server);
    eprintln!(
        "after {quarter} and {runs}: {memory} and {memory_after} kB, {descriptors} and {descriptors_after} descriptors"
    );
    // Short runs are still warming up.
    if runs >= 2000 {
        assert!(memory_after < memory * 5 / 4 + (16 << 10), "{memory} kB became {memory_after} kB");
    }
    // So is the pool: each jail in it has a few tens of them.
    let of_the_pool = if runs >= 2000 { 400 } else { 800 };
    assert!(
        descriptors_after < descriptors + of_the_pool,
        "{descriptors} descriptors became {descriptors_after}"
    );
    // The short-lived ones have to have their time first.
    support::eventually("no sandbox remains", || {
        server.get("/v1/sandboxes?state=running").expect(200)["items"].as_array().unwrap().is_empty()
    });
}
