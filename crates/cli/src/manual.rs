//! `sandstorm manual`: a manual page for each command, made from what the command line parses.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::arguments::Arguments;

/// Stands at the foot of every page; without it each page would claim to belong to a program of its command's name.
const SOURCE: &str = concat!("Sandstorm ", env!("CARGO_PKG_VERSION"));

pub(crate) fn write(folder: &Path) -> anyhow::Result<ExitCode> {
    let failed = || format!("could not write manual pages to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(failed)?;
    // First, so that no page speaks of `help`; building the command is what would add it.
    let mut root = Arguments::command().disable_help_subcommand(true);
    root.build();
    write_pages(root, folder).with_context(failed)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page such as `sandstorm-config-init.1`, and those of the commands below.
fn write_pages(command: Command, folder: &Path) -> std::io::Result<()> {
    for below in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        write_pages(below.clone(), folder)?;
    }
    Man::new(command).source(SOURCE).manual("Sandstorm").generate_to(folder).map(|_| ())
}
