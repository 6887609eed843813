//! Commands that talk to a server: `sandbox`, `context`, `files`, `snapshot`, `runs`, `usage`, `providers`, `route`.
//!
//! They need no engine and no launcher: one thread, one connection pool, and whatever the server answers.

mod connection;
mod context;
mod ending;
mod files;
mod following;
mod ids;
mod interrupts;
mod output;
mod paths;
mod printer;
mod raw_mode;
mod routing;
mod runs;
mod sandbox;
mod snapshot;
mod table;
mod transfer;
mod units;
mod usage;

use std::future::Future;
use std::process::ExitCode;

use anyhow::Context as _;
use sandstorm_client::{Client, Error};
use sandstorm_types::ErrorKind;

use crate::complaint::{self, note};
pub(crate) use connection::Connection;
pub(crate) use context::ContextGroup;
pub(crate) use files::FilesGroup;
use output::Output;
pub(crate) use routing::{ProvidersCommand, RouteGroup};
pub(crate) use runs::RunsGroup;
pub(crate) use sandbox::SandboxGroup;
pub(crate) use snapshot::SnapshotGroup;
pub(crate) use usage::UsageCommand;

pub(crate) fn sandbox(group: SandboxGroup) -> anyhow::Result<ExitCode> {
    let SandboxGroup { connection, command } = group;
    serve(&connection, async |client, output| sandbox::serve(client, output, command).await)
}

pub(crate) fn context(group: ContextGroup) -> anyhow::Result<ExitCode> {
    let ContextGroup { connection, command } = group;
    serve(&connection, async |client, output| context::serve(client, output, command).await)
}

pub(crate) fn files(group: FilesGroup) -> anyhow::Result<ExitCode> {
    let FilesGroup { connection, command } = group;
    serve(&connection, async |client, output| files::serve(client, output, command).await)
}

pub(crate) fn snapshot(group: SnapshotGroup) -> anyhow::Result<ExitCode> {
    let SnapshotGroup { connection, command } = group;
    serve(&connection, async |client, output| snapshot::serve(client, output, command).await)
}

pub(crate) fn runs(group: RunsGroup) -> anyhow::Result<ExitCode> {
    let RunsGroup { connection, command } = group;
    serve(&connection, async |client, output| runs::serve(client, output, command).await)
}

pub(crate) fn usage(command: UsageCommand) -> anyhow::Result<ExitCode> {
    let UsageCommand { connection, wanted } = command;
    serve(&connection, async |client, output| usage::serve(client, output, wanted).await)
}

pub(crate) fn providers(command: ProvidersCommand) -> anyhow::Result<ExitCode> {
    serve(&command.connection, async |client, output| routing::providers(client, output).await)
}

pub(crate) fn route(group: RouteGroup) -> anyhow::Result<ExitCode> {
    let RouteGroup { connection, command } = group;
    serve(&connection, async |client, output| routing::route(client, output, command).await)
}

/// Runs one command with a client of the server that the flags and variables name.
fn serve<F>(connection: &Connection, command: impl FnOnce(Client, Output) -> F) -> anyhow::Result<ExitCode>
where
    F: Future<Output = anyhow::Result<ExitCode>>,
{
    let client = connection.client()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("could not start the runtime")?;
    let done = runtime.block_on(command(client, connection.output()));
    // A thread may still wait for input that nobody will type.
    runtime.shutdown_background();
    done.or_else(|error| match hint(&error, connection) {
        Some(hint) => {
            let code = complaint::tell(&error);
            note(&hint);
            Ok(code)
        }
        None => Err(error),
    })
}

/// What to do about failures that say little about their usual cause.
fn hint(error: &anyhow::Error, connection: &Connection) -> Option<String> {
    let error = error.downcast_ref::<Error>()?;
    match error {
        // Other causes, a name or a certificate, speak for themselves.
        Error::Unreachable { source, .. } if source.to_string().contains("refused") => Some(
            "is the server running (`sandstorm serve`)? --url or SANDSTORM_URL names another one".to_owned(),
        ),
        _ if error.kind() == ErrorKind::Unauthenticated && !connection.has_key() => {
            Some("no key was given: set SANDSTORM_API_KEY or use --api-key-file".to_owned())
        }
        _ => None,
    }
}
