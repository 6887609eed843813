//! `sandstorm audit` and `sandstorm backup`: what a server wrote down, looked at from outside.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use sandstorm_config::Loaded;
use sandstorm_store::{AuditReport, AuditRow, Store, StoreConfig};

use crate::arguments::Shared;
use crate::complaint::{note, safe};
use crate::configuration;
use crate::serve::{Home, ServerUser};

/// Rows that are read at once.
const PAGE: u32 = 1000;

/// `sandstorm audit`.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check that no record was changed, removed, added or moved
    #[command(after_help = "Exit codes: 0 the chain is whole; 1 it is not.")]
    Verify {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the records, oldest first
    List {
        /// Only records after this number
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// Print JSON, one record a line
        #[arg(long)]
        json: bool,
    },
}

/// `sandstorm backup`.
#[derive(Debug, Args)]
pub(crate) struct BackupCommand {
    /// Where to write the copy; nothing may be there yet
    file: PathBuf,
}

pub(crate) fn audit(shared: &Shared, command: AuditCommand) -> anyhow::Result<ExitCode> {
    with(shared, async |store, config| match command {
        AuditCommand::Verify { json } => {
            let report = store.verify_audit(&config.audit_key, &config.audit_anchor).await?;
            show_report(&report, json)
        }
        AuditCommand::List { after, json } => list(store, after, json).await,
    })
}

pub(crate) fn backup(shared: &Shared, command: &BackupCommand) -> anyhow::Result<ExitCode> {
    let loaded = configuration::load(shared)?;
    let database = crate::serve::database(&loaded)?;
    match ServerUser::choose(&loaded)? {
        None => {
            let home = Home::visit(&loaded)?;
            opened(&home.store(database, loaded.config.database.durability)?, async |store, _| {
                Ok(store.backup(&command.file).await?)
            })
            .context("the backup was not made")?;
        }
        Some(user) => {
            backup_as_root(&loaded, user, database, &command.file).context("the backup was not made")?
        }
    }
    writeln!(std::io::stdout().lock(), "wrote {}", command.file.display())?;
    note("secrets/ and audit.anchor of the state directory belong to a backup too; copy them beside it");
    Ok(ExitCode::SUCCESS)
}

/// The server's user can write no file where root wants it, and root opens no database in that user's directory: the
/// user makes a draft there, and root copies what it was handed.
fn backup_as_root(
    loaded: &Loaded,
    user: ServerUser,
    database: Option<String>,
    to: &Path,
) -> anyhow::Result<()> {
    let home = Home::open(loaded, Some(user))?;
    let draft = home.draft();
    let mut content = user.act(|| {
        let records = home.store(database, loaded.config.database.durability)?;
        let made = opened(&records, async |store, _| Ok(store.backup(&draft).await?));
        let content = made.and_then(|()| File::open(&draft).context("could not read the draft"));
        let _ = std::fs::remove_file(&draft);
        content
    })?;
    let mut name = to.as_os_str().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(name);
    let failed = || format!("could not write {}", to.display());
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial).with_context(failed)?;
    let written = std::io::copy(&mut content, &mut file)
        .and_then(|_| file.sync_all())
        // A link, unlike a rename, does not replace what is there.
        .and_then(|()| std::fs::hard_link(&partial, to));
    let _ = std::fs::remove_file(&partial);
    written.with_context(failed)
}

/// Opens the store of the state directory for one command.
fn with(
    shared: &Shared,
    work: impl AsyncFnOnce(&Store, &StoreConfig) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let loaded = configuration::load(shared)?;
    // Before root's rights go: the configuration may name a file that only root can read.
    let database = crate::serve::database(&loaded)?;
    let records = Home::visit(&loaded)?.store(database, loaded.config.database.durability)?;
    opened(&records, work)
}

fn opened<T>(
    config: &StoreConfig,
    work: impl AsyncFnOnce(&Store, &StoreConfig) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = Store::open(config).await.context("the database could not be opened")?;
        let done = work(&store, config).await;
        store.close().await;
        done
    })
}

fn show_report(report: &AuditReport, json: bool) -> anyhow::Result<ExitCode> {
    let mut stdout = std::io::stdout().lock();
    let whole = report.is_sound();
    if json {
        let findings: Vec<String> = report.tampering.iter().map(ToString::to_string).collect();
        let told = serde_json::json!({ "whole": whole, "records": report.records, "findings": findings });
        writeln!(stdout, "{told}")?;
    } else {
        for finding in &report.tampering {
            writeln!(stdout, "{}", safe(&finding.to_string()))?;
        }
        let word = if whole { "the chain is whole" } else { "the chain is NOT whole" };
        writeln!(stdout, "{} records: {word}", report.records)?;
    }
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn list(store: &Store, mut after: u64, json: bool) -> anyhow::Result<ExitCode> {
    loop {
        let rows = store.audit(None, after, PAGE).await?;
        let Some(last) = rows.last() else { return Ok(ExitCode::SUCCESS) };
        after = last.seq;
        let mut stdout = std::io::stdout().lock();
        for row in &rows {
            match json {
                true => writeln!(stdout, "{}", describe(row))?,
                false => writeln!(
                    stdout,
                    "{:>6} {} {:<8} {:<18} {:<22} {}",
                    row.seq,
                    row.at,
                    format!("{:?}", row.audit.decision).to_lowercase(),
                    row.audit.principal,
                    row.audit.action,
                    row.audit.object
                )?,
            }
        }
    }
}

fn describe(row: &AuditRow) -> serde_json::Value {
    serde_json::json!({
        "seq": row.seq,
        "at": row.at,
        "tenant": row.audit.tenant,
        "principal": row.audit.principal,
        "action": row.audit.action,
        "object": row.audit.object,
        "decision": format!("{:?}", row.audit.decision).to_lowercase(),
        "request_id": row.audit.request_id,
        "detail": row.audit.detail,
        "prev_hash": row.prev_hash,
        "hash": row.hash,
    })
}
