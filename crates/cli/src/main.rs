//! The `sandstorm` command: arguments in, the right use case called, an exit code out.
//!
//! The launcher is forked here, before anything starts a thread; see `ARCHITECTURE.md`.

mod arguments;
mod bench;
mod complaint;
mod completions;
mod configuration;
mod doctor;
mod keys;
mod languages;
mod local;
mod logging;
mod manual;
mod mcp;
mod pipe;
mod records;
#[cfg(test)]
mod reference;
mod remote;
mod run;
mod serve;
mod stopped;
mod zygotes;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};

/// A request takes and gives back a few hundred small pieces of memory; this one finds them sooner.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if cfg!(target_feature = "crt-static")
        && let Err(error) = sandstorm_sys::names::use_built_in_sources()
    {
        return complaint::tell(&anyhow::Error::new(error).context("could not set how names are looked up"));
    }
    let done = match arguments.command {
        Command::Run(command) => run::run(&arguments.shared, *command),
        Command::Languages(command) => languages::show(&arguments.shared, command),
        Command::Doctor(command) => doctor::show(&arguments.shared, command),
        Command::Config(command) => configuration::serve(&arguments.shared, &command),
        Command::Serve(command) => serve::serve(&arguments.shared, &command),
        Command::Mcp(command) => mcp::mcp(&arguments.shared, &command),
        Command::Keys(command) => keys::keys(&arguments.shared, command),
        Command::Tenants(command) => keys::tenants(&arguments.shared, command),
        Command::Audit(command) => records::audit(&arguments.shared, command),
        Command::Backup(command) => records::backup(&arguments.shared, &command),
        Command::Sandbox(group) => remote::sandbox(group),
        Command::Context(group) => remote::context(group),
        Command::Files(group) => remote::files(group),
        Command::Snapshot(group) => remote::snapshot(group),
        Command::Runs(group) => remote::runs(group),
        Command::Usage(command) => remote::usage(command),
        Command::Providers(command) => remote::providers(command),
        Command::Route(group) => remote::route(group),
        Command::Bench(command) => bench::bench(&command),
        Command::Completions { shell } => completions::print(shell),
        Command::Manual { folder } => manual::write(&folder),
    };
    match done {
        Ok(code) => code,
        Err(error) => complaint::tell(&error),
    }
}
