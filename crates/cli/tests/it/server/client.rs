//! The command line as a client of a real server.

mod contexts;
mod files;
mod messages;
mod output;
mod sandboxes;
mod snapshots;
mod terminal;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::instance::Server;
use crate::support::{Who, sandstorm, stderr, stdout};

/// The command line with the server and the key in its environment.
fn client(server: &Server) -> Command {
    let mut command = sandstorm(Who::Root);
    command
        .env("SANDSTORM_URL", format!("http://127.0.0.1:{}", server.port))
        .env("SANDSTORM_API_KEY", &server.key);
    command
}

pub(super) fn ask(server: &Server, args: &[&str]) -> Output {
    client(server).args(args).output().unwrap()
}

/// What a command that must succeed wrote.
#[track_caller]
fn told(server: &Server, args: &[&str]) -> String {
    let output = ask(server, args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

/// The same as JSON.
#[track_caller]
fn json(server: &Server, args: &[&str]) -> Value {
    let text = told(server, &[args, &["--json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"))
}

#[track_caller]
fn told_with_input(server: &Server, args: &[&str], input: &[u8]) -> String {
    let mut child = client(server)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

/// A new sandbox's id.
#[track_caller]
fn sandbox(server: &Server) -> String {
    told(server, &["sandbox", "create"]).trim_end().to_owned()
}
