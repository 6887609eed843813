//! `sandstorm sandbox events` and `metrics`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use sandstorm_client::{Activity, Client, Sample};

use super::super::interrupts::Interrupts;
use super::super::table::Table;
use super::super::{Output, ids, units};
use super::logs::{QUIET, until_quiet};
use crate::complaint::safe;

/// Readings that people are shown; programs get all.
const SHOWN: usize = 30;

#[derive(Debug, Args)]
pub(crate) struct EventsCommand {
    /// Sandbox: its id, or the beginning of it; all of them unless given
    #[arg(value_name = "ID")]
    sandbox: Option<String>,
    /// Go on with what happens from now on
    #[arg(short, long)]
    follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MetricsCommand {
    /// Sandbox: its id, or the beginning of it
    #[arg(value_name = "ID")]
    sandbox: String,
    /// Only since this moment, such as `2026-11-15T12:00:00Z`
    #[arg(long, value_name = "TIME")]
    from: Option<sandstorm_types::Timestamp>,
    /// Only up to this moment
    #[arg(long, value_name = "TIME")]
    to: Option<sandstorm_types::Timestamp>,
}

pub(super) async fn events(
    client: &Client,
    output: Output,
    command: EventsCommand,
) -> anyhow::Result<ExitCode> {
    let mut events = match &command.sandbox {
        Some(given) => client.sandbox_events(ids::sandbox(client, given).await?, Some(0)).await?,
        None => client.events(Some(0)).await?,
    };
    let patience = (!command.follow).then_some(QUIET);
    let mut interrupts = Interrupts::catch()?;
    loop {
        let event = tokio::select! {
            event = until_quiet(events.next(), patience) => event,
            _ = interrupts.next() => return Ok(ExitCode::SUCCESS),
        };
        let Some(event) = event else { return Ok(ExitCode::SUCCESS) };
        let event = event?;
        output.show(&event, || line(&event, command.sandbox.is_none()))?;
        std::io::stdout().flush()?;
    }
}

/// When, what, and the facts that belong to it.
fn line(event: &Activity, with_sandbox: bool) -> String {
    let mut text = format!("{}  {:<18}", event.at, safe(&event.name));
    if let Some(sandbox) = event.sandbox.filter(|_| with_sandbox) {
        let _ = write!(text, "  {sandbox}");
    }
    for (key, value) in &event.more {
        match value {
            serde_json::Value::Null => {}
            serde_json::Value::String(word) => {
                let _ = write!(text, "  {}={}", safe(key), safe(word).replace('\n', " "));
            }
            other => {
                let _ = write!(text, "  {}={}", safe(key), safe(&other.to_string()));
            }
        }
    }
    format!("{}\n", text.trim_end())
}

pub(super) async fn metrics(
    client: &Client,
    output: Output,
    command: MetricsCommand,
) -> anyhow::Result<ExitCode> {
    let id = ids::sandbox(client, &command.sandbox).await?;
    let samples = client.metrics(id, command.from, command.to).await?;
    output.list("samples", &samples, || table(&samples[samples.len().saturating_sub(SHOWN)..]))?;
    Ok(ExitCode::SUCCESS)
}

fn table(samples: &[Sample]) -> Table {
    let mut table = Table::new(&["TIME", "CPU S", "MEMORY", "PEAK", "PROCESSES", "DISK", "FILES"]);
    for sample in samples {
        table.row([
            sample.at.to_string().into(),
            format!("{:.2}", sample.cpu_ms as f64 / 1000.0).into(),
            units::bytes(sample.memory_bytes).into(),
            units::bytes(sample.peak_memory_bytes).into(),
            sample.processes.to_string().into(),
            units::bytes(sample.disk_bytes).into(),
            sample.inodes.to_string().into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_for_people() {
        let event: Activity = serde_json::from_value(serde_json::json!({
            "seq": 4, "at": "2026-11-15T12:00:00.000Z", "sandbox": "sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa",
            "type": "network:denied", "destination": "evil\u{1b}[2J:443", "reason": "not allowed", "run": null,
        }))
        .unwrap();
        let sample = Sample {
            at: event.at,
            cpu_ms: 1234,
            memory_bytes: 20 << 20,
            peak_memory_bytes: 30 << 20,
            processes: 3,
            disk_bytes: 100,
            inodes: 7,
        };
        let text = format!("{}{}\n{}", line(&event, false), line(&event, true), table(&[sample]).text(false));
        insta::assert_snapshot!(text);
    }
}
