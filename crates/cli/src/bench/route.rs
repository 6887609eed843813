//! `sandstorm bench route`: how the router would have done on a trace of real providers.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use sandstorm_catalog::Usd;
use sandstorm_router::backtest::{self, Mode, Options, Trace};

use crate::complaint::misuse;

/// What is replayed unless another trace is named.
const TRACE: &str = include_str!("../../../../fixtures/route/tti_daily.csv");

/// `sandstorm bench route`.
#[derive(Debug, Args)]
#[command(
    after_help = "A trace is CSV: mode,date,provider,n,ok,min,p50,p95,p99,max; times in milliseconds. The first day is for \
                  learning and is not counted. Exit codes: 0 every promise holds; 1 one does not."
)]
pub(crate) struct RouteCommand {
    /// Trace to replay [default: ten weeks of hosted providers in spring 2026]
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// How runs were started: `sequential`, `staggered`, `burst`
    #[arg(long, value_name = "MODE", default_value = "sequential")]
    mode: Mode,
    /// How often to replay, each time with other draws
    #[arg(long, value_name = "N", default_value_t = 10)]
    seeds: u64,
    /// Requests on each day, evenly spread
    #[arg(long, value_name = "N", default_value_t = 200)]
    requests: u32,
    /// Price of a CPU-hour at providers without a known one; without it they are left out
    #[arg(long, value_name = "USD")]
    assume_hourly: Option<Usd>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn route(command: &RouteCommand) -> anyhow::Result<ExitCode> {
    if command.seeds == 0 || command.requests == 0 {
        return Err(misuse("there has to be at least one seed and one request"));
    }
    let trace: Trace = match &command.trace {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("could not read {}", path.display()))?
            .parse()
            .with_context(|| format!("{} is not a trace", path.display()))?,
        None => TRACE.parse().context("could not read the trace")?,
    };
    let options = Options {
        seeds: (1..=command.seeds).collect(),
        requests_per_day: command.requests,
        unpriced_hour: command.assume_hourly,
        ..Options::new(command.mode)
    };
    let report = backtest::run(&trace, &options)?;
    let text = if command.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.markdown() };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    let holds = report.verdicts.iter().all(|verdict| verdict.holds);
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_every_arm_and_promise() {
        let trace: Trace = TRACE.parse().unwrap();
        let options = Options { seeds: vec![1], requests_per_day: 5, ..Options::new(Mode::Burst) };
        let report = backtest::run(&trace, &options).unwrap();
        let text = report.markdown();
        assert_eq!(text.lines().filter(|line| line.starts_with("| always ")).count(), report.rows.len() - 4);
        assert!(text.contains("\n| cheapest: cost within 2 % of the cheapest | "), "{text}");
        assert!(text.contains("their price is not known: "), "{text}");
    }
}
