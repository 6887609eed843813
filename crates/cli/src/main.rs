//! The `sandstorm` command: arguments in, the right use case called, an exit code out.
//!
//! The launcher is forked here, before anything starts a thread; see `ARCHITECTURE.md`.

mod arguments;
mod complaint;
mod completions;
mod configuration;
mod doctor;
mod languages;
mod local;
mod logging;
#[cfg(test)]
mod reference;
mod run;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command {
        Command::Run(command) => run::run(&arguments.shared, *command),
        Command::Languages(command) => languages::show(&arguments.shared, command),
        Command::Doctor(command) => doctor::show(&arguments.shared, command),
        Command::Config(command) => configuration::serve(&arguments.shared, &command),
        Command::Completions { shell } => completions::print(shell),
    };
    match done {
        Ok(code) => code,
        Err(error) => complaint::tell(&error),
    }
}
