//! Running the cases, each in a fresh sandbox.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;

use anyhow::Context;
use futures_util::StreamExt;
use sandstorm_provider::{CreateOptions, Error, ExecEnd, ExecEvent, ExecRequest, OpContext, Provider};
use sandstorm_types::{Enforcement, EnvMap, ErrorKind, SandboxId, SandboxSpec, TenantId};

use super::cases::{CASES, Case, limits};
use super::judge::{judge, refusal};
use super::{Outcome, Row};
use crate::local::Local;

pub(super) fn all(engine: &Local) -> anyhow::Result<Vec<Row>> {
    let host = Host::prepare()?;
    let env = host.describe()?;
    Ok(CASES
        .iter()
        .map(|case| {
            let (outcome, reason) = engine.runtime.block_on(one(engine, case, &env));
            Row { name: case.name, suite: case.suite, outcome, reason }
        })
        .collect())
}

async fn one(engine: &Local, case: &Case, env: &EnvMap) -> (Outcome, String) {
    let cx = OpContext::new(TenantId::LOCAL);
    let options = CreateOptions::default();
    let id = options.id;
    let tried = attempt(engine, &cx, case, env, options).await;
    // What is left after a failure goes with the launcher.
    let _ = engine.provider.destroy(&cx, &id).await;
    match tried {
        Ok(verdict) => verdict,
        Err(e) if e.kind() == ErrorKind::Isolation => (Outcome::Refused, e.to_string()),
        Err(e) => (Outcome::Fail, e.to_string()),
    }
}

async fn attempt(
    engine: &Local,
    cx: &OpContext,
    case: &Case,
    env: &EnvMap,
    options: CreateOptions,
) -> Result<(Outcome, String), Error> {
    let id = options.id;
    let spec =
        SandboxSpec { enforcement: Enforcement::BestEffort, limits: limits(case), ..SandboxSpec::default() };
    let sandbox = engine.provider.create(cx, &spec, options).await?;
    if let Some(reason) = refusal(case, &sandbox.walls.unwrap_or_default()) {
        return Ok((Outcome::Refused, reason));
    }
    for program in case.programs {
        let (_, found) = execute(engine, cx, &id, format!("command -v {program}"), env).await?;
        if found.trim().is_empty() {
            return Ok((Outcome::Refused, format!("cannot be tried without the program `{program}`")));
        }
    }
    let (end, said) = execute(engine, cx, &id, case.script.to_owned(), env).await?;
    Ok(judge(case.expect, &end, &said))
}

/// Runs a script to its end; what it prints on either stream is kept.
async fn execute(
    engine: &Local,
    cx: &OpContext,
    id: &SandboxId,
    script: String,
    env: &EnvMap,
) -> Result<(ExecEnd, String), Error> {
    let mut request = ExecRequest::shell(script);
    request.env = env.clone();
    let mut exec = engine.provider.exec(cx, id, request).await?;
    let mut said = Vec::new();
    while let Some(event) = exec.events.next().await {
        match event? {
            ExecEvent::Started | ExecEvent::Channel { .. } => {}
            ExecEvent::Output { bytes, .. } => said.extend_from_slice(&bytes),
            ExecEvent::Exited(end) => return Ok((end, String::from_utf8_lossy(&said).into_owned())),
        }
    }
    Err(Error::new(ErrorKind::Internal, "the program's end was never reported"))
}

/// Things of the host that no sandbox may reach: a file and a listening port. They go when this is dropped.
struct Host {
    canary: PathBuf,
    listener: TcpListener,
}

impl Host {
    fn prepare() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no port of loopback can be listened on")?;
        let canary = std::env::temp_dir().join(format!("sandstorm-doctor-{}", SandboxId::random().bare()));
        fs::File::create_new(&canary).with_context(|| format!("could not make {}", canary.display()))?;
        Ok(Self { canary, listener })
    }

    /// What the scripts are told about the host.
    fn describe(&self) -> anyhow::Result<EnvMap> {
        let mut env = EnvMap::new();
        let mut tell = |name: &str, value: String| -> anyhow::Result<()> {
            env.insert(name.parse()?, value)?;
            Ok(())
        };
        for name in sandstorm_jail::NAMESPACES {
            let link = fs::read_link(format!("/proc/self/ns/{name}"))?;
            tell(&format!("NS_{}", name.to_uppercase()), link.to_string_lossy().into_owned())?;
        }
        tell("CANARY", self.canary.to_string_lossy().into_owned())?;
        tell("PORT", self.listener.local_addr()?.port().to_string())?;
        tell("CALLER", rustix::process::geteuid().as_raw().to_string())?;
        Ok(env)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.canary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cases that do no harm where nothing holds them back.
    const HARMLESS: [&str; 8] = [
        "own namespaces",
        "no capabilities",
        "own user id",
        "files of the host are not there",
        "agent is hidden",
        "kernel files are masked",
        "only harmless devices",
        "a port of the host",
    ];

    /// On the host itself there are no walls: a script that says nothing there would say nothing of a broken one.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the scripts are ours, and shown to be able to fail")]
    fn scripts_speak_where_there_is_no_wall() {
        let host = Host::prepare().unwrap();
        let env = host.describe().unwrap();
        for name in HARMLESS {
            let case = CASES.iter().find(|case| case.name == name).unwrap();
            let mut command = std::process::Command::new("/bin/sh");
            command.args(["-c", case.script]).envs(env.iter().map(|(name, value)| (name.to_string(), value)));
            let output = command.output().unwrap();
            assert!(
                !output.stdout.is_empty(),
                "{name} says nothing: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}
