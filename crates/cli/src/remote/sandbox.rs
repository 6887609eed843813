//! `sandstorm sandbox`.

mod copy;
mod create;
mod exec;
mod fork;
mod history;
mod install;
mod life;
mod logs;
mod shell;
mod show;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use sandstorm_client::Client;

use super::{Connection, Output};
use copy::CopyCommand;
use create::CreateCommand;
pub(super) use create::{Wishes, time};
use exec::ExecCommand;
use fork::ForkCommand;
use history::{EventsCommand, MetricsCommand};
use install::InstallCommand;
use life::{ExtendCommand, NetworkCommand, RemoveCommand};
use logs::LogsCommand;
pub(super) use logs::status;
use shell::ShellCommand;
use show::ListCommand;
pub(super) use show::describe;

#[derive(Debug, Args)]
pub(crate) struct SandboxGroup {
    #[command(flatten)]
    pub(super) connection: Connection,
    #[command(subcommand)]
    pub(super) command: SandboxCommand,
}

/// A sandbox by its id.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// Sandbox: its id, or the beginning of it
    #[arg(value_name = "ID")]
    pub(super) sandbox: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Make a sandbox and print its id
    Create(Box<CreateCommand>),
    /// List sandboxes, the newest first
    #[command(visible_alias = "ls")]
    List(ListCommand),
    /// Show everything about a sandbox
    Get(One),
    /// Run a program in a sandbox
    Exec(Box<ExecCommand>),
    /// Open a terminal in a sandbox
    Shell(ShellCommand),
    /// Copy files and folders in or out
    Cp(CopyCommand),
    /// List the programs of a sandbox
    Ps(One),
    /// Show what a program wrote, also one that ended
    Logs(LogsCommand),
    /// Stop all programs of a sandbox where they are
    Pause(One),
    /// Let the programs of a paused sandbox go on
    Resume(One),
    /// Make sandboxes that go on from where one is, and print their ids
    Fork(ForkCommand),
    /// Install packages into a sandbox that lives, whatever its network, and print the folder that they are in
    Install(InstallCommand),
    /// Let a sandbox live for some time from now
    Extend(ExtendCommand),
    /// Change what a sandbox may reach
    Network(NetworkCommand),
    /// End sandboxes
    Rm(RemoveCommand),
    /// Show what happened
    Events(EventsCommand),
    /// Show what a sandbox used over time
    Metrics(MetricsCommand),
}

pub(super) async fn serve(
    client: Client,
    output: Output,
    command: SandboxCommand,
) -> anyhow::Result<ExitCode> {
    let client = &client;
    match command {
        SandboxCommand::Create(command) => create::create(client, output, *command).await,
        SandboxCommand::List(command) => show::list(client, output, command).await,
        SandboxCommand::Get(one) => show::get(client, output, &one).await,
        SandboxCommand::Exec(command) => exec::exec(client, output, *command).await,
        SandboxCommand::Shell(command) => shell::shell(client, command).await,
        SandboxCommand::Cp(command) => copy::copy(client, output, command).await,
        SandboxCommand::Ps(one) => logs::list(client, output, &one).await,
        SandboxCommand::Logs(command) => logs::show(client, output, command).await,
        SandboxCommand::Pause(one) => life::pause(client, output, &one).await,
        SandboxCommand::Resume(one) => life::resume(client, output, &one).await,
        SandboxCommand::Fork(command) => fork::fork(client, output, command).await,
        SandboxCommand::Install(command) => install::install(client, output, command).await,
        SandboxCommand::Extend(command) => life::extend(client, output, command).await,
        SandboxCommand::Network(command) => life::network(client, output, command).await,
        SandboxCommand::Rm(command) => life::remove(client, output, command).await,
        SandboxCommand::Events(command) => history::events(client, output, command).await,
        SandboxCommand::Metrics(command) => history::metrics(client, output, command).await,
    }
}
