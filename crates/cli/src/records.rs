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
    ///
    /// What was recorded after the last anchored record could be cut off unseen. A server anchors every hundredth record, and
    /// each within half a minute; how many are not anchored yet is said.
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
///
/// Beside the copy its audit anchor is written, as `FILE.anchor`. The anchor is taken first and then brought up to the
/// end of the copy, so that both together verify, whatever the server wrote meanwhile.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 both were written and the audit of the copy is whole; 1 they were not written, or it \
                        is not, which is said."
)]
pub(crate) struct BackupCommand {
    /// Where to write the copy; neither it nor `FILE.anchor` may be there yet
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
    let copy = Copy::at(&command.file);
    let report = match ServerUser::choose(&loaded)? {
        None => {
            let home = Home::visit(&loaded)?;
            let records = home.store(database, loaded.config.database.durability)?;
            opened(&records, async |store, _| Ok(store.backup(&copy.database, &copy.anchor).await?))
                .context("the backup was not made")?
        }
        Some(user) => backup_as_root(&loaded, user, database, &copy).context("the backup was not made")?,
    };
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "wrote {}", copy.database.display())?;
    writeln!(stdout, "wrote {}", copy.anchor.display())?;
    note(
        "secrets/ of the state directory belongs to a backup too; keep a copy of it where fewer can read it",
    );
    if report.is_sound() {
        return Ok(ExitCode::SUCCESS);
    }
    for finding in &report.tampering {
        note(&format!("the audit: {finding}"));
    }
    note("the copy is as the database is, whose audit is NOT whole");
    Ok(ExitCode::FAILURE)
}

/// The two files of a backup.
struct Copy {
    database: PathBuf,
    anchor: PathBuf,
}

impl Copy {
    fn at(database: &Path) -> Self {
        let mut anchor = database.as_os_str().to_owned();
        anchor.push(".anchor");
        Self { database: database.to_owned(), anchor: anchor.into() }
    }
}

/// The server's user can write no file where root wants it, and root opens no database in that user's directory: the
/// user makes a draft there, and root copies what it was handed.
fn backup_as_root(
    loaded: &Loaded,
    user: ServerUser,
    database: Option<String>,
    to: &Copy,
) -> anyhow::Result<AuditReport> {
    let home = Home::open(loaded, Some(user))?;
    let draft = Copy::at(&home.draft());
    let (report, mut content, mut anchor) = user.act(|| {
        let records = home.store(database, loaded.config.database.durability)?;
        let made =
            opened(&records, async |store, _| Ok(store.backup(&draft.database, &draft.anchor).await?));
        let read = |path: &Path| File::open(path).context("could not read the draft");
        let made = made.and_then(|report| Ok((report, read(&draft.database)?, read(&draft.anchor)?)));
        let _ = std::fs::remove_file(&draft.database);
        let _ = std::fs::remove_file(&draft.anchor);
        made
    })?;
    // The anchor first: where the copy is, its anchor is too.
    hand_over(&mut anchor, &to.anchor)?;
    if let Err(error) = hand_over(&mut content, &to.database) {
        let _ = std::fs::remove_file(&to.anchor);
        return Err(error);
    }
    Ok(report)
}

/// Copies what root was handed to where root wants it, which nothing is yet.
fn hand_over(content: &mut File, to: &Path) -> anyhow::Result<()> {
    let mut name = to.as_os_str().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    let partial = PathBuf::from(name);
    let failed = || format!("could not write {}", to.display());
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial).with_context(failed)?;
    let written = std::io::copy(content, &mut file)
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
        let told = serde_json::json!({ "whole": whole, "records": report.records,
            "not_anchored": report.unanchored, "findings": findings });
        writeln!(stdout, "{told}")?;
    } else {
        for finding in &report.tampering {
            writeln!(stdout, "{}", safe(&finding.to_string()))?;
        }
        let word = if whole { "the chain is whole" } else { "the chain is NOT whole" };
        writeln!(
            stdout,
            "{} records, {} of them not anchored yet: {word}",
            report.records, report.unanchored
        )?;
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
