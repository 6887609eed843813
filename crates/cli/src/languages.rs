//! `sandstorm languages`.

use std::io::Write;
use std::process::ExitCode;

use futures_util::StreamExt;
use sandstorm_config::Loaded;
use sandstorm_language::{Catalogue, Language, Toolchain};
use sandstorm_provider::{CreateOptions, ExecEvent, ExecRequest, HostMount, OpContext, Provider};
use sandstorm_types::{ByteSize, Enforcement, Limits, SandboxId, SandboxSpec, TenantId};
use serde::Serialize;

use crate::arguments::{LanguagesCommand, Shared};
use crate::complaint::safe;
use crate::configuration;
use crate::local::{self, Local};

/// One line of the list, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    pub(crate) name: String,
    pub(crate) version: Option<String>,
    pub(crate) available: bool,
    pub(crate) install: String,
}

pub(crate) fn show(shared: &Shared, command: LanguagesCommand) -> anyhow::Result<ExitCode> {
    let loaded = configuration::load(shared)?;
    let mut found = detect(&loaded);
    let engine = Local::start(&loaded)?;
    let asked = engine.runtime.block_on(ask_versions(&*engine.provider, &mut found));
    engine.stop()?;
    asked?;
    let shown = describe(found);
    let mut stdout = std::io::stdout().lock();
    if command.json {
        serde_json::to_writer(&mut stdout, &serde_json::json!({ "languages": shown }))?;
        writeln!(stdout)?;
    } else {
        for one in shown {
            let version = one.version.as_deref().unwrap_or(if one.available { "?" } else { "-" });
            let hint = if one.available { String::new() } else { format!("install: {}", one.install) };
            writeln!(stdout, "{}", format!("{:<12} {:<12} {hint}", one.name, safe(version)).trim_end())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A language and its toolchain, where this machine has one.
pub(crate) type Found = (&'static Language, Option<Toolchain>);

/// The languages that are not switched off.
pub(crate) fn detect(loaded: &Loaded) -> Vec<Found> {
    let roots = local::roots(&loaded.config);
    let enabled =
        |language: &&Language| loaded.config.languages.get(&language.name).is_none_or(|l| l.enabled);
    Catalogue::embedded().iter().filter(enabled).map(|l| (l, l.detect(&roots).ok())).collect()
}

pub(crate) fn describe(found: Vec<Found>) -> Vec<Shown> {
    let describe = |(language, toolchain): Found| Shown {
        name: language.name.clone(),
        version: toolchain.as_ref().and_then(|t| t.version.clone()),
        available: toolchain.is_some(),
        install: language.install.command(),
    };
    found.into_iter().map(describe).collect()
}

/// Asks each toolchain for its version, inside one sandbox: a program of the host is as little trusted as any other.
pub(crate) async fn ask_versions(provider: &dyn Provider, found: &mut [Found]) -> anyhow::Result<()> {
    let cx = OpContext::new(TenantId::LOCAL);
    let mounts = found.iter().filter_map(|(_, t)| t.as_ref()).flat_map(|t| t.mounts.clone());
    let mut mounts: Vec<HostMount> =
        mounts.map(|path| HostMount { source: path.clone(), target: path }).collect();
    mounts.dedup();
    // It ends with this process, however that ends.
    let options = CreateOptions { mounts, pooled: false, ephemeral: true, ..CreateOptions::default() };
    let id = options.id;
    let spec = SandboxSpec {
        enforcement: Enforcement::BestEffort,
        limits: Limits { memory: ByteSize::mib(1024), ..Limits::default() },
        ..SandboxSpec::default()
    };
    provider.create(&cx, &spec, options).await?;
    for (language, toolchain) in found.iter_mut() {
        if let Some(toolchain) = toolchain {
            // A toolchain that does not tell its version is still there.
            if let Ok(argv) = language.version_command(toolchain)
                && let Ok(said) = output(provider, &cx, &id, &argv).await
            {
                toolchain.keep_version(&said);
            }
        }
    }
    provider.destroy(&cx, &id).await?;
    Ok(())
}

async fn output(
    provider: &dyn Provider,
    cx: &OpContext,
    id: &SandboxId,
    argv: &[String],
) -> anyhow::Result<String> {
    let mut exec = provider.exec(cx, id, ExecRequest::program(argv.to_vec())).await?;
    let mut said = Vec::new();
    while let Some(event) = exec.events.next().await {
        if let ExecEvent::Output { bytes, .. } = event? {
            said.extend_from_slice(&bytes);
        }
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}
