//! `sandstorm sandbox list` and `get`.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use sandstorm_client::{Client, Sandbox, SandboxQuery};
use sandstorm_types::{Phase, Timestamp};

use super::super::table::{Cell, Table};
use super::super::{Output, ids, units};
use super::One;
use super::create::labels;
use crate::complaint::safe;

#[derive(Debug, Args)]
pub(crate) struct ListCommand {
    /// Only those in this state; may be repeated
    #[arg(long, value_name = "STATE")]
    state: Vec<StateName>,
    /// Only those with this label, `KEY=VALUE`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Also those that ended
    #[arg(short, long)]
    all: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum StateName {
    Creating,
    Ready,
    Running,
    Pausing,
    Paused,
    Resuming,
    Terminating,
    Terminated,
    Failed,
}

impl From<StateName> for Phase {
    fn from(name: StateName) -> Self {
        match name {
            StateName::Creating => Self::Creating,
            StateName::Ready => Self::Ready,
            StateName::Running => Self::Running,
            StateName::Pausing => Self::Pausing,
            StateName::Paused => Self::Paused,
            StateName::Resuming => Self::Resuming,
            StateName::Terminating => Self::Terminating,
            StateName::Terminated => Self::Terminated,
            StateName::Failed => Self::Failed,
        }
    }
}

pub(super) async fn list(client: &Client, output: Output, command: ListCommand) -> anyhow::Result<ExitCode> {
    let states: Vec<Phase> = command.state.into_iter().map(Phase::from).collect();
    // Who asks for ended ones by name need not ask for them twice.
    let ended = states.iter().any(|state| matches!(state, Phase::Terminated | Phase::Failed));
    let query = SandboxQuery {
        include_ended: command.all || ended,
        states,
        labels: labels(&command.label)?,
        ..SandboxQuery::default()
    };
    let sandboxes = ids::all_sandboxes(client, query).await?;
    output.list("sandboxes", &sandboxes, || table(&sandboxes, Timestamp::now()))?;
    Ok(ExitCode::SUCCESS)
}

fn table(sandboxes: &[Sandbox], now: Timestamp) -> Table {
    let mut table = Table::new(&["ID", "STATE", "AGE", "ENDS IN", "EXECS", "LABELS"]);
    for sandbox in sandboxes {
        let labels: Vec<_> = sandbox.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        table.row([
            sandbox.id.to_string().into(),
            state(sandbox.state),
            units::age(sandbox.created_at, now).into(),
            units::left(sandbox.expires_at.filter(|_| sandbox.ended_at.is_none()), now).into(),
            sandbox.execs_running.to_string().into(),
            labels.join(",").into(),
        ]);
    }
    table
}

fn state(phase: Phase) -> Cell {
    let (word, colour) = match phase {
        Phase::Creating => ("creating", "36"),
        Phase::Ready => ("ready", "32"),
        Phase::Running => ("running", "1;32"),
        Phase::Pausing => ("pausing", "33"),
        Phase::Paused => ("paused", "33"),
        Phase::Resuming => ("resuming", "36"),
        Phase::Terminating => ("terminating", "2"),
        Phase::Terminated => ("terminated", "2"),
        Phase::Failed => ("failed", "31"),
    };
    Cell::painted(word, colour)
}

pub(super) async fn get(client: &Client, output: Output, one: &One) -> anyhow::Result<ExitCode> {
    let id = ids::sandbox(client, &one.sandbox).await?;
    let sandbox = client.sandbox(id).await?;
    output.show(&sandbox, || describe(&serde_json::to_value(&sandbox).unwrap_or_default()))?;
    Ok(ExitCode::SUCCESS)
}

/// Every field on a line, those of objects below their name.
pub(in crate::remote) fn describe(value: &serde_json::Value) -> String {
    let mut text = String::new();
    describe_below(&mut text, value, 0);
    text
}

fn describe_below(text: &mut String, value: &serde_json::Value, depth: usize) {
    use serde_json::Value;
    let Value::Object(fields) = value else { return };
    let width = fields.keys().map(|key| key.chars().count()).max().unwrap_or(0);
    for (key, value) in fields {
        let indent = " ".repeat(2 * depth);
        match value {
            Value::Null => {}
            Value::Object(inner) if inner.is_empty() => {}
            Value::Object(_) => {
                let _ = writeln!(text, "{indent}{}:", safe(key));
                describe_below(text, value, depth + 1);
            }
            Value::Array(items) if items.is_empty() => {}
            Value::String(word) => {
                let _ = writeln!(text, "{indent}{:<width$}  {}", safe(key), safe(word).replace('\n', " "));
            }
            other => {
                let _ = writeln!(text, "{indent}{:<width$}  {}", safe(key), safe(&other.to_string()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sandbox(bare: &str, state: &str) -> Sandbox {
        serde_json::from_value(serde_json::json!({
            "id": format!("sbx_{bare}"), "state": state, "created_at": "2026-11-15T12:00:00.000Z",
            "expires_at": "2026-11-15T12:10:00.000Z", "execs_running": 2, "labels": { "team": "a", "job": "x" },
            "limits": { "memory": 1024 },
        }))
        .unwrap()
    }

    #[test]
    fn a_list_for_people() {
        let mut ended = sandbox("bbbbbbbbbbbbbbbbbbbbbbbbba", "terminated");
        (ended.ended_at, ended.execs_running) = (Some(ended.created_at), 0);
        ended.labels.clear();
        let now = ended.created_at.after(Duration::from_secs(200));
        let text = table(&[sandbox("aaaaaaaaaaaaaaaaaaaaaaaaaa", "running"), ended], now).text(false);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn one_for_people() {
        let value = serde_json::to_value(sandbox("aaaaaaaaaaaaaaaaaaaaaaaaaa", "ready")).unwrap();
        insta::assert_snapshot!(describe(&value));
    }
}
