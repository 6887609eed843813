//! Who has the launcher: one server for one state directory, a guardian that replaces it, a deputy that replaces both. And
//! what callers hear meanwhile.

use std::time::Instant;

use rustix::process::{Pid, Signal};
use sandstorm_jail::launcher::resident;
use serde_json::{Value, json};

use super::faults::{kill, marked, parent_of};
use super::http::{self, Answer};
use super::instance::Server;
use crate::support::{Who, eventually, processes_with, sandstorm, silent_port, stderr};

/// The launcher and the guardian of a server, found by a program in a sandbox.
struct Keepers {
    launcher: i32,
    guardian: i32,
}

impl Keepers {
    fn find(server: &Server, sandbox: &str, program: &str) -> Self {
        let agent = parent_of(marked(server, sandbox, program));
        let launcher = parent_of(agent);
        Self { launcher, guardian: parent_of(launcher) }
    }
}

fn signal(pid: i32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// A run that says its word, until one does; what was answered otherwise on the way.
fn runs_again(server: &Server, word: &str) -> Vec<Answer> {
    let body = json!({ "language": "bash", "code": format!("echo {word}") });
    let mut others = Vec::new();
    eventually("runs come to their end", || {
        let answer = server.post("/v1/runs", &body);
        if answer.status == 200 && answer.json()["stdout"] == format!("{word}\n") {
            return true;
        }
        others.push(answer);
        false
    });
    others
}

/// A failure on our side tells what to do about it: when to come back, or that what was lost has to be made anew.
#[track_caller]
fn tells_what_to_do(answer: &Answer) {
    if answer.status < 500 {
        return;
    }
    let text = answer.text();
    let helps = answer.header("retry-after").is_some() || text.contains("has to be made");
    assert!(helps && matches!(answer.status, 502 | 503), "{} {text}", answer.status);
}

#[test]
fn a_second_server_on_a_state_directory_is_refused_and_takes_nothing() {
    let mut server = Server::start(Who::Root);
    let sandbox = server.sandbox(&json!({}));
    let state = server.state();
    let files = || {
        let mut found: Vec<_> = std::fs::read_dir(&state).unwrap().map(|e| e.unwrap().file_name()).collect();
        found.sort();
        found
    };
    let before = files();
    // A port that it cannot have: were it to get that far, it would end with the first one's launcher.
    let (_taken, port) = silent_port();
    let mut second = sandstorm(Who::Root);
    second.env_remove("SANDSTORM_STATE_DIR");
    second.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--state-dir"]).arg(&state);
    let second = second.output().unwrap();
    assert_eq!(second.status.code(), Some(125), "{}", stderr(&second));
    assert!(second.stdout.is_empty());
    let said = stderr(&second);
    assert!(said.contains("another server (process ") && said.contains("--state-dir"), "{said}");
    assert_eq!(files(), before);
    // The first one goes on as if nothing had happened, and ends when it is told to.
    assert_eq!(server.exec(&sandbox, "echo here")["stdout"], "here\n");
    server.signal(Signal::TERM);
    assert!(server.wait().success());
    // The lock went with its holder, not with what outlives that.
    server.restart();
    assert_eq!(server.exec(&sandbox, "echo there")["stdout"], "there\n");
}

#[test]
fn a_server_that_loses_its_launcher_to_another_answers_and_ends() {
    let mut server = Server::start(Who::Root);
    let sandbox = server.sandbox(&json!({}));
    server.exec(&sandbox, "true");
    let under_way = server
        .request("POST", format!("{sandbox}/exec"))
        .json(&json!({ "command": "exec sleep 98761" }))
        .header("accept", "application/json");
    let port = server.port;
    let waiting = std::thread::spawn(move || http::open(port, &under_way).unwrap().finish().unwrap());
    eventually("the program runs", || !processes_with("sleep 98761").is_empty());
    // As a server of an earlier version would, which knows of no lock.
    let other = resident::connect(&server.state().join("launcher.sock")).unwrap();
    let answer = waiting.join().unwrap();
    assert_eq!(answer.status, 503, "{}", answer.text());
    tells_what_to_do(&answer);
    assert!(!server.wait().success(), "its service manager is to start it again");
    let log = std::fs::read_to_string(server.place.path().join("log")).unwrap();
    assert!(log.contains("the launcher is gone for good"), "{log}");
    drop(other);
    server.restart();
    assert_eq!(server.exec(&sandbox, "echo kept")["stdout"], "kept\n");
}

#[test]
fn a_launcher_that_is_killed_with_its_guardian_is_made_anew_with_another() {
    let server = Server::start(Who::Root);
    let sandbox = server.sandbox(&json!({}));
    let first = Keepers::find(&server, &sandbox, "sleep 98760");
    // The guardian before it can make another.
    kill(first.guardian);
    kill(first.launcher);
    let lost = server.post(&format!("{sandbox}/exec"), &json!({ "command": "true" }));
    assert!(lost.status != 200, "{}", lost.text());
    tells_what_to_do(&lost);
    runs_again(&server, "again").iter().for_each(tells_what_to_do);
    eventually("it is ready again", || server.get("/readyz").status == 200);
    let again = server.sandbox(&json!({}));
    let second = Keepers::find(&server, &again, "sleep 98759");
    assert!(second.guardian != first.guardian && second.launcher != first.launcher);
    // And once more, this time by the guardian alone.
    kill(second.launcher);
    runs_again(&server, "and again").iter().for_each(tells_what_to_do);
    eventually("what was lost has failed", || server.get(&again).expect(200)["state"] == "failed");
}

#[test]
fn a_launcher_that_hangs_is_answered_for_and_replaced() {
    let server = Server::start(Who::Root);
    let sandbox = server.sandbox(&json!({}));
    let first = Keepers::find(&server, &sandbox, "sleep 98758");
    signal(first.launcher, Signal::STOP);
    let began = Instant::now();
    let made = server.post("/v1/sandboxes", &json!({ "lifetime": "1h" }));
    let took = began.elapsed();
    // Of what was asked for meanwhile nothing is left hanging: it was refused in words, or made by the one that follows.
    assert!(matches!(made.status, 201 | 503), "after {took:?}: {} {}", made.status, made.text());
    tells_what_to_do(&made);
    runs_again(&server, "again").iter().for_each(tells_what_to_do);
    let again = server.sandbox(&json!({}));
    let second = Keepers::find(&server, &again, "sleep 98757");
    assert!(second.launcher != first.launcher && second.guardian == first.guardian);
    std::fs::write(
        concat!(env!("CARGO_TARGET_TMPDIR"), "/hang-report.txt"),
        format!("answered after {took:?}\n"),
    )
    .unwrap();
}

/// Ends when nobody can make launchers any more: it would answer 503 for ever.
#[test]
#[ignore = "takes more than a minute"]
fn a_server_without_anybody_to_make_launchers_ends() {
    let mut server = Server::start(Who::Root);
    let sandbox = server.sandbox(&json!({}));
    let keepers = Keepers::find(&server, &sandbox, "sleep 98756");
    let own = server.processes();
    kill(keepers.guardian);
    // The deputy is the server's only child.
    let deputies: Vec<i32> = own.iter().copied().filter(|pid| own.contains(&parent_of(*pid))).collect();
    for pid in deputies.into_iter().filter(|pid| *pid != keepers.launcher && *pid != keepers.guardian) {
        if parent_of(pid) != keepers.launcher {
            kill(pid);
        }
    }
    kill(keepers.launcher);
    let began = Instant::now();
    let mut ended = None;
    while ended.is_none() {
        assert!(began.elapsed().as_secs() < 180, "it goes on without a launcher");
        ended = server.try_wait();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(!ended.unwrap().success());
}

#[test]
fn a_server_that_is_told_to_end_refuses_in_words_and_answers_what_it_ends() {
    let settings = [("SANDSTORM_SERVE_DRAIN_TIMEOUT", "15s")];
    let mut server = Server::with(Who::Root, &settings, &[]);
    let sandbox = server.sandbox(&json!({}));
    let (port, run) = (server.port, server.request("POST", "/v1/runs").json(&endless_run()));
    let exec = server
        .request("POST", format!("{sandbox}/exec"))
        .json(&json!({ "command": "exec sleep 98755" }))
        .header("accept", "application/json");
    let ask = |request: http::Request| {
        std::thread::spawn(move || http::open(port, &request).unwrap().finish().unwrap())
    };
    let waiting = [ask(run), ask(exec)];
    eventually("both run", || {
        !processes_with("sleep 98754").is_empty() && !processes_with("sleep 98755").is_empty()
    });
    server.signal(Signal::TERM);
    // Those who come now are heard, as long as it waits for the others.
    let mut refused = false;
    eventually("it says that it drains", || {
        let ready = server.get("/readyz");
        refused = ready.status == 503 && ready.json()["status"] == "draining";
        refused
    });
    let late = server.post("/v1/runs", &json!({ "language": "bash", "code": "true" }));
    assert_eq!(late.status, 503, "{}", late.text());
    assert!(late.header("retry-after").is_some());
    for answer in waiting.map(|waiting| waiting.join().unwrap()) {
        let result = answer.expect(200);
        assert_eq!(result["status"], "killed", "{result:#}");
    }
    assert!(server.wait().success());
    server.restart();
    assert_eq!(server.exec(&sandbox, "echo kept")["stdout"], "kept\n");
}

fn endless_run() -> Value {
    json!({ "language": "bash", "code": "exec sleep 98754" })
}
