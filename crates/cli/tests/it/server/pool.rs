//! Sandboxes that a server made before anybody asked.

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use super::instance::Server;
use crate::support::{Who, eventually};

/// One number of the pool.
fn figure(server: &Server, name: &str, kind: &str) -> u64 {
    let text = server.get("/metrics").text();
    let start = format!("sandstorm_pool_{name}{{kind=\"{kind}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&start)).map_or(0, |value| value.parse().unwrap())
}

fn python(server: &Server, code: &str) -> Value {
    server.post("/v1/runs", &json!({ "language": "python", "code": code })).expect(200)
}

#[test]
fn the_first_run_of_a_new_server_finds_a_sandbox_ready() {
    let server = Server::with(Who::Root, &[("SANDSTORM_POOL_PREFILL", "2")], &[]);
    eventually("two wait", || figure(&server, "ready", "python") == 2);
    let told = python(&server, "import os\nprint(os.getpid(), os.getuid(), __name__)");
    // The agent is the first process, and what waited is the second.
    assert_eq!((&told["stdout"], &told["exit_code"]), (&json!("2 1000 __main__\n"), &json!(0)), "{told}");
    let counted = |name| figure(&server, name, "python");
    assert_eq!((counted("hits_total"), counted("misses_total")), (1, 0));
    // Limits of its own make it another kind, which nobody has prepared.
    let other = json!({ "language": "python", "code": "print(1)", "limits": { "memory": "300MiB" } });
    assert_eq!(server.post("/v1/runs", &other).expect(200)["stdout"], "1\n");
    assert_eq!((counted("hits_total"), counted("misses_total")), (1, 1));
    eventually("it is prepared now", || counted("ready") >= 2);
    eventually("another run of it hits", || {
        assert_eq!(server.post("/v1/runs", &other).expect(200)["stdout"], "1\n");
        counted("hits_total") > 1
    });
}

#[test]
fn a_server_without_a_pool_makes_each_when_it_is_asked_for() {
    let off = [("SANDSTORM_POOL_ENABLED", "false"), ("SANDSTORM_POOL_ZYGOTES", "false")];
    let server = Server::with(Who::Root, &off, &[]);
    assert_eq!(python(&server, "import os; print(os.getpid() > 1)")["stdout"], "True\n");
    assert!(!server.get("/metrics").text().contains("sandstorm_pool_"));
}

#[test]
fn an_ordinary_user_has_a_pool_without_warm_interpreters() {
    let settings = [("SANDSTORM_ENFORCEMENT", "best_effort"), ("SANDSTORM_POOL_PREFILL", "2")];
    let server = Server::with(Who::Ranged, &settings, &[]);
    eventually("two wait", || figure(&server, "ready", "bare") >= 2);
    assert_eq!(python(&server, "print(1)")["stdout"], "1\n");
    assert_eq!(figure(&server, "hits_total", "python"), 0);
    assert!(figure(&server, "hits_total", "bare") >= 1);
}

#[test]
fn what_waits_ends_with_the_server() {
    let mut server = Server::start(Who::Root);
    eventually("some wait", || figure(&server, "ready", "python") > 0);
    let all = server.processes();
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().success());
    // Without sandboxes and without a server the launcher goes as well, and nothing of it is left.
    eventually("everything is gone", || server.processes().is_empty());
    assert!(!all.is_empty());
}

/// The first processes of all its jails: children of its launcher.
fn agents(server: &Server) -> Vec<i32> {
    let own = server.processes();
    let is_first = |pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        let inside = field("NSpid:").split_whitespace().skip(1).eq(["1"]);
        inside && field("PPid:").trim().parse().is_ok_and(|parent| own.contains(&parent))
    };
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_first).collect()
}

/// Whether nothing runs any more in the jail of this first process, which ends after all the others.
fn is_dead(first: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{first}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_none_or(|rest| matches!(rest.split_whitespace().next(), None | Some("Z" | "X")))
}

/// What waited died unseen, as by the kernel's hand when memory runs out. Its run goes to another sandbox.
#[test]
fn a_run_never_hears_that_a_waiting_sandbox_died() {
    let server = Server::with(Who::Root, &[("SANDSTORM_POOL_PREFILL", "3")], &[]);
    for round in 0..3 {
        // The figure alone may still count those of the round before, which are dead.
        let mut dead = Vec::new();
        eventually("some wait", || {
            dead = agents(&server);
            dead.len() >= 2 && figure(&server, "ready", "python") >= 2
        });
        for pid in &dead {
            // One that the pool let go of meanwhile is not there any more.
            let _ = rustix::process::kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
        }
        // On a busy machine an interpreter could otherwise still begin a program that it does not end.
        eventually("they are dead", || dead.iter().copied().all(is_dead));
        for run in 0..4 {
            let told = python(&server, &format!("print({round}, {run})"));
            assert_eq!(told["stdout"], format!("{round} {run}\n"), "{told}");
        }
    }
}
