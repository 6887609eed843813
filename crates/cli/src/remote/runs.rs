//! `sandstorm runs`: records of one-shot runs on a server.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use sandstorm_client::{Client, Run, RunQuery};
use sandstorm_types::Timestamp;

use super::sandbox::{describe, status};
use super::table::Table;
use super::{Connection, Output, ids, units};

#[derive(Debug, Args)]
pub(crate) struct RunsGroup {
    #[command(flatten)]
    pub(super) connection: Connection,
    #[command(subcommand)]
    pub(super) command: RunsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs, the newest first
    #[command(visible_alias = "ls")]
    List {
        /// Only those that run now
        #[arg(long)]
        running: bool,
        /// Most runs to show
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u32,
    },
    /// Show everything about a run
    Get {
        /// Run: its id, or the beginning of it
        #[arg(value_name = "ID")]
        run: String,
    },
    /// End a run
    Cancel {
        /// Run: its id, or the beginning of it
        #[arg(value_name = "ID")]
        run: String,
    },
}

/// Runs on a page at most.
const PAGE: u32 = 100;

pub(super) async fn serve(client: Client, output: Output, command: RunsCommand) -> anyhow::Result<ExitCode> {
    let client = &client;
    match command {
        RunsCommand::List { running, limit } => {
            let runs = newest(client, running, limit).await?;
            output.list("runs", &runs, || table(&runs, Timestamp::now()))?;
        }
        RunsCommand::Get { run } => {
            let run = client.run_view(ids::run(client, &run).await?).await?;
            output.show(&run, || describe(&serde_json::to_value(&run).unwrap_or_default()))?;
        }
        RunsCommand::Cancel { run } => {
            let run = client.cancel_run(ids::run(client, &run).await?).await?;
            output.line(&run, &run.id.to_string())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn newest(client: &Client, running_only: bool, limit: u32) -> anyhow::Result<Vec<Run>> {
    let limit = limit as usize;
    let mut query = RunQuery { running_only, ..RunQuery::default() };
    let mut runs = Vec::new();
    while runs.len() < limit {
        let left = u32::try_from(limit - runs.len()).unwrap_or(PAGE);
        query.limit = Some(left.min(PAGE));
        let page = client.runs(&query).await?;
        runs.extend(page.items);
        let Some(cursor) = page.next_cursor else { break };
        query.cursor = Some(cursor);
    }
    runs.truncate(limit);
    Ok(runs)
}

fn table(runs: &[Run], now: Timestamp) -> Table {
    let mut table = Table::new(&["RUN", "LANGUAGE", "STATUS", "AGE", "TOOK"]);
    for run in runs {
        let took = run.ended_at.map(|end| format!("{} ms", end.since(run.created_at).as_millis()));
        table.row([
            run.id.to_string().into(),
            run.language.clone().into(),
            status(run.status, run.ended_at.is_none()),
            units::age(run.created_at, now).into(),
            took.unwrap_or_else(|| "-".to_owned()).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn runs_for_people() {
        let run = |bare: &str, status: Option<&str>, problem: Option<&str>, ended: Option<&str>| -> Run {
            serde_json::from_value(serde_json::json!({
                "id": format!("run_{bare}"), "language": "python", "status": status, "problem": problem,
                "created_at": "2026-11-15T12:00:00.000Z", "ended_at": ended,
            }))
            .unwrap()
        };
        let runs = [
            run("aaaaaaaaaaaaaaaaaaaaaaaaaa", None, None, None),
            run("bbbbbbbbbbbbbbbbbbbbbbbbba", Some("ok"), None, Some("2026-11-15T12:00:00.042Z")),
            run(
                "ccccccccccccccccccccccccca",
                None,
                Some("the provider failed"),
                Some("2026-11-15T12:00:01.000Z"),
            ),
        ];
        let now = runs[0].created_at.after(Duration::from_secs(5));
        insta::assert_snapshot!(table(&runs, now).text(false));
    }
}
