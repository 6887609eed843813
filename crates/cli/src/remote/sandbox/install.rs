//! `sandstorm sandbox install`.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use sandstorm_client::{Client, NewInstall};
use sandstorm_types::Requirement;

use super::super::{Output, ids};
use crate::complaint::misuse;

#[derive(Debug, Args)]
pub(crate) struct InstallCommand {
    /// Sandbox: its id, or the beginning of it
    #[arg(value_name = "ID")]
    sandbox: String,
    /// Packages as the package manager spells them, such as `numpy==2.1.0`
    #[arg(value_name = "PACKAGE", required = true)]
    packages: Vec<String>,
    /// Package manager
    #[arg(short, long, value_name = "NAME", default_value = "pip")]
    manager: ManagerName,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ManagerName {
    Pip,
    Npm,
}

impl ManagerName {
    fn name(self) -> &'static str {
        match self {
            Self::Pip => "pip",
            Self::Npm => "npm",
        }
    }
}

pub(super) async fn install(
    client: &Client,
    output: Output,
    command: InstallCommand,
) -> anyhow::Result<ExitCode> {
    let package =
        |text: &String| text.parse::<Requirement>().map_err(|e| misuse(format!("PACKAGE {text}: {e}")));
    let packages = command.packages.iter().map(package).collect::<anyhow::Result<_>>()?;
    let new = NewInstall { manager: command.manager.name().to_owned(), packages };
    let id = ids::sandbox(client, &command.sandbox).await?;
    let installed = client.install(id, &new).await?;
    output.line(&installed, &installed.place)?;
    Ok(ExitCode::SUCCESS)
}
