//! `sandstorm languages`.

use std::io::Write;
use std::process::ExitCode;

use futures_util::StreamExt;
use sandstorm_language::{Catalogue, Language, Toolchain};
use sandstorm_provider::{CreateOptions, ExecEvent, ExecRequest, HostMount, OpContext, Provider};
use sandstorm_types::{ByteSize, Enforcement, Limits, SandboxId, SandboxSpec, TenantId};
use serde::Serialize;

use crate::arguments::{LanguagesCommand, Shared};
use crate::complaint::safe;
use crate::local::{self, Local};
use crate::configuration;

/// One line of the list, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    version: Option<String>,
    available: bool,
    install: String,
}

pub(crate) fn show(shared: &Shared, command: LanguagesCommand) -> anyhow::Result<ExitCode> {
    let loaded = configuration::load(shared)?;
    let roots = local::roots(&loaded.config);
    let enabled = |language: &&Language| loaded.config.languages.get(&language.name).is_none_or(|l| l.enabled);
    let mut found: Vec<(&Language, Option<Toolchain>)> =
        Catalogue::embedded().iter().filter(enabled).map(|l| (l, l.detect(&roots).ok())).collect();
    let engine = Local::start(&loaded)?;
    let asked = ask_versions(&engine, &mut found);
    engine.stop()?;
    asked?;
    let shown: Vec<Shown> = found
        .into_iter()
        .map(|(language, toolchain)| Shown {
            name: language.name.clone(),
            version: toolchain.as_ref().and_then(|t| t.version.clone()),
            available: toolchain.is_some(),
            install: language.install.command(),
        })
        .collect();
    let mut stdout = std::io::stdout().lock();
    if command.json {
        serde_json::to_writer(&mut stdout, &serde_json::json!({ "languages": shown }))?;
        writeln!(stdout)?;
    } else {
        for one in shown {
            let version = one.version.as_deref().unwrap_or(if one.available { "?" } else { "-" });
            let hint = if one.available { String::new() } else { format!("install: {}", one.install) };
            writeln!(stdout, "{:<12} {:<12} {hint}", one.name, safe(version))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks each toolchain for its version, inside one sandbox: a program of the host is as little trusted as any other.
fn ask_versions(engine: &Local, found: &mut [(&Language, Option<Toolchain>)]) -> anyhow::Result<()> {
    let cx = OpContext::new(TenantId::LOCAL);
    let mounts = found.iter().filter_map(|(_, t)| t.as_ref()).flat_map(|t| t.mounts.clone());
    let mut mounts: Vec<HostMount> = mounts.map(|path| HostMount { source: path.clone(), target: path }).collect();
    mounts.dedup();
    let options = CreateOptions { mounts, ..CreateOptions::default() };
    let id = options.id;
    let spec = SandboxSpec {
        enforcement: Enforcement::BestEffort,
        limits: Limits { memory: ByteSize::mib(1024), ..Limits::default() },
        ..SandboxSpec::default()
    };
    engine.runtime.block_on(engine.provider.create(&cx, &spec, options))?;
    for (language, toolchain) in found.iter_mut() {
        if let Some(toolchain) = toolchain {
            let mut ask = |argv: &[String]| {
                engine.runtime.block_on(output(engine, &cx, &id, argv)).map_err(std::io::Error::other)
            };
            // A toolchain that does not tell its version is still there.
            let _ = language.find_version(toolchain, &mut ask);
        }
    }
    engine.runtime.block_on(engine.provider.destroy(&cx, &id))?;
    Ok(())
}

async fn output(engine: &Local, cx: &OpContext, id: &SandboxId, argv: &[String]) -> anyhow::Result<String> {
    let mut exec = engine.provider.exec(cx, id, ExecRequest::program(argv.to_vec())).await?;
    let mut said = Vec::new();
    while let Some(event) = exec.events.next().await {
        if let ExecEvent::Output { bytes, .. } = event? {
            said.extend_from_slice(&bytes);
        }
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}
