//! What the suite found.

use std::fmt;
use std::time::Duration;

/// The outcome of every case.
#[derive(Debug, Clone)]
pub struct Report {
    pub provider: String,
    pub cases: Vec<CaseReport>,
}

#[derive(Debug, Clone)]
pub struct CaseReport {
    pub suite: &'static str,
    pub name: &'static str,
    pub outcome: Outcome,
    pub took: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// Not tried, and why.
    Skipped(String),
    /// What was wrong.
    Failed(String),
}

impl Report {
    /// Whether something was tried and nothing failed.
    pub fn passed(&self) -> bool {
        self.failures().next().is_none() && self.cases.iter().any(|case| case.outcome == Outcome::Passed)
    }

    pub fn failures(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases.iter().filter(|case| matches!(case.outcome, Outcome::Failed(_)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "conformance of {}", self.provider)?;
        for CaseReport { suite, name, outcome, took } in &self.cases {
            let (word, reason) = match outcome {
                Outcome::Passed => ("pass", ""),
                Outcome::Skipped(reason) => ("skip", reason.as_str()),
                Outcome::Failed(reason) => ("FAIL", reason.as_str()),
            };
            let separator = if reason.is_empty() { "" } else { ": " };
            writeln!(f, "{word} {suite}/{name} ({} ms){separator}{reason}", took.as_millis())?;
        }
        Ok(())
    }
}
