//! `sandstorm bench route`: how the router would have done on a trace of real providers.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use sandstorm_catalog::Usd;
use sandstorm_router::backtest::{self, Mode, Options, Report, Row, Spread, Trace};

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
    let text = if command.json { serde_json::to_string_pretty(&report)? + "\n" } else { markdown(&report) };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    let holds = report.verdicts.iter().all(|verdict| verdict.holds);
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn markdown(report: &Report) -> String {
    let mut text = format!(
        "{}: {} days, {} requests a day, {} seeds; medians, with the lowest and highest seed in brackets.\n\
         Best provider in hindsight: {}; cheapest: {}.\n",
        report.mode,
        report.days,
        report.requests_per_day,
        report.seeds.len(),
        report.best,
        report.cheapest
    );
    if !report.unpriced.is_empty() {
        let _ = writeln!(text, "Left out, since their price is not known: {}.", report.unpriced.join(", "));
    }
    text += "\n| arm | days | p50 ms | p95 ms | p99 ms | failures | extra attempts | probes | USD per 1,000 | regret ms |\n";
    text += "|---|---|---|---|---|---|---|---|---|---|\n";
    report.rows.iter().for_each(|row| text += &line(row));
    text += "\n| promise | found | allowed | seeds | |\n|---|---|---|---|---|\n";
    for verdict in &report.verdicts {
        let mark = if verdict.holds { "holds" } else { "**does not hold**" };
        let (found, allowed) = (digits(verdict.found), digits(verdict.allowed));
        let seeds = format!("{} of {}", verdict.seeds, report.seeds.len());
        let _ = writeln!(text, "| {} | {found} | {allowed} | {seeds} | {mark} |", verdict.promise);
    }
    text
}

fn line(row: &Row) -> String {
    let days = row.days.map(|days| days.to_string()).unwrap_or_default();
    let cells = [
        spread(row.p50_ms),
        spread(row.p95_ms),
        spread(row.p99_ms),
        spread(row.failures),
        spread(row.extra_attempts),
        spread(row.probes),
        spread(row.usd_per_1000),
        spread(row.regret_ms),
    ];
    format!("| {} | {days} | {} |\n", row.name, cells.join(" | "))
}

fn spread(spread: Spread) -> String {
    if spread.low == spread.high {
        return digits(spread.median);
    }
    format!("{} ({} to {})", digits(spread.median), digits(spread.low), digits(spread.high))
}

/// Whole numbers where there are many digits, four places where there are few.
fn digits(value: f64) -> String {
    if value == 0.0 || value.abs() >= 10.0 { format!("{value:.0}") } else { format!("{value:.4}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_every_arm_and_promise() {
        let trace: Trace = TRACE.parse().unwrap();
        let options = Options { seeds: vec![1], requests_per_day: 5, ..Options::new(Mode::Burst) };
        let report = backtest::run(&trace, &options).unwrap();
        let text = markdown(&report);
        assert_eq!(text.lines().filter(|line| line.starts_with("| always ")).count(), report.rows.len() - 4);
        assert!(text.contains("\n| cheapest: cost within 2 % of the cheapest | "), "{text}");
        assert!(text.contains("their price is not known: "), "{text}");
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(
            (digits(0.0), digits(123.4), digits(0.16251)),
            ("0".into(), "123".into(), "0.1625".into())
        );
        assert_eq!(spread(Spread { median: 20.0, low: 10.0, high: 30.0 }), "20 (10 to 30)");
        assert_eq!(spread(Spread { median: 20.0, low: 20.0, high: 20.0 }), "20");
    }
}
