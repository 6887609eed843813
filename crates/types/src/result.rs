//! What came of a run or exec, in the one shape that every provider's answer is put into.

use std::collections::BTreeMap;

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Denied, LimitName, SandboxId, Walls};

/// The result. A program that fails is a result; only a platform failure is an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The id of the run or exec.
    pub id: String,
    pub status: Status,
    /// Whether `status` is `ok`.
    pub success: bool,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// What was kept of standard output: text, or base64 where `base64.stdout` says so.
    pub stdout: String,
    pub stderr: String,
    /// Which streams were longer than what was kept.
    pub truncated: PerStream<bool>,
    /// Which streams were not UTF-8 and are given in base64.
    pub base64: PerStream<bool>,
    /// Values that the code produced, the main one first.
    pub results: Vec<RichResult>,
    /// The exception that ended the code.
    pub error: Option<ProgramError>,
    /// Limits that were touched without ending the run.
    pub limits_hit: Vec<LimitName>,
    /// What it wanted to reach on the network while it ran and did not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<Denied>,
    pub walls: Walls,
    pub metrics: Metrics,
    pub route: Route,
    /// The earlier run whose result this is, where it was given again instead of running anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_from: Option<String>,
    /// The budget that ended it, where one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<String>,
}

/// How a run ended. It is decided from kernel counters, never from the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Ok,
    /// Non-zero exit or a signal.
    Error,
    CompileError,
    /// Wall time.
    Timeout,
    /// Processor time.
    Cpu,
    Memory,
    /// Output past its hard cap.
    Output,
    /// Cancelled by the caller.
    Killed,
}

/// A fact about each output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PerStream<T> {
    pub stdout: T,
    pub stderr: T,
}

/// One value by MIME type: `text/plain` as text, images in base64, `application/json` as it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RichResult {
    pub data: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    /// Whether it is the value of the last expression, not something displayed on the way.
    #[serde(default)]
    pub main: bool,
}

/// An exception of the program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProgramError {
    pub name: String,
    pub value: String,
    #[serde(default)]
    pub traceback: Vec<String>,
}

/// What was measured. Times are milliseconds with fractions, since a warm start is a fraction of one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    pub queue_ms: f64,
    pub create_ms: f64,
    /// Only for languages that are compiled.
    pub compile_ms: Option<f64>,
    pub exec_ms: f64,
    pub total_ms: f64,
    pub cpu_ms: f64,
    pub peak_memory_bytes: u64,
    /// Bytes that the program wrote, kept or not.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
}

/// Where it ran and why there.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Route {
    pub provider: String,
    pub isolator: Option<String>,
    pub region: Option<String>,
    pub reason: String,
    /// Every place that was tried, in order, the last one being where it ran.
    pub attempts: Vec<Attempt>,
    pub cost_usd: f64,
}

/// One place that was tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    pub provider: String,
    /// `ok`, or the code of the error.
    pub outcome: String,
    pub ms: f64,
    /// Under which id something was made there, or may have been; `None`: nothing was. Nobody else's matter.
    #[serde(skip)]
    pub sandbox: Option<SandboxId>,
}

impl Status {
    pub const ALL: [Self; 8] = [
        Self::Ok,
        Self::Error,
        Self::CompileError,
        Self::Timeout,
        Self::Cpu,
        Self::Memory,
        Self::Output,
        Self::Killed,
    ];

    /// Its name as it is stored and sent.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::CompileError => "compile_error",
            Self::Timeout => "timeout",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Output => "output",
            Self::Killed => "killed",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

impl RunResult {
    /// Puts both streams in place, as text where they are UTF-8.
    pub fn set_output(&mut self, stdout: Vec<u8>, stderr: Vec<u8>) {
        (self.stdout, self.base64.stdout) = text_or_base64(stdout);
        (self.stderr, self.base64.stderr) = text_or_base64(stderr);
    }

    /// The bytes of standard output, whichever way they are carried; `None` if they are no base64.
    pub fn stdout_bytes(&self) -> Option<Vec<u8>> {
        bytes_of(&self.stdout, self.base64.stdout)
    }

    /// The bytes of standard error.
    pub fn stderr_bytes(&self) -> Option<Vec<u8>> {
        bytes_of(&self.stderr, self.base64.stderr)
    }
}

/// Text as it is, anything else in base64, with the flag that says which.
fn text_or_base64(bytes: Vec<u8>) -> (String, bool) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, false),
        Err(error) => (BASE64.encode(error.as_bytes()), true),
    }
}

fn bytes_of(text: &str, base64: bool) -> Option<Vec<u8>> {
    if base64 { BASE64.decode(text.as_bytes()).ok() } else { Some(text.as_bytes().to_vec()) }
}

/// What the command line exits with after `result`.
pub fn cli_exit_code(result: &RunResult) -> u8 {
    exit_code_after(result.status, result.signal, result.exit_code)
}

/// What the command line exits with after a program that ended so.
pub fn exit_code_after(status: Status, signal: Option<i32>, exit_code: Option<i32>) -> u8 {
    match status {
        Status::Ok => 0,
        Status::Error => match (signal, exit_code) {
            (Some(signal), _) => u8::try_from(signal).map_or(255, |signal| signal.saturating_add(128)),
            (None, Some(code)) => u8::try_from(code).unwrap_or(255),
            (None, None) => 1,
        },
        Status::CompileError => 1,
        Status::Timeout | Status::Cpu => 124,
        Status::Memory | Status::Output | Status::Killed => 137,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn result(status: Status, exit_code: Option<i32>, signal: Option<i32>) -> RunResult {
        RunResult {
            id: "run_x".into(),
            status,
            success: status == Status::Ok,
            exit_code,
            signal,
            stdout: String::new(),
            stderr: String::new(),
            truncated: PerStream::default(),
            base64: PerStream::default(),
            results: Vec::new(),
            error: None,
            limits_hit: Vec::new(),
            denied: Vec::new(),
            walls: Walls::default(),
            metrics: Metrics::default(),
            route: Route::default(),
            cached_from: None,
            stopped_by: None,
        }
    }

    #[test]
    fn exit_codes_follow_the_table() {
        for (status, exit_code, signal, wanted) in [
            (Status::Ok, Some(0), None, 0),
            (Status::Error, Some(3), None, 3),
            (Status::Error, Some(255), None, 255),
            (Status::Error, None, Some(9), 137),
            (Status::Error, None, Some(11), 139),
            (Status::Error, None, None, 1),
            (Status::CompileError, Some(2), None, 1),
            (Status::Timeout, None, Some(9), 124),
            (Status::Cpu, None, Some(9), 124),
            (Status::Memory, None, Some(9), 137),
            (Status::Output, None, Some(9), 137),
            (Status::Killed, None, Some(9), 137),
            (Status::Error, Some(-1), None, 255),
            (Status::Error, None, Some(-5), 255),
        ] {
            assert_eq!(
                cli_exit_code(&result(status, exit_code, signal)),
                wanted,
                "{status:?} {exit_code:?} {signal:?}"
            );
        }
    }

    #[test]
    fn names_are_those_of_the_wire() {
        for status in Status::ALL {
            assert_eq!(Status::named(status.name()), Some(status));
            assert_eq!(serde_json::to_value(status).unwrap(), status.name());
        }
        assert_eq!(Status::named("fine"), None);
    }

    #[test]
    fn json_has_the_promised_keys() {
        let json = serde_json::to_value(result(Status::CompileError, Some(1), None)).unwrap();
        let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
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
            assert!(keys.contains(&key), "{key}");
        }
        assert_eq!(json["status"], "compile_error");
        for key in ["queue_ms", "create_ms", "exec_ms", "total_ms", "cpu_ms", "peak_memory_bytes"] {
            assert!(json["metrics"].get(key).is_some(), "{key}");
        }
        for key in ["provider", "isolator", "region", "reason", "attempts", "cost_usd"] {
            assert!(json["route"].get(key).is_some(), "{key}");
        }
    }

    proptest! {
        #[test]
        fn output_survives_json(stdout: Vec<u8>, stderr in "\\PC*") {
            let mut before = result(Status::Ok, Some(0), None);
            before.set_output(stdout.clone(), stderr.clone().into_bytes());
            let after: RunResult = serde_json::from_str(&serde_json::to_string(&before).unwrap()).unwrap();
            prop_assert_eq!(after.base64.stdout, std::str::from_utf8(&stdout).is_err());
            prop_assert_eq!(after.stdout_bytes(), Some(stdout));
            prop_assert_eq!(after.stderr, stderr);
        }
    }
}
