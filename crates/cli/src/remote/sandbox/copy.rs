//! `sandstorm sandbox cp`.

use std::process::ExitCode;

use clap::Args;
use sandstorm_client::Client;

use super::super::paths::Side;
use super::super::transfer::{Sink, Source};
use super::super::{Output, ids, paths};
use crate::complaint::misuse;

#[derive(Debug, Args)]
#[command(
    after_help = "One side or both are in a sandbox: `ID:/path`; a relative path starts in /workspace. Folders \
                        are copied with all that is in them. As with `cp`, what is copied to a folder that exists \
                        keeps its name there. `-` is standard input, or standard output, which gets a folder as a \
                        tar archive.\n\nExamples:\n  sandstorm sandbox cp data.csv sbx_4f6a2b:\n  sandstorm sandbox cp \
                        sbx_4f6a2b:results ./results\n  sandstorm sandbox cp sbx_4f6a2b:/tmp/log - | tail"
)]
pub(crate) struct CopyCommand {
    /// What to copy: a file, a folder, `ID:PATH` or `-`
    #[arg(value_name = "SRC")]
    source: String,
    /// Where to: a file, a folder, `ID:PATH` or `-`
    #[arg(value_name = "DST")]
    target: String,
}

pub(super) async fn copy(client: &Client, output: Output, command: CopyCommand) -> anyhow::Result<ExitCode> {
    let (from, to) = (Side::parse(&command.source), Side::parse(&command.target));
    if !matches!((&from, &to), (Side::Remote { .. }, _) | (_, Side::Remote { .. })) {
        return Err(misuse("neither side is in a sandbox: write ID:PATH for one"));
    }
    if output.json && to == Side::Standard {
        return Err(misuse("--json and the copy cannot both go to standard output"));
    }
    let source = match from {
        Side::Local(path) => Source::Local(path),
        Side::Standard => Source::Standard,
        Side::Remote { sandbox, path } => {
            Source::Remote { sandbox: ids::sandbox(client, &sandbox).await?, path: paths::guest(&path)? }
        }
    };
    let sink = match to {
        Side::Local(path) => Sink::Local(path),
        Side::Standard => Sink::Standard,
        Side::Remote { sandbox, path } => {
            let into = path.is_empty() || path.ends_with('/');
            let path = if path.is_empty() { "/workspace" } else { &path };
            Sink::Remote { sandbox: ids::sandbox(client, &sandbox).await?, path: paths::guest(path)?, into }
        }
    };
    let copied = source.open(client).await?.write(client, sink).await?;
    if output.json {
        output.show(&serde_json::json!({ "to": copied }), String::new)?;
    }
    Ok(ExitCode::SUCCESS)
}
