//! What is said where something is missing or ends early, word by word, and what goes to which stream.

use std::process::Command;

use serde_json::Value;

use crate::support::{Place, Who, binary, run, sandstorm, stderr, stdout};

#[test]
fn a_closed_pipe_ends_completions_without_a_word() {
    for shell in ["bash", "zsh", "fish"] {
        // As `head` leaves it: a pipe that has no reader any more.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = sandstorm(Who::Root).args(["completions", shell]).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(141), ""), "{shell}");
    }
}

#[test]
fn a_new_key_is_alone_on_standard_output() {
    let place = Place::new();
    let state = place.path().join("state");
    let state = state.to_str().unwrap();
    for (args, start) in [
        (&["keys", "create"][..], "ss_"),
        (&["keys", "create", "--name", "ci", "--scopes", "run", "--expires", "90d"], "ss_"),
        (&["keys", "create", "--form", "native"], "ss_"),
        (&["keys", "create", "--form", "e2b"], "e2b_"),
    ] {
        let made = run(Who::Root, &[args, &["--state-dir", state]].concat());
        let (key, said) = (stdout(&made), stderr(&made));
        assert_eq!(made.status.code(), Some(0), "{args:?}: {said}");
        let key = key.strip_suffix('\n').unwrap();
        assert!(key.starts_with(start) && !key.contains(char::is_whitespace), "{args:?}: {key:?}");
        assert!(said.contains("it is not shown again") && !said.contains(key), "{args:?}: {said:?}");
    }
    let made = run(Who::Root, &["keys", "create", "--json", "--state-dir", state]);
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(made.as_object().unwrap().len(), 2, "{made}");
    let id = made["id"].as_str().unwrap();
    let next = run(Who::Root, &["keys", "rotate", id, "--state-dir", state]);
    assert!(next.status.success(), "{}", stderr(&next));
    assert_eq!(stdout(&next).lines().count(), 1);
    // As a shell takes it.
    let line = format!(
        "KEY=$({} keys create --state-dir {state} 2>/dev/null); test ${{#KEY}} = ",
        binary().display()
    );
    let length = made["key"].as_str().unwrap().len();
    assert!(Command::new("sh").arg("-c").arg(format!("{line}{length}")).status().unwrap().success());
}

#[test]
fn a_tenant_is_made_once() {
    let place = Place::new();
    let state = place.path().join("state");
    let create = ["tenants", "create", "blue", "--state-dir", state.to_str().unwrap()];
    assert!(run(Who::Root, &create).status.success());
    assert_eq!(
        stderr(&run(Who::Root, &create)),
        "error: there is a tenant \"blue\" already; choose another name, or use that one: `sandstorm tenants list` shows \
         its id\n"
    );
}
