//! Output that is longer than what is kept: streamed it is whole, and what is cut is said.

use serde_json::Value;

use super::{ask, json, sandbox, told};
use crate::server::instance::Server;
use crate::support::{Who, stderr, stdout};

/// More than a server keeps, and less than what it takes for a flood.
const LENGTH: usize = 12 << 20;

#[test]
fn what_is_streamed_is_not_cut_and_what_is_cut_is_said() {
    let server = Server::start(Who::Root);
    let id = sandbox(&server);
    let write = format!("head -c {LENGTH} /dev/zero | tr '\\0' x; echo end; exit 3");
    let ran = ask(&server, &["sandbox", "exec", &id, "--", "sh", "-c", &write]);
    assert_eq!(ran.status.code(), Some(3), "{}", stderr(&ran));
    assert!(stdout(&ran).ends_with("xend\n") && ran.stdout.len() == LENGTH + 4, "{}", ran.stdout.len());
    assert_eq!(stderr(&ran), "", "nothing is missing");
    // Far more than a flood, for somebody who takes it all.
    let write = "head -c 100000000 /dev/zero | tr '\\0' x";
    let ran = ask(&server, &["sandbox", "exec", &id, "--", "sh", "-c", write]);
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(0), 100_000_000), "{}", stderr(&ran));
    // What the server keeps of it for later is less, and whoever looks there is told.
    let execs = json(&server, &["sandbox", "ps", &id]);
    let exec = execs["execs"][0]["id"].as_str().unwrap();
    let logs = ask(&server, &["sandbox", "logs", &id, exec]);
    assert_eq!((logs.status.code(), logs.stdout.len()), (Some(137), 10 << 20));
    assert!(stderr(&logs).contains("output was cut"), "{}", stderr(&logs));
    assert_eq!(execs["execs"][0]["result"]["truncated"]["stdout"], true);
    // As JSON it is as long, not what the record has of it.
    let write = format!("head -c {LENGTH} /dev/zero | tr '\\0' x");
    let shown = json(&server, &["sandbox", "exec", &id, "--json", "--", "sh", "-c", &write]);
    assert_eq!(shown["stdout"].as_str().unwrap().len(), LENGTH);
    assert_eq!((&shown["truncated"]["stdout"], &shown["status"]), (&false.into(), &"ok".into()));
    // A cell that is streamed comes whole, too, as text and as JSON.
    let context = told(&server, &["context", "create", &id, "--language", "python"]);
    let code = format!("print('x' * {LENGTH})");
    let cell = ["context", "exec", &id, context.trim_end(), "--code", &code];
    let ran = ask(&server, &cell);
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(0), LENGTH + 1), "{}", stderr(&ran));
    assert_eq!(stderr(&ran), "", "nothing is missing");
    let ran = ask(&server, &[&cell[..], &["--json"]].concat());
    let shown: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((ran.status.code(), &shown["truncated"]["stdout"]), (Some(0), &false.into()));
    assert_eq!(shown["stdout"].as_str().unwrap().len(), LENGTH + 1);
    // What is kept of it for later is less, and says so.
    let execs = json(&server, &["sandbox", "ps", &id]);
    let cells = execs["execs"].as_array().unwrap().iter().filter(|exec| exec["context"].is_string());
    let cells: Vec<&Value> = cells.collect();
    assert_eq!(cells.len(), 2);
    assert_eq!(cells[0]["result"]["truncated"]["stdout"], true);
    let logs = ask(&server, &["sandbox", "logs", &id, cells[0]["id"].as_str().unwrap()]);
    assert_eq!((logs.status.code(), logs.stdout.len()), (Some(137), 10 << 20));
    assert!(stderr(&logs).contains("output was cut"), "{}", stderr(&logs));
}

#[test]
fn what_the_network_refused_is_said() {
    let server = Server::start(Who::Root);
    let id = told(&server, &["sandbox", "create", "--network", "allow:example.com"]);
    let code = "import socket\ntry: socket.gethostbyname('evil.example')\nexcept OSError: print('no')";
    let exec = ["sandbox", "exec", id.trim_end()];
    let ran = ask(&server, &[&exec[..], &["--", "python3", "-c", code]].concat());
    assert_eq!((ran.status.code(), stdout(&ran).as_str()), (Some(0), "no\n"), "{}", stderr(&ran));
    for words in [
        "network: the lookup of evil.example was refused: the network policy does not allow the destination",
        "; to allow it, add evil.example with `sandstorm sandbox network`\n",
    ] {
        assert!(stderr(&ran).contains(words), "{}", stderr(&ran));
    }
    let shown = json(&server, &[&exec[..], &["--json", "--", "python3", "-c", code]].concat());
    assert_eq!(shown["denied"][0]["host"], "evil.example", "{shown:#}");
}
