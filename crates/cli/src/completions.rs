//! `sandstorm completions`.

use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Arguments;

pub(crate) fn print(shell: Shell) -> anyhow::Result<ExitCode> {
    // The generator panics when it cannot write, as it cannot where a pager or `head` has closed the pipe.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "sandstorm", &mut script);
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&script)?;
    stdout.flush()?;
    Ok(ExitCode::SUCCESS)
}
