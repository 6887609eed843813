//! Where the time of a run or a cell goes, from the spans that a server sends to its collector: here, to the bench.
//!
//! Every moment between a request and its answer belongs to one stage, the innermost span that is open then, so that the
//! stages add up to the whole.

mod collector;
mod stages;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use serde::Serialize;

use super::arguments::{Extent, Traceable};
use super::http::{Connection, Request};
use super::language::{Language, RESULT};
use super::ours;
use super::place::Place;
use super::progress;
use super::server::Server;
use collector::{Collector, SpanRecord};
use stages::{STAGES, Stage};

/// How long spans may be on their way.
const PATIENCE: Duration = Duration::from_secs(10);

/// The stages of a run in their order.
#[derive(Debug, Serialize)]
pub(super) struct Trace {
    /// How many runs the figures are the mean of: the middle half of those that were traced, by how long they took.
    pub(super) runs: usize,
    pub(super) whole_ms: f64,
    pub(super) stages: Vec<StageTime>,
}

#[derive(Debug, Serialize)]
pub(super) struct StageTime {
    pub(super) name: String,
    pub(super) ms: f64,
    pub(super) share: f64,
}

/// A run that was traced: when it was asked for and answered, in nanoseconds since 1970.
struct Traced {
    id: [u8; 16],
    began: u64,
    ended: u64,
}

pub(super) fn measure(
    what: Traceable,
    binary: &Path,
    place: &Place,
    extent: Extent,
) -> anyhow::Result<Trace> {
    let collector = Collector::start()?;
    let endpoint = collector.endpoint();
    // The stages are spans of the level `debug`, which costs nothing where nobody asked for it.
    let settings =
        [("SANDSTORM_TELEMETRY_OTLP_ENDPOINT", endpoint.as_str()), ("SANDSTORM_LOG_LEVEL", "debug")];
    let server = Server::start(binary, place.path().join("traced"), &settings)?;
    let mut connection = server.connect()?;
    let (path, body) = asked(what, &server, &mut connection)?;
    let mut traced = Vec::new();
    // The first ones are not counted: they fill caches and tell the pool what is wanted.
    let warm_up = extent.traced.div_ceil(5);
    for number in 0..warm_up + extent.traced {
        progress::tell(&format!("traced request {}", number + 1));
        let mut id = [0; 16];
        id[..8].copy_from_slice(b"sandstrm");
        id[8..].copy_from_slice(&(number as u64 + 1).to_be_bytes());
        let parent =
            format!("traceparent: 00-{}-0000000000000001-01\r\n", data_encoding::HEXLOWER.encode(&id));
        let request = Request::with(&server.address, "POST", &path, &parent, body.as_bytes());
        let began = now();
        let answer = connection.send(&request)?;
        let ended = now();
        answer.holding(RESULT)?;
        if number >= warm_up {
            traced.push(Traced { id, began, ended });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let spans = wait_for(&collector, &traced)?;
    server.stop()?;
    let trace = summarize(traced, &spans);
    progress::done(&format!("{} requests traced", trace.runs));
    Ok(trace)
}

/// Where the traced request goes, and what it asks for.
fn asked(what: Traceable, server: &Server, connection: &mut Connection) -> anyhow::Result<(String, String)> {
    let (path, body) = match what {
        Traceable::Run => {
            let (language, code) = (Language::Python.api_name(), Language::Python.code());
            ("/v1/runs".to_owned(), serde_json::json!({"language": language, "code": code}))
        }
        Traceable::Cell => {
            let sandbox = ours::new_sandbox(server, connection)?;
            let (context, _) = ours::new_context(server, connection, &sandbox)?;
            (format!("{context}/execute"), serde_json::json!({"code": Language::Python.code()}))
        }
    };
    Ok((path, body.to_string()))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

type Spans = BTreeMap<[u8; 16], Vec<SpanRecord>>;

/// Waits until the request of every run is there: its span ends last but for the clean-up, which is no part of the answer.
fn wait_for(collector: &Collector, traced: &[Traced]) -> anyhow::Result<Spans> {
    let began = Instant::now();
    loop {
        let mut spans = Spans::new();
        for span in collector.spans() {
            spans.entry(span.trace).or_default().push(span);
        }
        let whole = |run: &Traced| {
            spans.get(&run.id).is_some_and(|list| list.iter().any(|span| span.name == "request"))
        };
        let missing = traced.iter().filter(|run| !whole(run)).count();
        if missing == 0 {
            return Ok(spans);
        }
        if began.elapsed() > PATIENCE {
            bail!("the spans of {missing} of {} runs did not come", traced.len());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn summarize(mut traced: Vec<Traced>, spans: &Spans) -> Trace {
    traced.sort_by_key(|run| run.ended.saturating_sub(run.began));
    let skip = traced.len() / 4;
    let middle = &traced[skip..traced.len() - skip];
    let mut totals: BTreeMap<Stage, u64> = BTreeMap::new();
    let mut whole = 0;
    for run in middle {
        whole += run.ended.saturating_sub(run.began);
        let of_run = spans.get(&run.id).map(Vec::as_slice).unwrap_or_default();
        for (stage, time) in stages::divide(run.began, run.ended, of_run) {
            *totals.entry(stage).or_default() += time;
        }
    }
    let mean = |total: u64| total as f64 / 1e6 / middle.len().max(1) as f64;
    let rows = totals.into_iter().map(|(stage, total)| StageTime {
        name: stage.name().to_owned(),
        ms: mean(total),
        share: total as f64 / whole.max(1) as f64,
    });
    Trace { runs: middle.len(), whole_ms: mean(whole), stages: rows.collect() }
}

impl Trace {
    pub(super) fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string(self).context("the stages cannot be written as JSON")? + "\n")
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!("{:<44} {:>9} {:>7}\n", "stage", "ms", "share");
        for stage in &self.stages {
            let bar = "█".repeat((stage.share * 30.0).round() as usize);
            let _ =
                writeln!(text, "{:<44} {:>9.3} {:>5.1} %  {bar}", stage.name, stage.ms, stage.share * 100.0);
        }
        let _ = writeln!(
            text,
            "{:<44} {:>9.3}   (mean of {} requests)",
            "from request to answer", self.whole_ms, self.runs
        );
        text
    }

    /// Whether every stage that the server has spans for was seen: one that is missing was renamed or left out.
    pub(super) fn missing(&self, what: Traceable) -> Vec<&'static str> {
        let seen = |name: &str| self.stages.iter().any(|stage| stage.name == name);
        let expected = STAGES.iter().filter(|stage| what == Traceable::Run || stage.is_of_cells());
        expected.map(|stage| stage.name()).filter(|name| !seen(name)).collect()
    }
}
