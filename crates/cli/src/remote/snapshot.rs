//! `sandstorm snapshot`: saved sandboxes on a server.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sandstorm_client::{Client, NewSnapshot, NotCarried, Snapshot, SnapshotQuery};
use sandstorm_types::{SnapshotId, Template, Timestamp};

use super::sandbox::Wishes;
use super::table::Table;
use super::{Connection, Output, ids, units};
use crate::complaint::{self, safe};

#[derive(Debug, Args)]
pub(crate) struct SnapshotGroup {
    #[command(flatten)]
    pub(super) connection: Connection,
    #[command(subcommand)]
    pub(super) command: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Save the files of a sandbox, which goes on, and print the id of what was saved
    Create {
        /// Sandbox: its id, or the beginning of it
        #[arg(value_name = "ID")]
        sandbox: String,
        /// To find it by; another snapshot of this name loses it
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// List snapshots, the newest first
    #[command(visible_alias = "ls")]
    List {
        /// Only those of this sandbox: its whole id, for it may be gone
        #[arg(long, value_name = "ID")]
        sandbox: Option<String>,
    },
    /// Make a sandbox from a snapshot and print its id
    Restore(Box<RestoreCommand>),
    /// Remove snapshots; sandboxes that were made from them live on
    Rm {
        /// Snapshots: their names, their ids, or the beginnings of these
        #[arg(value_name = "SNAPSHOT", required = true)]
        snapshots: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RestoreCommand {
    /// Snapshot: its name, its id, or the beginning of that
    #[arg(value_name = "SNAPSHOT")]
    snapshot: String,
    #[command(flatten)]
    wishes: Wishes,
}

pub(super) async fn serve(
    client: Client,
    output: Output,
    command: SnapshotCommand,
) -> anyhow::Result<ExitCode> {
    let client = &client;
    match command {
        SnapshotCommand::Create { sandbox, name } => {
            let id = ids::sandbox(client, &sandbox).await?;
            let snapshot = client.create_snapshot(id, &NewSnapshot { name }).await?;
            if !output.json {
                use std::io::Write as _;
                let left_out = snapshot.left_out.as_deref().unwrap_or_default();
                write!(std::io::stderr(), "{}", remarks(left_out))?;
            }
            output.line(&snapshot, &snapshot.id.to_string())?;
        }
        SnapshotCommand::List { sandbox } => {
            let sandbox = match sandbox {
                None => None,
                Some(given) => Some(ids::sandbox(client, &given).await?),
            };
            let query = SnapshotQuery { sandbox, ..SnapshotQuery::default() };
            let snapshots = ids::all_snapshots(client, query).await?;
            output.list("snapshots", &snapshots, || table(&snapshots, Timestamp::now()))?;
        }
        SnapshotCommand::Restore(command) => {
            let mut new = command.wishes.request()?;
            new.template = Some(Template::Snapshot(ids::snapshot(client, &command.snapshot).await?));
            let sandbox = client.create_sandbox(&new).await?;
            output.line(&sandbox, &sandbox.id.to_string())?;
        }
        SnapshotCommand::Rm { snapshots } => return remove(client, output, &snapshots).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn remove(client: &Client, output: Output, wanted: &[String]) -> anyhow::Result<ExitCode> {
    let mut removed: Vec<SnapshotId> = Vec::new();
    let mut failure = None;
    for given in wanted {
        match remove_one(client, given).await {
            Ok(id) => removed.push(id),
            // One that cannot be removed is no reason to keep the others.
            Err(error) => failure = Some(complaint::tell(&error.context(given.clone()))),
        }
    }
    let lines = || removed.iter().fold(String::new(), |text, id| text + &format!("{id}\n"));
    output.show(&serde_json::json!({ "removed": removed }), lines)?;
    Ok(failure.unwrap_or(ExitCode::SUCCESS))
}

async fn remove_one(client: &Client, given: &str) -> anyhow::Result<SnapshotId> {
    let id = ids::snapshot(client, given).await?;
    client.delete_snapshot(id).await?;
    Ok(id)
}

/// What could not be saved, a line for each.
fn remarks(left_out: &[NotCarried]) -> String {
    let mut text = String::new();
    for left in left_out {
        let _ = writeln!(text, "not saved: {}: {}", safe(&left.what), safe(&left.why));
    }
    text
}

fn table(snapshots: &[Snapshot], now: Timestamp) -> Table {
    let mut table = Table::new(&["ID", "NAME", "SIZE", "AGE", "PROVIDER", "SANDBOX"]);
    for snapshot in snapshots {
        table.row([
            snapshot.id.to_string().into(),
            snapshot.name.as_deref().unwrap_or("-").into(),
            snapshot.size_bytes.map_or_else(|| "-".to_owned(), units::bytes).into(),
            units::age(snapshot.created_at, now).into(),
            snapshot.provider.as_str().into(),
            snapshot.sandbox.to_string().into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_for_people() {
        let all: Vec<Snapshot> = serde_json::from_value(serde_json::json!([
            { "id": "snap_aaaaaaaaaaaaaaaaaaaaaaaaaa", "name": "golden", "provider": "local",
              "sandbox": "sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa", "size_bytes": 20_971_520,
              "created_at": "2026-11-15T12:00:00.000Z" },
            { "id": "snap_baaaaaaaaaaaaaaaaaaaaaaaaa", "name": null, "provider": "\u{1b}[31mfar",
              "sandbox": "sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa", "size_bytes": null,
              "created_at": "2026-11-15T11:00:00.000Z" },
        ]))
        .unwrap();
        let now = all[0].created_at.after(std::time::Duration::from_secs(5));
        insta::assert_snapshot!(table(&all, now).text(false));
        let left = NotCarried { what: "socket /tmp/x".to_owned(), why: "only files\u{7}".to_owned() };
        assert!(remarks(&[left]).starts_with("not saved: socket /tmp/x: only files"));
        assert_eq!(remarks(&[]), "");
    }
}
