//! `sandstorm providers` and `sandstorm route`: where a server's sandboxes go, and why there.

mod flags;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use sandstorm_client::Client;
use sandstorm_types::Enforcement;
use serde_json::{Map, Value, json};

use super::table::{Cell, Table};
use super::{Connection, Output};
use crate::complaint::{note, safe};
pub(crate) use flags::RoutingFlags;

#[derive(Debug, Args)]
pub(crate) struct ProvidersCommand {
    #[command(flatten)]
    pub(super) connection: Connection,
}

#[derive(Debug, Args)]
pub(crate) struct RouteGroup {
    #[command(flatten)]
    pub(super) connection: Connection,
    #[command(subcommand)]
    pub(super) command: RouteCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RouteCommand {
    /// Say where a sandbox would go, with every provider's verdict; nothing is made
    Explain(Box<ExplainCommand>),
}

#[derive(Debug, Args)]
pub(crate) struct ExplainCommand {
    #[command(flatten)]
    routing: RoutingFlags,
    /// Memory, such as `512M`
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Processors, such as `0.5`
    #[arg(long, value_name = "N")]
    cpus: Option<String>,
    /// Also where a wall or limit cannot be had
    #[arg(long)]
    best_effort: bool,
}

pub(super) async fn providers(client: Client, output: Output) -> anyhow::Result<ExitCode> {
    let answer = client.providers().await?;
    let providers = answer["providers"].as_array().cloned().unwrap_or_default();
    output.list("providers", &providers, || table(&providers))?;
    if !output.json {
        for one in &providers {
            for warning in texts(&one["warnings"]) {
                note(&safe(&warning));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn route(client: Client, output: Output, command: RouteCommand) -> anyhow::Result<ExitCode> {
    let RouteCommand::Explain(command) = command;
    let answer = client.explain_route(&command.request()?).await?;
    output.show(&answer, || explanation(&answer))?;
    Ok(if answer["provider"].is_null() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl ExplainCommand {
    fn request(&self) -> anyhow::Result<Value> {
        let mut limits = Map::new();
        for (name, text) in [("memory", &self.memory), ("cpus", &self.cpus)] {
            limits.extend(text.as_ref().map(|text| (name.to_owned(), json!(text))));
        }
        let mut request = json!({ "limits": limits, "routing": self.routing.routing()? });
        if self.best_effort {
            request["enforcement"] = json!(Enforcement::BestEffort);
        }
        Ok(request)
    }
}

fn table(providers: &[Value]) -> Table {
    let mut table =
        Table::new(&["PROVIDER", "KIND", "REGION", "UP", "SANDBOXES", "ISOLATION", "USD/MINUTE", "HEALTH"]);
    for one in providers {
        let up = one["up"] == true;
        let health = one["trouble"].as_str().unwrap_or(one["health"].as_str().unwrap_or("-"));
        table.row([
            text(&one["name"]),
            text(&one["kind"]),
            text(&one["region"]),
            Cell::painted(if up { "yes" } else { "no" }, if up { "32" } else { "31" }),
            text(&one["sandboxes"]),
            text(&one["isolation"]),
            one["minute_usd"].as_f64().map_or_else(|| "unknown".to_owned(), |usd| format!("{usd:.6}")).into(),
            health.into(),
        ]);
    }
    table
}

fn text(value: &Value) -> Cell {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone().into(),
        other => other.to_string().into(),
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

fn explanation(answer: &Value) -> String {
    let mut told = String::new();
    let mut line = |text: String| {
        told.push_str(&safe(&text));
        told.push('\n');
    };
    for why in texts(&answer["why"]) {
        line(why);
    }
    for (rank, one) in answer["ranked"].as_array().into_iter().flatten().enumerate() {
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let (ready, cost) = (&one["ready_ms"], &one["cost_usd"]);
        line(format!(
            "{}. {}: ready in {:.0} ms ({:.0} to {:.0}), {:.6} USD ({:.6} to {:.6}), {:.1} % fail, {:.0} seen",
            rank + 1,
            one["provider"].as_str().unwrap_or("-"),
            number(&ready["expected"]),
            number(&ready["low"]),
            number(&ready["high"]),
            number(&cost["expected"]),
            number(&cost["low"]),
            number(&cost["high"]),
            number(&one["failure"]) * 100.0,
            number(&one["samples"]),
        ));
    }
    for one in answer["excluded"].as_array().into_iter().flatten() {
        let provider = one["provider"].as_str().unwrap_or("-");
        match texts(&one["why"]).as_slice() {
            [why] => line(format!("not {provider}: {why}")),
            all => {
                line(format!("not {provider}:"));
                all.iter().for_each(|why| line(format!("   {why}")));
            }
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanations_are_for_people() {
        let answer = json!({
            "provider": "a", "why": ["a is the fastest"],
            "ranked": [{"provider": "a", "ready_ms": {"expected": 12.0, "low": 1.0, "high": 20.0},
                "cost_usd": {"expected": 0.5, "low": 0.1, "high": 1.0}, "failure": 0.1, "samples": 3.0}],
            "excluded": [{"provider": "b", "why": ["the request excludes it", "it is full\u{1b}"]}]
        });
        let told = explanation(&answer);
        assert!(told.contains("1. a: ready in 12 ms (1 to 20)"), "{told}");
        assert!(
            told.contains("not b:\n   the request excludes it\n   it is full") && !told.contains('\u{1b}'),
            "{told}"
        );
    }
}
