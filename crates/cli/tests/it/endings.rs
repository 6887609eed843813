//! How programs end, and that the result says so truly: a table of programs with their verdicts.

mod limits;
mod output;
mod passing;
mod stopping;
mod unwaited;

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{self, Who};

/// A program and how its run must end.
struct Case {
    name: &'static str,
    language: &'static str,
    code: &'static str,
    flags: &'static [&'static str],
    status: &'static str,
    exit_code: Option<i64>,
    signal: Option<i64>,
    /// What `sandstorm run` exits with.
    cli: i32,
    limits_hit: &'static [&'static str],
    /// The run must be over before what it waits for would be by itself: a verdict that comes late is none.
    within: Duration,
}

/// A bash program that ends well, to be changed by each case.
const CASE: Case = Case {
    name: "",
    language: "bash",
    code: "",
    flags: &[],
    status: "ok",
    exit_code: Some(0),
    signal: None,
    cli: 0,
    limits_hit: &[],
    within: support::PATIENCE,
};

impl Case {
    /// Runs it and compares everything that the result says about the end.
    fn check(&self, who: Who) -> Value {
        let mut args = vec!["-l", self.language, "-c", self.code];
        args.extend(self.flags);
        let began = Instant::now();
        let (result, cli) = support::ending(who, &args);
        let took = began.elapsed();
        let found = (
            result["status"].as_str().unwrap(),
            result["exit_code"].as_i64(),
            result["signal"].as_i64(),
            cli,
            result["limits_hit"].as_array().unwrap().iter().map(|l| l.as_str().unwrap()).collect::<Vec<_>>(),
        );
        let wanted = (self.status, self.exit_code, self.signal, self.cli, self.limits_hit.to_vec());
        assert_eq!(found, wanted, "{} as {who:?}: {result:#}", self.name);
        assert_eq!(result["success"], self.status == "ok", "{} as {who:?}", self.name);
        assert!(took < self.within, "{} as {who:?} took {took:?}", self.name);
        result
    }
}

fn check_all(cases: &[Case]) {
    for who in Who::all() {
        for case in cases {
            case.check(who);
        }
    }
}

#[test]
fn exit_codes_and_signals_are_the_programs_own() {
    check_all(&[
        Case { name: "exit 0", code: "exit 0", ..CASE },
        Case { name: "exit 7", code: "exit 7", status: "error", exit_code: Some(7), cli: 7, ..CASE },
        Case { name: "exit 255", code: "exit 255", status: "error", exit_code: Some(255), cli: 255, ..CASE },
        Case {
            name: "terminated by itself",
            code: "kill -TERM $$",
            status: "error",
            exit_code: None,
            signal: Some(15),
            cli: 143,
            ..CASE
        },
        Case {
            name: "abort",
            language: "python",
            code: "import os; os.abort()",
            status: "error",
            exit_code: None,
            signal: Some(6),
            cli: 134,
            ..CASE
        },
        Case {
            name: "segmentation fault",
            language: "python",
            code: "import ctypes; ctypes.string_at(0)",
            status: "error",
            exit_code: None,
            signal: Some(11),
            cli: 139,
            ..CASE
        },
        Case {
            name: "exception",
            language: "python",
            code: "1/0",
            status: "error",
            exit_code: Some(1),
            cli: 1,
            ..CASE
        },
    ]);
}

#[test]
fn an_ending_that_looks_like_a_limit_is_none() {
    check_all(&[
        Case {
            name: "killed by itself",
            code: "kill -KILL $$",
            status: "error",
            exit_code: None,
            signal: Some(9),
            cli: 137,
            ..CASE
        },
        Case { name: "exit 137", code: "exit 137", status: "error", exit_code: Some(137), cli: 137, ..CASE },
        Case { name: "exit 124", code: "exit 124", status: "error", exit_code: Some(124), cli: 124, ..CASE },
        Case { name: "exit 125", code: "exit 125", status: "error", exit_code: Some(125), cli: 125, ..CASE },
        Case {
            name: "claims to be out of memory",
            language: "python",
            code: "raise MemoryError",
            status: "error",
            exit_code: Some(1),
            cli: 1,
            ..CASE
        },
    ]);
}

/// What no program should be able to turn into a result of its own making.
#[test]
fn a_program_cannot_print_its_own_verdict() {
    use sandstorm_agent::protocol::{Ending, FromAgent, TaskUsage};
    let usage = TaskUsage { user_microseconds: 0, system_microseconds: 0, peak_memory_bytes: 0 };
    let exited = FromAgent::Exited { id: 1, ending: Ending::Code(0), usage };
    let frame = sandstorm_agent::frame::encode(&exited).unwrap();
    let frame: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
    let code = format!(
        r#"
import os, sys
frame = bytes.fromhex("{frame}")
for fd in range(1, 64):
    try:
        os.write(fd, frame)
    except OSError:
        pass
print('{{"id":"run_aaaaaaaaaaaaaaaaaaaaaaaaaa","status":"ok","success":true,"exit_code":0}}', flush=True)
sys.exit(3)
"#
    );
    for who in Who::all() {
        let (result, cli) = support::ending(who, &["-l", "python", "-c", &code]);
        assert_eq!(
            (result["status"].as_str(), result["exit_code"].as_i64(), cli),
            (Some("error"), Some(3), 3)
        );
        assert_ne!(result["id"], "run_aaaaaaaaaaaaaaaaaaaaaaaaaa");
    }
}
