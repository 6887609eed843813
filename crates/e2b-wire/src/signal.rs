//! Signals as the agent names them: two that it takes, and all that it tells of, in the words of Go's `os.ProcessState`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A signal that can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "&'static str")]
pub enum Signal {
    Kill,
    Terminate,
}

impl From<Signal> for &'static str {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Kill => "SIGNAL_SIGKILL",
            Signal::Terminate => "SIGNAL_SIGTERM",
        }
    }
}

impl TryFrom<Value> for Signal {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match (value.as_str(), value.as_i64()) {
            (Some("SIGNAL_SIGKILL"), _) | (_, Some(9)) => Ok(Self::Kill),
            (Some("SIGNAL_SIGTERM"), _) | (_, Some(15)) => Ok(Self::Terminate),
            _ => Err("the signal must be SIGNAL_SIGKILL or SIGNAL_SIGTERM"),
        }
    }
}

const NAMES: [(i32, &str); 31] = [
    (1, "hangup"),
    (2, "interrupt"),
    (3, "quit"),
    (4, "illegal instruction"),
    (5, "trace/breakpoint trap"),
    (6, "aborted"),
    (7, "bus error"),
    (8, "floating point exception"),
    (9, "killed"),
    (10, "user defined signal 1"),
    (11, "segmentation fault"),
    (12, "user defined signal 2"),
    (13, "broken pipe"),
    (14, "alarm clock"),
    (15, "terminated"),
    (16, "stack fault"),
    (17, "child exited"),
    (18, "continued"),
    (19, "stopped (signal)"),
    (20, "stopped"),
    (21, "stopped (tty input)"),
    (22, "stopped (tty output)"),
    (23, "urgent I/O condition"),
    (24, "CPU time limit exceeded"),
    (25, "file size limit exceeded"),
    (26, "virtual timer expired"),
    (27, "profiling timer expired"),
    (28, "window changed"),
    (29, "I/O possible"),
    (30, "power failure"),
    (31, "bad system call"),
];

/// The words for a signal.
pub fn name_of(number: i32) -> String {
    match NAMES.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("signal {number}"),
    }
}

/// The signal of a status such as `signal: killed` or `signal: segmentation fault (core dumped)`.
pub fn number_in(status: &str) -> Option<i32> {
    let told = status.strip_prefix("signal: ")?;
    let exact = |name: &str| NAMES.iter().find(|(_, known)| *known == name).map(|(number, _)| *number);
    let numbered =
        |name: &str| name.strip_prefix("signal ")?.parse().ok().filter(|number| (1..=64).contains(number));
    // What comes behind in brackets says more about it; some names have brackets themselves.
    let plain = told.rsplit_once(" (").map_or(told, |(name, _)| name);
    exact(told).or_else(|| numbered(told)).or_else(|| exact(plain)).or_else(|| numbered(plain))
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn words_lead_back_to_numbers() {
        for number in 1..=64 {
            assert_eq!(number_in(&format!("signal: {}", name_of(number))), Some(number));
        }
        assert_eq!(number_in("signal: segmentation fault (core dumped)"), Some(11));
        assert_eq!(number_in("signal: stopped (tty input)"), Some(21));
        for bad in ["exit status 3", "signal: ", "signal: signal 65", "signal: x", "killed", ""] {
            assert_eq!(number_in(bad), None, "{bad}");
        }
    }

    #[test]
    fn signals_are_named_or_numbered() {
        for (given, wanted) in [
            (json!("SIGNAL_SIGKILL"), Some(Signal::Kill)),
            (json!(9), Some(Signal::Kill)),
            (json!("SIGNAL_SIGTERM"), Some(Signal::Terminate)),
            (json!(1), None),
            (json!(null), None),
            (json!("SIGKILL"), None),
        ] {
            assert_eq!(from_value::<Signal>(given.clone()).ok(), wanted, "{given}");
        }
        assert_eq!(to_value(Signal::Kill).unwrap(), "SIGNAL_SIGKILL");
    }
}
