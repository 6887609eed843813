//! How an exec ended, as it is stored and told.

use std::borrow::Cow;

use sandstorm_provider::{Error, ProviderInfo};
use sandstorm_store::Json;
use sandstorm_types::{
    Attempt, End, Event, ExecId, Metrics, PerStream, Problem, RichResult, Route, RunResult, Status, Walls,
};
use serde::{Deserialize, Serialize};

/// Bytes of each stream that are stored with the end. The whole output is with the provider for as long as it keeps it.
pub(super) const KEPT_OUTPUT: usize = 256 << 10;
/// Bytes of rich results that are stored, about.
const KEPT_RESULTS: usize = 1 << 20;
/// Bytes of events that are stored, about.
pub(super) const KEPT_EVENTS: usize = 256 << 10;

/// How an exec ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) result: RunResult,
    /// Set when the platform failed, whatever the program did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<Problem>,
    /// The events of a cell, which no provider keeps; absent when they are too large to store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) events: Option<Vec<Event>>,
    /// The number of the last event of a cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<u64>,
}

impl Ended {
    pub(super) fn new(mut result: RunResult, problem: Option<Problem>) -> Self {
        round(&mut result.metrics);
        Self { result, problem, events: None, last: None }
    }

    /// The end of what the platform could not carry out or lost sight of.
    pub(super) fn by_problem(id: ExecId, info: &ProviderInfo, walls: Walls, error: &Error) -> Self {
        let problem = Problem { code: error.kind(), detail: error.message().to_owned() };
        Self::new(empty(id, Status::Killed, info, walls), Some(problem))
    }

    /// What somebody did away with before it began.
    pub(super) fn killed(id: ExecId, info: &ProviderInfo, walls: Walls) -> Self {
        Self::new(empty(id, Status::Killed, info, walls), None)
    }

    /// The event that tells it.
    pub(super) fn told(&self) -> End {
        End {
            status: self.result.status,
            success: self.result.success,
            exit_code: self.result.exit_code,
            signal: self.result.signal,
            limits_hit: self.result.limits_hit.clone(),
            denied: self.result.denied.clone(),
            metrics: self.result.metrics,
            truncated: self.result.truncated,
            problem: self.problem.clone(),
        }
    }

    /// The stored form as JSON, cut to a bounded size; what was cut says so.
    pub(super) fn stored_text(&self) -> Option<String> {
        match shortened(&self.result) {
            Cow::Borrowed(_) => serde_json::to_string(self).ok(),
            Cow::Owned(result) => serde_json::to_string(&Self { result, ..self.clone() }).ok(),
        }
    }

    pub(super) fn from_json(json: Json) -> Option<Self> {
        serde_json::from_value(json).ok()
    }
}

/// Whole microseconds: what is told now and what is read back from the store later are then the same numbers.
fn round(metrics: &mut Metrics) {
    let Metrics { queue_ms, create_ms, compile_ms, exec_ms, total_ms, cpu_ms, .. } = metrics;
    for millis in [queue_ms, create_ms, exec_ms, total_ms, cpu_ms].into_iter().chain(compile_ms) {
        *millis = (*millis * 1000.0).round() / 1000.0;
    }
}

/// What is stored of a result. Most are short enough as they are, and need no copy.
fn shortened(result: &RunResult) -> Cow<'_, RunResult> {
    let shown: usize = result.results.iter().map(size).fold(0, usize::saturating_add);
    let short = result.stdout.len().max(result.stderr.len()) <= KEPT_OUTPUT && shown <= KEPT_RESULTS;
    if short {
        return Cow::Borrowed(result);
    }
    let mut kept = result.clone();
    shorten(&mut kept);
    Cow::Owned(kept)
}

/// Bytes that a rich result is stored with, about.
fn size(shown: &RichResult) -> usize {
    serde_json::to_string(&shown.data).map_or(usize::MAX, |text| text.len())
}

/// Cuts a result to what is stored of it.
pub(super) fn shorten(result: &mut RunResult) {
    cut(&mut result.stdout, &mut result.truncated.stdout);
    cut(&mut result.stderr, &mut result.truncated.stderr);
    let mut room = KEPT_RESULTS;
    for shown in &mut result.results {
        match room.checked_sub(size(shown)) {
            Some(left) => room = left,
            None => {
                shown.data.clear();
                shown.metadata.insert("truncated".to_owned(), Json::Bool(true));
            }
        }
    }
}

/// The stored form of a result as text.
pub(super) fn stored_text(result: &RunResult) -> Option<String> {
    serde_json::to_string(&shortened(result)).ok()
}

/// A text of at most [`KEPT_OUTPUT`] bytes. Base64 is cut at a whole group, so that it stays readable.
fn cut(text: &mut String, truncated: &mut bool) {
    if text.len() > KEPT_OUTPUT {
        let mut end = KEPT_OUTPUT;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        *truncated = true;
    }
}

/// The result of something that did nothing.
pub(super) fn empty(id: ExecId, status: Status, info: &ProviderInfo, walls: Walls) -> RunResult {
    RunResult {
        id: id.to_string(),
        status,
        success: status == Status::Ok,
        exit_code: None,
        signal: None,
        stdout: String::new(),
        stderr: String::new(),
        truncated: PerStream::default(),
        base64: PerStream::default(),
        results: Vec::new(),
        error: None,
        limits_hit: Vec::new(),
        denied: Vec::new(),
        walls,
        metrics: Metrics::default(),
        route: Route {
            provider: info.name.clone(),
            isolator: Some(info.kind.clone()),
            region: info.region.clone(),
            reason: "where the sandbox is".to_owned(),
            attempts: vec![Attempt {
                provider: info.name.clone(),
                outcome: "ok".to_owned(),
                ms: 0.0,
                sandbox: None,
            }],
            cost_usd: 0.0,
        },
        cached_from: None,
        stopped_by: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> ProviderInfo {
        ProviderInfo { name: "memory".to_owned(), kind: "memory".to_owned(), region: None }
    }

    #[test]
    fn the_stored_form_is_bounded_and_says_what_was_cut() {
        let mut result = empty(ExecId::random(), Status::Ok, &info(), Walls::default());
        result.stdout = "é".repeat(KEPT_OUTPUT);
        let large = RichResult {
            data: [("text/plain".to_owned(), Json::String("x".repeat(2 << 20)))].into(),
            ..RichResult::default()
        };
        result.results = vec![large];
        let stored = Ended::new(result, None).stored_text().unwrap();
        let stored = Ended::from_json(serde_json::from_str(&stored).unwrap()).unwrap();
        assert_eq!(stored.result.stdout.len(), KEPT_OUTPUT);
        assert!(stored.result.truncated.stdout && !stored.result.truncated.stderr);
        assert_eq!(stored.result.results[0].metadata["truncated"], true);
    }
}
