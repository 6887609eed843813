//! Sandboxes, programs and history.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::{Server, ask, client, json, sandbox, told, told_with_input};
use crate::support::{Who, eventually, sandstorm, stderr, stdout};

#[test]
fn a_sandbox_lives_and_ends() {
    let server = Server::start(Who::Root);
    let wishes =
        ["sandbox", "create", "--label", "team=a", "--memory", "256M", "--lifetime", "10m", "--env", "X=1"];
    let id = told(&server, &wishes).trim_end().to_owned();
    let other = sandbox(&server);
    let listed = told(&server, &["sandbox", "list", "--label", "team=a"]);
    assert!(listed.contains(&id) && listed.contains("team=a") && !listed.contains(&other), "{listed}");
    assert_eq!(json(&server, &["sandbox", "list"])["sandboxes"].as_array().unwrap().len(), 2);

    let short = &id[..14];
    let shown = json(&server, &["sandbox", "get", short]);
    assert_eq!(
        (shown["id"].as_str().unwrap(), &shown["limits"]["memory"]),
        (id.as_str(), &(256_u64 << 20).into())
    );
    assert!(told(&server, &["sandbox", "get", &id]).contains("state"), "people see the same");
    let before = shown["expires_at"].as_str().unwrap().to_owned();
    let after = json(&server, &["sandbox", "extend", &id, "20m"])["expires_at"].as_str().unwrap().to_owned();
    assert!(after > before, "{before} {after}");

    assert_eq!(json(&server, &["sandbox", "pause", &id])["state"], "paused");
    assert_eq!(told(&server, &["sandbox", "resume", &id]).trim_end(), id);
    let network = json(&server, &["sandbox", "network", &id, "allow:example.com"])["network"].to_string();
    assert!(network.contains("example.com"), "{network}");
    let events = told(&server, &["sandbox", "events", &id]);
    for event in ["sandbox:ready", "sandbox:paused"] {
        assert!(events.contains(event), "{event}: {events}");
    }
    json(&server, &["sandbox", "metrics", &id])["samples"].as_array().unwrap();

    assert_eq!(told(&server, &["sandbox", "rm", short, &other]), format!("{id}\n{other}\n"));
    assert_eq!(told(&server, &["sandbox", "list"]), "");
    assert!(told(&server, &["sandbox", "list", "--all"]).contains("terminated"));
    let gone = ask(&server, &["sandbox", "exec", &id, "--", "true"]);
    assert_eq!((gone.status.code(), gone.stdout.is_empty()), (Some(125), true), "{}", stderr(&gone));
}

#[test]
fn programs_run_as_if_they_were_here() {
    let server = Server::start(Who::Root);
    let id = sandbox(&server);
    let output = ask(&server, &["sandbox", "exec", &id, "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!(
        (output.status.code(), stdout(&output).as_str(), stderr(&output).as_str()),
        (Some(3), "out\n", "err\n")
    );
    let wishes =
        ["sandbox", "exec", &id, "--cwd", "/tmp", "--env", "A=b c", "--", "sh", "-c", "pwd; echo $A"];
    assert_eq!(told(&server, &wishes), "/tmp\nb c\n");
    assert_eq!(
        told_with_input(&server, &["sandbox", "exec", "-i", &id, "--", "wc", "-c"], &[b'x'; 300_000]),
        "300000\n"
    );
    let bytes = ask(&server, &["sandbox", "exec", &id, "--", "printf", r"\377\000"]);
    assert_eq!(bytes.stdout, b"\xff\0");
    let killed = ask(&server, &["sandbox", "exec", &id, "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.status.code(), Some(137));
    let slow = ask(&server, &["sandbox", "exec", &id, "--timeout", "300ms", "--", "sleep", "60"]);
    assert_eq!(slow.status.code(), Some(124));
    assert_eq!(stderr(&slow), "sandstorm: ended after its time limit of 300ms; raise it with --timeout\n");
    let result = ask(&server, &["sandbox", "exec", &id, "--json", "--", "sh", "-c", "echo x; exit 4"]);
    let value: serde_json::Value = serde_json::from_slice(&result.stdout).unwrap();
    assert_eq!(
        (result.status.code(), &value["stdout"], &value["exit_code"]),
        (Some(4), &"x\n".into(), &4.into())
    );
    assert_eq!(
        told(&server, &["sandbox", "exec", "-t", &id, "--", "sh", "-c", "test -t 1 && echo $TERM"]),
        "xterm-256color\r\n"
    );
}

#[test]
fn a_program_in_the_background_is_found_again() {
    let server = Server::start(Who::Root);
    let id = sandbox(&server);
    let script = "echo first; while ! test -e go; do sleep 0.05; done; echo last; exit 6";
    let exec = told(&server, &["sandbox", "exec", "-d", &id, "--", "sh", "-c", script]).trim_end().to_owned();
    let short = &exec[..12];
    eventually("its first line", || told(&server, &["sandbox", "logs", &id, short]) == "first\n");
    assert!(told(&server, &["sandbox", "ps", &id]).contains("running"));
    let mut following =
        client(&server).args(["sandbox", "logs", "-f", &id, &exec]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "first");
    told(&server, &["sandbox", "exec", &id, "--", "touch", "go"]);
    assert_eq!(lines.next().unwrap().unwrap(), "last");
    assert!(following.wait().unwrap().success());
    let execs = json(&server, &["sandbox", "ps", &id]);
    let ended =
        execs["execs"].as_array().unwrap().iter().find(|one| one["id"] == exec.as_str()).unwrap().clone();
    assert_eq!(ended["result"]["exit_code"], 6, "{ended:#}");
}

#[test]
fn ctrl_c_interrupts_and_then_kills() {
    let server = Server::start(Who::Root);
    let id = sandbox(&server);
    for (script, signals) in
        [("echo up; exec sleep 1000", 1), ("trap 'echo no' INT; echo up; while :; do sleep 0.1; done", 2)]
    {
        let mut child = client(&server)
            .args(["sandbox", "exec", &id, "--", "sh", "-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..signals {
            // `up`, then what the trap says.
            lines.next().unwrap().unwrap();
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        }
        assert_eq!(child.wait().unwrap().code(), Some(137), "{script}");
    }
    eventually("nothing runs on", || json(&server, &["sandbox", "get", &id])["execs_running"] == 0);
}

#[test]
fn without_a_key_nothing_is_told() {
    let server = Server::start(Who::Root);
    let id = sandbox(&server);
    let output = sandstorm(Who::Root)
        .env("SANDSTORM_URL", format!("http://127.0.0.1:{}", server.port))
        .args(["sandbox", "get", &id])
        .output()
        .unwrap();
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(125), true));
    let told = stderr(&output);
    assert!(told.contains("(request ") && told.contains("SANDSTORM_API_KEY"), "{told}");
}
