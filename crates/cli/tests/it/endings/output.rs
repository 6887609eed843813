//! Output: cut at its limit, ended far past it, carried byte for byte.

use super::{CASE, Case};
use crate::support::{self, Who};

/// Kept and counted: the limit of these runs.
const KEPT: usize = 64 << 10;

const FLOOD: Case = Case {
    flags: &["--output", "64K", "--timeout", "5m"],
    status: "output",
    exit_code: None,
    signal: Some(9),
    cli: 137,
    ..CASE
};

#[test]
fn a_flood_is_ended_and_its_beginning_kept() {
    for who in Who::all() {
        let yes = Case { name: "yes", code: "yes", ..FLOOD }.check(who);
        assert_eq!(yes["stdout"].as_str().unwrap(), "y\n".repeat(KEPT / 2));
        assert_eq!(yes["truncated"], serde_json::json!({"stdout": true, "stderr": false}));
        let stderr = Case { name: "yes on stderr", code: "yes >&2", ..FLOOD }.check(who);
        assert_eq!(stderr["stderr"].as_str().unwrap().len(), KEPT);
        assert_eq!(stderr["truncated"], serde_json::json!({"stdout": false, "stderr": true}));
        let both = Case { name: "both at once", code: "yes >&2 & yes", ..FLOOD }.check(who);
        let kept = both["stdout"].as_str().unwrap().len() + both["stderr"].as_str().unwrap().len();
        assert_eq!(kept, KEPT);
    }
    Case { name: "zeros", code: "cat /dev/zero", ..FLOOD }.check(Who::Root);
    Case { name: "from a child", code: "yes & wait", ..FLOOD }.check(Who::Root);
}

#[test]
fn output_past_its_limit_is_cut_and_counted() {
    for who in Who::all() {
        let case = Case {
            name: "100,000 bytes",
            code: "head -c 100000 /dev/zero | tr '\\0' x",
            flags: &["--output", "64K"],
            cli: 137,
            ..CASE
        };
        let result = case.check(who);
        assert_eq!(result["stdout"].as_str().unwrap().len(), KEPT);
        assert_eq!(result["truncated"], serde_json::json!({"stdout": true, "stderr": false}));
        assert_eq!(result["metrics"]["stdout_bytes"], 100_000);
        let case = Case {
            name: "exactly the limit",
            code: "head -c 65536 /dev/zero | tr '\\0' x",
            flags: &["--output", "64K"],
            ..CASE
        };
        let result = case.check(who);
        assert_eq!(result["truncated"], serde_json::json!({"stdout": false, "stderr": false}));
    }
}

#[test]
fn output_that_streams_is_whole() {
    // More than the limit, and far more than what ends a program without a reader.
    for (length, who) in [(100_000, Who::Root), (30_000_000, Who::Root), (30_000_000, Who::Single)] {
        if !Who::all().contains(&who) {
            continue;
        }
        let code = format!("head -c {length} /dev/zero | tr '\\0' x; echo end >&2");
        let output = support::run(who, &["run", "--output", "64K", "-l", "bash", "-c", &code]);
        let said = (output.status.code(), support::stderr(&output));
        assert_eq!(said, (Some(0), "end\n".to_owned()), "{who:?}");
        assert_eq!(output.stdout.len(), length, "{who:?}");
    }
}

#[test]
fn output_that_was_cut_is_said() {
    let code = "head -c 100000 /dev/zero | tr '\\0' x";
    let output = support::run(Who::Root, &["run", "--json", "--output", "64K", "-l", "bash", "-c", code]);
    let said = (output.status.code(), support::stderr(&output));
    assert_eq!(said, (Some(137), "sandstorm: output was cut at 64KiB\n".to_owned()));
    // The program's own code says more.
    let code = format!("{code}; exit 3");
    let output = support::run(Who::Root, &["run", "--json", "--output", "64K", "-l", "bash", "-c", &code]);
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn bytes_arrive_as_they_were_written() {
    let code = "import os\nos.write(1, bytes(range(256)))\nos.write(2, 'naïve 🌪\\r\\n\\x1b[2Jdata: x\\n\\n'.encode())";
    let (result, _) = support::ending(Who::Root, &["-l", "python", "-c", code]);
    assert_eq!(result["base64"], serde_json::json!({"stdout": true, "stderr": false}), "{result:#}");
    let all: Vec<u8> = (0..=255).collect();
    let decoded = std::process::Command::new("base64")
        .arg("-d")
        .stdin(text_file(result["stdout"].as_str().unwrap()))
        .output()
        .unwrap();
    assert_eq!(decoded.stdout, all);
    assert_eq!(result["stderr"], "naïve 🌪\r\n\u{1b}[2Jdata: x\n\n");
    // Without --json the bytes themselves come out.
    let plain = support::run(Who::Root, &["run", "-l", "python", "-c", code]);
    assert_eq!(plain.stdout, all);
}

#[test]
fn a_character_is_not_torn_between_two_writes() {
    let code = "import os, time\nfor b in '🌪é'.encode():\n  os.write(1, bytes([b])); time.sleep(0.02)";
    let (result, _) = support::ending(Who::Root, &["-l", "python", "-c", code]);
    assert_eq!(result["stdout"], "🌪é");
}

#[test]
fn many_small_writes_to_both_streams_all_arrive() {
    let code = "import os\nfor i in range(20000):\n  os.write(1, b'a'); os.write(2, b'b')";
    for who in Who::all() {
        let result = Case { name: "one byte at a time", language: "python", code, ..CASE }.check(who);
        assert!(result["stdout"] == "a".repeat(20_000) && result["stderr"] == "b".repeat(20_000), "{who:?}");
    }
}

fn text_file(text: &str) -> std::process::Stdio {
    use std::io::{Seek, Write};
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.rewind().unwrap();
    file.into()
}
