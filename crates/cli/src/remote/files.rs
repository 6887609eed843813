//! `sandstorm files`: files of a sandbox.

mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sandstorm_client::Client;
use sandstorm_types::GuestPath;

use super::interrupts::Interrupts;
use super::sandbox::describe;
use super::transfer::{Sink, Source};
use super::{Connection, Output, ids, paths};
use crate::complaint::misuse;

#[derive(Debug, Args)]
#[command(after_help = "A relative path in a sandbox starts in /workspace.")]
pub(crate) struct FilesGroup {
    #[command(flatten)]
    pub(super) connection: Connection,
    #[command(subcommand)]
    pub(super) command: FilesCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// List a folder
    Ls {
        /// Sandbox: its id, or the beginning of it
        #[arg(value_name = "ID")]
        sandbox: String,
        /// Folder to list
        #[arg(value_name = "PATH", default_value = GuestPath::WORKSPACE)]
        path: String,
        /// How many levels to go down
        #[arg(short, long, value_name = "N", default_value_t = 1)]
        depth: u32,
        /// Most entries to show
        #[arg(long, value_name = "N")]
        limit: Option<u32>,
    },
    /// Write files to standard output
    Cat {
        /// Sandbox: its id, or the beginning of it
        #[arg(value_name = "ID")]
        sandbox: String,
        /// Files to write
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<String>,
    },
    /// Copy a file or folder into a sandbox
    Put {
        /// Sandbox: its id, or the beginning of it
        #[arg(value_name = "ID")]
        sandbox: String,
        /// File or folder of this machine; `-` is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Where it goes
        #[arg(value_name = "PATH")]
        path: Option<String>,
    },
    /// Copy a file or folder out of a sandbox
    Get {
        /// Sandbox: its id, or the beginning of it
        #[arg(value_name = "ID")]
        sandbox: String,
        /// File or folder in the sandbox
        #[arg(value_name = "PATH")]
        path: String,
        /// Where it goes on this machine; `-` is standard output
        #[arg(value_name = "FILE", default_value = ".")]
        file: PathBuf,
    },
    /// Remove files and folders
    Rm {
        /// Sandbox: its id, or the beginning of it
        #[arg(value_name = "ID")]
        sandbox: String,
        /// What to remove
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<String>,
        /// Folders with all that is in them
        #[arg(short, long)]
        recursive: bool,
    },
    /// Make folders, and those above them
    Mkdir {
        /// Sandbox: its id, or the beginning of it
        #[arg(value_name = "ID")]
        sandbox: String,
        /// Folders to make
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<String>,
    },
    /// Rename a file or folder
    Mv {
        /// Sandbox: its id, or the beginning of it
        #[arg(value_name = "ID")]
        sandbox: String,
        /// What to rename
        #[arg(value_name = "FROM")]
        from: String,
        /// What it is called then; a file of that name is replaced
        #[arg(value_name = "TO")]
        to: String,
    },
    /// Show what is at a path
    Stat {
        /// Sandbox: its id, or the beginning of it
        #[arg(value_name = "ID")]
        sandbox: String,
        /// File, folder or link
        #[arg(value_name = "PATH")]
        path: String,
    },
    /// Find files by name
    Search {
        /// Sandbox: its id, or the beginning of it
        #[arg(value_name = "ID")]
        sandbox: String,
        /// What the name looks like, such as `*.py`
        #[arg(value_name = "PATTERN")]
        pattern: String,
        /// Folder to search
        #[arg(long = "in", value_name = "PATH", default_value = GuestPath::WORKSPACE)]
        below: String,
    },
    /// Show changes as they happen
    Watch {
        /// Sandbox: its id, or the beginning of it
        #[arg(value_name = "ID")]
        sandbox: String,
        /// Folder to watch
        #[arg(value_name = "PATH", default_value = GuestPath::WORKSPACE)]
        path: String,
        /// Folders below it too
        #[arg(short, long)]
        recursive: bool,
    },
}

pub(super) async fn serve(client: Client, output: Output, command: FilesCommand) -> anyhow::Result<ExitCode> {
    let client = &client;
    match command {
        FilesCommand::Ls { sandbox, path, depth, limit } => {
            let path = paths::guest(&path)?;
            let sandbox = ids::sandbox(client, &sandbox).await?;
            let listing = client.list_files(sandbox, &path, depth, limit).await?;
            show::listing(output, &path, &listing)?;
        }
        FilesCommand::Cat { sandbox, paths } => {
            let paths = guests(&paths)?;
            let sandbox = ids::sandbox(client, &sandbox).await?;
            for path in paths {
                Source::Remote { sandbox, path }.open(client).await?.write(client, Sink::Standard).await?;
            }
        }
        FilesCommand::Put { sandbox, file, path } => {
            let standard = file.as_os_str() == "-";
            if standard && path.is_none() {
                return Err(misuse("name the PATH that standard input goes to"));
            }
            let into = path.as_deref().is_none_or(|path| path.ends_with('/'));
            let path = paths::guest(path.as_deref().unwrap_or(GuestPath::WORKSPACE))?;
            let sandbox = ids::sandbox(client, &sandbox).await?;
            let source = if standard { Source::Standard } else { Source::Local(file) };
            let copied =
                source.open(client).await?.write(client, Sink::Remote { sandbox, path, into }).await?;
            told(output, &copied)?;
        }
        FilesCommand::Get { sandbox, path, file } => {
            let path = paths::guest(&path)?;
            let sandbox = ids::sandbox(client, &sandbox).await?;
            let standard = file.as_os_str() == "-";
            let sink = if standard { Sink::Standard } else { Sink::Local(file) };
            let copied = Source::Remote { sandbox, path }.open(client).await?.write(client, sink).await?;
            if !standard {
                told(output, &copied)?;
            }
        }
        FilesCommand::Rm { sandbox, paths, recursive } => {
            let paths = guests(&paths)?;
            let sandbox = ids::sandbox(client, &sandbox).await?;
            for path in &paths {
                client.remove_file(sandbox, path, recursive).await?;
            }
            machine_only(output, "removed", &paths)?;
        }
        FilesCommand::Mkdir { sandbox, paths } => {
            let paths = guests(&paths)?;
            let sandbox = ids::sandbox(client, &sandbox).await?;
            for path in &paths {
                client.make_folder(sandbox, path).await?;
            }
            machine_only(output, "made", &paths)?;
        }
        FilesCommand::Mv { sandbox, from, to } => {
            let (from, to) = (paths::guest(&from)?, paths::guest(&to)?);
            let sandbox = ids::sandbox(client, &sandbox).await?;
            client.move_file(sandbox, &from, &to).await?;
            machine_only(output, "moved", &[from, to])?;
        }
        FilesCommand::Stat { sandbox, path } => {
            let path = paths::guest(&path)?;
            let sandbox = ids::sandbox(client, &sandbox).await?;
            let info = client.stat_file(sandbox, &path).await?;
            output.show(&info, || describe(&show::for_people(&info)))?;
        }
        FilesCommand::Search { sandbox, pattern, below } => {
            let below = paths::guest(&below)?;
            let sandbox = ids::sandbox(client, &sandbox).await?;
            show::found(output, &client.search_files(sandbox, &below, &pattern, None).await?)?;
        }
        FilesCommand::Watch { sandbox, path, recursive } => {
            let path = paths::guest(&path)?;
            let sandbox = ids::sandbox(client, &sandbox).await?;
            let mut changes = client.watch_files(sandbox, &path, recursive).await?;
            let mut interrupts = Interrupts::catch()?;
            loop {
                tokio::select! {
                    change = changes.next() => match change {
                        Some(change) => show::change(output, &change?)?,
                        None => break,
                    },
                    _ = interrupts.next() => break,
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn guests(texts: &[String]) -> anyhow::Result<Vec<GuestPath>> {
    texts.iter().map(|text| paths::guest(text)).collect()
}

fn told(output: Output, copied: &str) -> std::io::Result<()> {
    output.line(&serde_json::json!({ "to": copied }), copied)
}

/// Commands that do as they are told say nothing to people.
fn machine_only(output: Output, what: &str, paths: &[GuestPath]) -> std::io::Result<()> {
    if output.json { output.show(&serde_json::json!({ what: paths }), String::new) } else { Ok(()) }
}
