//! The command line as people and scripts meet it: help, shapes of JSON, streams, terminals.

mod configuration;
mod messages;
mod remote;
mod terminal;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{Place, Who, result, run, run_with_input, sandstorm, stderr, stdout};

#[test]
fn help_is_as_written() {
    for (name, args) in [
        ("sandstorm", &["--help"][..]),
        ("run", &["run", "--help"]),
        ("doctor", &["doctor", "--help"]),
        ("config", &["config", "--help"]),
    ] {
        let output = run(Who::Root, args);
        assert_eq!(output.status.code(), Some(0));
        insta::assert_snapshot!(format!("help_{name}"), stdout(&output));
    }
}

#[test]
fn the_version_is_told() {
    assert_eq!(stdout(&run(Who::Root, &["--version"])), format!("sandstorm {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn bad_usage_is_told_on_the_error_stream() {
    for args in [
        &["frobnicate"][..],
        &[],
        &["run"],
        &["run", "-c", "x"],
        &["run", "a.py", "-l", "c", "-c", "x"],
        &["doctor", "--maybe"],
    ] {
        let output = run(Who::Root, args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn completions_are_valid_scripts() {
    let place = Place::new();
    for (shell, mark) in
        [("bash", "complete -F"), ("zsh", "#compdef sandstorm"), ("fish", "complete -c sandstorm")]
    {
        let output = run(Who::Root, &["completions", shell]);
        let script = stdout(&output);
        assert!(script.contains(mark) && script.contains("cpu-time"), "{shell}: {script}");
        let file = place.write(shell, script);
        match Command::new(shell).arg("-n").arg(file).output() {
            Ok(checked) => assert!(checked.status.success(), "{shell}: {}", stderr(&checked)),
            Err(e) => assert_ne!(shell, "bash", "{e}"),
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let place = Place::new();
    let folder = place.path().join("share/man1");
    let output = run(Who::Root, &["manual", folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert!(read("sandstorm.1").contains("sandstorm\\-run(1)"));
    assert!(read("sandstorm-run.1").contains("cpu\\-time"));
    assert!(read("sandstorm-config-init.1").contains("Write a commented file with every default"));
    let pages: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .collect();
    for page in pages {
        assert!(!page.contains("-help"), "{page}: help needs no page");
        assert!(read(&page).contains(concat!("Sandstorm ", env!("CARGO_PKG_VERSION"))), "{page}");
    }
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_result_has_every_promised_field() {
    let result = result(Who::Root, &["-l", "bash", "-c", "echo out; echo err >&2; exit 3"]);
    for key in [
        "id",
        "status",
        "success",
        "exit_code",
        "signal",
        "stdout",
        "stderr",
        "truncated",
        "results",
        "error",
        "limits_hit",
        "walls",
        "metrics",
        "route",
    ] {
        assert!(result.get(key).is_some(), "{key}: {result:#}");
    }
    assert_eq!(
        (&result["status"], &result["success"], &result["exit_code"]),
        (&"error".into(), &false.into(), &3.into())
    );
    assert_eq!((&result["stdout"], &result["stderr"]), (&"out\n".into(), &"err\n".into()));
    for key in ["queue_ms", "create_ms", "exec_ms", "total_ms", "cpu_ms", "peak_memory_bytes"] {
        assert!(result["metrics"][key].is_number(), "{key}: {result:#}");
    }
    for key in ["provider", "isolator", "region", "reason", "attempts", "cost_usd"] {
        assert!(result["route"].get(key).is_some(), "{key}: {result:#}");
    }
    assert!(result["id"].as_str().unwrap().starts_with("run_"));
}

#[test]
fn languages_have_the_promised_shape() {
    let output = run(Who::Root, &["languages", "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(keys(&answer), ["languages"]);
    for language in answer["languages"].as_array().unwrap() {
        let mut found = keys(language);
        found.sort_unstable();
        assert_eq!(found, ["available", "install", "name", "version"]);
    }
    let bash = answer["languages"].as_array().unwrap().iter().find(|l| l["name"] == "bash").unwrap();
    assert_eq!(bash["available"], true);
    assert!(bash["version"].as_str().unwrap().contains('.'));
    let table = stdout(&run(Who::Root, &["languages"]));
    assert!(table.lines().any(|line| line.starts_with("bash  ")), "{table}");
}

#[test]
fn output_comes_as_it_is_made_and_input_goes_the_other_way() {
    let script = "echo first; read line; echo \"got $line\"; echo last >&2";
    let mut child = sandstorm(Who::Root)
        .args(["run", "-l", "bash", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "first");
    // It cannot have ended: it waits for this.
    assert!(child.try_wait().unwrap().is_none());
    child.stdin.take().unwrap().write_all(b"answer\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "got answer");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), "last\n"));
}

#[test]
fn code_comes_from_standard_input() {
    let output = run_with_input(Who::Root, &["run", "-l", "python", "-"], b"print(6 * 7)");
    assert_eq!(stdout(&output), "42\n", "{}", stderr(&output));
    let told_by_itself =
        run_with_input(Who::Root, &["run", "-"], b"#!/usr/bin/env -S python3 -u\nprint(6 * 7)");
    assert_eq!(stdout(&told_by_itself), "42\n", "{}", stderr(&told_by_itself));
}

#[test]
fn a_program_tells_its_language_in_its_first_line() {
    let place = Place::new();
    let file = place.write("tool", "#!/usr/bin/python3\nimport sys\nprint(sys.version_info.major)\n");
    let output = run(Who::Root, &["run", file.to_str().unwrap()]);
    assert_eq!(stdout(&output), "3\n", "{}", stderr(&output));
}

#[test]
fn arguments_reach_the_program_as_they_are() {
    let code = "import sys, json; print(json.dumps(sys.argv[1:]))";
    let output = run(
        Who::Root,
        &["run", "-l", "python", "-c", code, "--", "--json", "a b", "", "-l", "*", "$HOME", "--"],
    );
    assert_eq!(
        stdout(&output),
        "[\"--json\", \"a b\", \"\", \"-l\", \"*\", \"$HOME\", \"--\"]\n",
        "{}",
        stderr(&output)
    );
}

#[test]
fn bytes_that_are_no_text_pass_through() {
    let output = run(Who::Root, &["run", "-l", "bash", "-c", r"printf '\xff\x00\x1b[2J'"]);
    assert_eq!(output.stdout, b"\xff\x00\x1b[2J");
}

/// `sandstorm … | head -1` is no failure to complain about.
#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut child =
        sandstorm(Who::Root).args(["doctor"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(141), ""));
}

#[test]
fn each_change_of_state_is_one_event_of_the_log() {
    let logged = |format: &str, level: &str| {
        let mut command = sandstorm(Who::Root);
        command.env("SANDSTORM_LOG_FORMAT", format).env("SANDSTORM_LOG_LEVEL", level);
        stderr(&command.args(["run", "-l", "bash", "-c", "true"]).output().unwrap())
    };
    let log = logged("json", "info");
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let steps: Vec<_> = events
        .iter()
        .filter(|event| event["event"] == "sandbox_state")
        .map(|event| (event["from"].as_str().unwrap(), event["to"].as_str().unwrap()))
        .collect();
    assert_eq!(
        steps,
        [("creating", "ready"), ("ready", "terminating"), ("terminating", "terminated")],
        "{log}"
    );
    assert!(events[0]["sandbox"].as_str().unwrap().starts_with("sbx_"));
    assert!(logged("pretty", "info").contains("from=creating to=ready"));
    assert_eq!(logged("pretty", "warn"), "");
    assert_eq!(stderr(&run(Who::Root, &["run", "-l", "bash", "-c", "true"])), "", "quiet unless asked");
}
