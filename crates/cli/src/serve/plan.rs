//! Everything that a configuration can get wrong for a server, worked out before anything is made or opened.
//!
//! `serve` works with what is here, and `config check` makes the same and drops it: so neither takes what the other
//! refuses. Secrets are read here too, while root may still read them.

use std::path::Path;

use anyhow::Context;
use sandstorm_config::Loaded;
use sandstorm_control::Layers;
use sandstorm_control::server::Pepper;
use sandstorm_gateway::Tls;
use sandstorm_provider::Closing;
use sandstorm_telemetry::TelemetryConfig;

use super::addresses::Addresses;
use super::providers::{self, Wanted};
use super::{ServeCommand, ServerUser, home, mounts, settings};
use crate::complaint::misuse;
use crate::run;

/// What a server is made from.
pub(crate) struct Plan {
    pub(super) addresses: Addresses,
    pub(super) tls: Option<Tls>,
    pub(super) user: Option<ServerUser>,
    pub(super) database: Option<String>,
    pub(super) telemetry: TelemetryConfig,
    pub(super) layers: Layers,
    /// The providers beside this machine, with their keys.
    pub(super) providers: Vec<Wanted>,
    /// What is odd and stops nothing.
    pub(crate) warnings: Vec<String>,
}

impl Plan {
    /// Each refusal is a mistake in what was configured, and says where.
    pub(crate) fn make(loaded: &Loaded, command: &ServeCommand) -> anyhow::Result<Self> {
        Self::draft(loaded, command).map_err(|error| match &loaded.file {
            Some(file) => misuse(format!("{error:#} (the configuration is {})", file.display())),
            None => misuse(format!("{error:#}")),
        })
    }

    fn draft(loaded: &Loaded, command: &ServeCommand) -> anyhow::Result<Self> {
        let config = &loaded.config;
        let addresses = Addresses::choose(&config.serve, !command.dev_no_auth)?;
        mounts::check(&config.template.mounts)?;
        // Made again with what a running server has; what they refuse, they refuse here.
        settings::control(loaded, Pepper([0; 32]))?;
        settings::mcp(loaded, command, Closing::default())?;
        settings::e2b(loaded, Closing::default())?;
        Ok(Self {
            addresses,
            tls: tls(loaded)?,
            user: ServerUser::choose(loaded)?,
            database: settings::database(loaded)?,
            telemetry: settings::telemetry(loaded)?,
            layers: run::layers(loaded, &home::cache_of(loaded.state_dir()?))?,
            providers: providers::wanted(loaded)?,
            warnings: addresses.warnings(),
        })
    }
}

fn tls(loaded: &Loaded) -> anyhow::Result<Option<Tls>> {
    let Some((chain, key)) = loaded.config.serve.tls.files() else { return Ok(None) };
    let read = |name: &str, path: &Path| {
        std::fs::read(path).with_context(|| format!("`serve.tls.{name}`: could not read {}", path.display()))
    };
    Tls::from_pem(&read("cert", chain)?, &read("key", key)?).context("`serve.tls`").map(Some)
}
