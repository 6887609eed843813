//! `sandstorm sandbox pause`, `resume`, `extend`, `network` and `rm`.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use sandstorm_client::{Client, Sandbox, SandboxQuery};
use sandstorm_types::SandboxId;

use super::super::{Output, ids};
use super::One;
use super::create::{network as policy, time};
use crate::complaint;

#[derive(Debug, Args)]
pub(crate) struct ExtendCommand {
    /// Sandbox: its id, or the beginning of it
    #[arg(value_name = "ID")]
    sandbox: String,
    /// How long it shall live from now, such as `10m`
    #[arg(value_name = "TIME")]
    time: String,
}

#[derive(Debug, Args)]
pub(crate) struct NetworkCommand {
    /// Sandbox: its id, or the beginning of it
    #[arg(value_name = "ID")]
    sandbox: String,
    /// `none`, `open`, or hosts to allow, such as `allow:example.com,*.example.org:8443`
    #[arg(value_name = "POLICY")]
    policy: String,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveCommand {
    /// Sandboxes: their ids, or the beginnings of them
    #[arg(value_name = "ID", required_unless_present = "all")]
    sandboxes: Vec<String>,
    /// Every sandbox that you have
    #[arg(long, conflicts_with = "sandboxes")]
    all: bool,
}

pub(super) async fn pause(client: &Client, output: Output, one: &One) -> anyhow::Result<ExitCode> {
    let id = ids::sandbox(client, &one.sandbox).await?;
    changed(output, &client.pause_sandbox(id).await?)
}

pub(super) async fn resume(client: &Client, output: Output, one: &One) -> anyhow::Result<ExitCode> {
    let id = ids::sandbox(client, &one.sandbox).await?;
    changed(output, &client.resume_sandbox(id).await?)
}

pub(super) async fn extend(
    client: &Client,
    output: Output,
    command: ExtendCommand,
) -> anyhow::Result<ExitCode> {
    let by = time("TIME", &command.time)?;
    let id = ids::sandbox(client, &command.sandbox).await?;
    changed(output, &client.extend_sandbox(id, by).await?)
}

pub(super) async fn network(
    client: &Client,
    output: Output,
    command: NetworkCommand,
) -> anyhow::Result<ExitCode> {
    let policy = policy(&command.policy)?;
    let id = ids::sandbox(client, &command.sandbox).await?;
    changed(output, &client.set_network(id, &policy).await?)
}

/// The id again, so that commands can be chained; its new self for programs.
fn changed(output: Output, sandbox: &Sandbox) -> anyhow::Result<ExitCode> {
    output.line(sandbox, &sandbox.id.to_string())?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn remove(
    client: &Client,
    output: Output,
    command: RemoveCommand,
) -> anyhow::Result<ExitCode> {
    let mut removed: Vec<SandboxId> = Vec::new();
    let mut failure = None;
    let wanted: Vec<String> = if command.all {
        let all = ids::all_sandboxes(client, SandboxQuery::default()).await?;
        all.into_iter().map(|sandbox| sandbox.id.to_string()).collect()
    } else {
        command.sandboxes
    };
    for given in wanted {
        match remove_one(client, &given).await {
            Ok(id) => {
                removed.push(id);
                if !output.json {
                    writeln!(std::io::stdout(), "{id}")?;
                }
            }
            // One that cannot be ended is no reason to keep the others.
            Err(error) => failure = Some(complaint::tell(&error.context(given))),
        }
    }
    if output.json {
        output.show(&serde_json::json!({ "removed": removed }), String::new)?;
    }
    Ok(failure.unwrap_or(ExitCode::SUCCESS))
}

async fn remove_one(client: &Client, given: &str) -> anyhow::Result<SandboxId> {
    let id = ids::sandbox(client, given).await?;
    client.delete_sandbox(id).await?;
    Ok(id)
}
