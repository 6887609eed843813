//! `sandstorm completions`.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Arguments;

pub(crate) fn print(shell: Shell) -> anyhow::Result<ExitCode> {
    clap_complete::generate(shell, &mut Arguments::command(), "sandstorm", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}
