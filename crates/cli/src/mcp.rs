//! `sandstorm mcp`: an assistant's own sandboxes, over standard input and output.
//!
//! No server is needed: the launcher is forked here and ends with this process, and so does everything that the assistant
//! made. Standard output belongs to the protocol; everything else that is said goes to standard error.

mod place;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use sandstorm_config::{Loaded, McpToolset};
use sandstorm_control::server::{Control, Pepper, Settings, Setup};
use sandstorm_control::{CompileCache, Runner, Tools};
use sandstorm_dialect_mcp::{McpSettings, Server, Toolset, serve_stdio};
use sandstorm_provider::Closing;
use sandstorm_store::{AuditKey, Store, StoreConfig};
use sandstorm_types::Enforcement;
use tokio_util::sync::CancellationToken;

use crate::arguments::Shared;
use crate::complaint::misuse;
use crate::{configuration, local, run, serve, zygotes};
use place::Place;

/// How long what is under way may take when the client goes.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// `sandstorm mcp`.
#[derive(Debug, Args)]
#[command(
    after_help = "An assistant starts this by itself: name `sandstorm` as the command and `mcp` as its argument."
)]
pub(crate) struct McpCommand {
    /// Tools beside the usual ones: files, forks, packages or sandboxrunner; may be repeated
    #[arg(long = "toolset", value_name = "NAME")]
    toolsets: Vec<String>,
    /// Offer what the MCP conformance suite wants to find
    #[arg(long, hide = true)]
    conformance_fixtures: bool,
}

pub(crate) fn mcp(shared: &Shared, command: &McpCommand) -> anyhow::Result<ExitCode> {
    let loaded = configuration::load(shared)?;
    let closing = CancellationToken::new();
    let mut mcp = settings(&loaded, Closing::of(&closing))?;
    mcp.conformance_fixtures = command.conformance_fixtures;
    for name in &command.toolsets {
        let set = Toolset::named(name).ok_or_else(|| {
            misuse(format!("--toolset {name}: there are {}", Toolset::ALL.map(Toolset::name).join(", ")))
        })?;
        mcp.toolsets.insert(set);
    }
    let place = Place::take(&loaded)?;
    // Only root can have them; everybody else starts interpreters the long way.
    let zygotes = match rustix::process::geteuid().is_root() {
        true => zygotes::configured(&loaded.config).unwrap_or_default(),
        false => Vec::new(),
    };
    let engine = local::Local::with_zygotes(&loaded, zygotes)?;
    let served = engine.runtime.block_on(converse(&loaded, &engine, &place, mcp, closing));
    engine.stop()?;
    served?;
    Ok(ExitCode::SUCCESS)
}

async fn converse(
    loaded: &Loaded,
    engine: &local::Local,
    place: &Place,
    mcp: McpSettings,
    closing: CancellationToken,
) -> anyhow::Result<()> {
    let config = &loaded.config;
    let caches = local::state_dir(loaded);
    let runner = Runner::new(Tools {
        provider: Arc::clone(&engine.provider) as Arc<_>,
        limits: config.limits,
        roots: local::roots(config),
        cache: caches
            .map(|dir| CompileCache::new(dir.join("cache/compile"), config.cache.max_bytes.as_u64())),
        layers: caches.map(|dir| run::layers(loaded, dir)).transpose()?,
    });
    let secret = || {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map(|()| bytes).context("this machine has no random numbers")
    };
    let records = StoreConfig::in_directory(place.path(), None, AuditKey::from_bytes(secret()?));
    let store = Store::open(&records).await.context("the records of this conversation could not be made")?;
    let settings = serve::control_settings(loaded, Pepper(secret()?))?;
    let setup = Setup {
        store: store.clone(),
        provider: Arc::clone(&engine.provider) as Arc<_>,
        runner,
        settings: Settings { enforcement: config.enforcement.unwrap_or(Enforcement::BestEffort), ..settings },
    };
    let control = Control::start(setup).await.context("the engine could not take up its work")?;
    let server = Server::new(control.clone(), mcp);
    let conversation = serve_stdio(&server, control.developer(), tokio::io::stdin(), tokio::io::stdout());
    tokio::pin!(conversation);
    let done = tokio::select! {
        done = &mut conversation => done,
        () = run::interrupted() => {
            closing.cancel();
            conversation.await
        }
    };
    // There is one client, so the server goes with it.
    closing.cancel();
    server.finished().await;
    control.drain(LAST_WAIT).await;
    control.end_everything().await;
    store.close().await;
    Ok(done?)
}

/// What the configuration says about the protocol, wherever it is spoken.
pub(crate) fn settings(loaded: &Loaded, closing: Closing) -> anyhow::Result<McpSettings> {
    let config = &loaded.config;
    let mcp = &config.dialects.mcp;
    let known = Server::known_tools();
    if let Some(unknown) = mcp.disabled_tools.iter().find(|name| !known.contains(name)) {
        return Err(misuse(format!(
            "`dialects.mcp.disabled_tools`: there is no tool {unknown}; there are {}",
            known.join(", ")
        )));
    }
    let set = |set: &McpToolset| match set {
        McpToolset::Files => Toolset::Files,
        McpToolset::Forks => Toolset::Forks,
        McpToolset::Packages => Toolset::Packages,
        McpToolset::Sandboxrunner => Toolset::SandboxRunner,
    };
    Ok(McpSettings {
        toolsets: mcp.toolsets.iter().map(set).collect(),
        disabled: mcp.disabled_tools.iter().cloned().collect(),
        shown: usize::try_from(mcp.shown.as_u64()).unwrap_or(usize::MAX),
        largest_message: usize::try_from(config.serve.body_limit.as_u64()).unwrap_or(usize::MAX),
        calls_at_once: usize::try_from(mcp.calls_at_once).unwrap_or(usize::MAX),
        task_after: mcp.task_after,
        home_idle: mcp.idle_timeout,
        home_lifetime: config.sandbox.lifetime_max,
        public_url: mcp.public_url.clone(),
        closing,
        ..McpSettings::default()
    })
}
