//! `sandstorm sandbox create`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sandstorm_client::{Client, NewSandbox};
use sandstorm_types::{
    Enforcement, LanguageName, LimitName, LimitsPatch, NetworkPolicy, OnEnd, Requirement, Space, Template,
    User, duration,
};

use super::super::Output;
use super::super::routing::RoutingFlags;
use crate::arguments::SpaceName;
use crate::complaint::misuse;
use crate::run::request;

#[derive(Debug, Args)]
pub(crate) struct CreateCommand {
    /// What it starts from: `host`, `image:REFERENCE` or `snapshot:ID`
    #[arg(long, value_name = "TEMPLATE")]
    template: Option<String>,
    #[command(flatten)]
    wishes: Wishes,
}

/// What a new sandbox may have, whatever it starts from.
#[derive(Debug, Args)]
pub(crate) struct Wishes {
    /// Package to have at hand, such as `python:numpy==2.1.0`; may be repeated
    #[arg(short, long = "require", value_name = "LANGUAGE:PACKAGE")]
    require: Vec<String>,
    /// Variable of every program's environment, `NAME=VALUE`; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Network: `none`, `open`, or hosts to allow, such as `allow:example.com,*.example.org:8443`
    #[arg(long, value_name = "POLICY")]
    network: Option<String>,
    /// Label to find it by, `KEY=VALUE`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// Whom its programs run as
    #[arg(long, value_name = "USER")]
    user: Option<UserName>,

    /// Memory of all programs together, such as `256M`
    #[arg(long, value_name = "SIZE", help_heading = "Limits", allow_negative_numbers = true)]
    memory: Option<String>,
    /// Processors, such as `0.5` or `2`
    #[arg(long, value_name = "N", help_heading = "Limits", allow_negative_numbers = true)]
    cpus: Option<String>,
    /// Bytes that can be written to files
    #[arg(long, value_name = "SIZE", help_heading = "Limits", allow_negative_numbers = true)]
    disk: Option<String>,
    /// Where that lies: in memory, or on the server's disk
    #[arg(long, value_name = "PLACE", help_heading = "Limits")]
    space: Option<SpaceName>,
    /// Processes and threads alive at once
    #[arg(long, value_name = "N", help_heading = "Limits", allow_negative_numbers = true)]
    pids: Option<String>,
    /// Go on when a wall or limit cannot be had on the server's machine, instead of refusing
    #[arg(long, help_heading = "Limits")]
    best_effort: bool,

    /// How long it lives unless it is extended, such as `10m`
    #[arg(long, value_name = "TIME", help_heading = "Lifetime")]
    lifetime: Option<String>,
    /// What happens at the end of its lifetime
    #[arg(long, value_name = "WHAT", help_heading = "Lifetime")]
    on_end: Option<EndAction>,
    /// How long it may go unused before its lifetime ends
    #[arg(long, value_name = "TIME", help_heading = "Lifetime")]
    idle: Option<String>,

    #[command(flatten)]
    routing: RoutingFlags,
}

/// Whom programs run as.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum UserName {
    User,
    Root,
}

impl From<UserName> for User {
    fn from(name: UserName) -> Self {
        match name {
            UserName::User => Self::User,
            UserName::Root => Self::Root,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum EndAction {
    Pause,
    Delete,
}

pub(super) async fn create(
    client: &Client,
    output: Output,
    command: CreateCommand,
) -> anyhow::Result<ExitCode> {
    let sandbox = client.create_sandbox(&command.request()?).await?;
    output.line(&sandbox, &sandbox.id.to_string())?;
    Ok(ExitCode::SUCCESS)
}

impl CreateCommand {
    fn request(&self) -> anyhow::Result<NewSandbox> {
        let template = self.template.as_deref().map(template).transpose()?;
        Ok(NewSandbox { template, ..self.wishes.request()? })
    }
}

impl Wishes {
    /// A request that does not say what the sandbox starts from.
    pub(in super::super) fn request(&self) -> anyhow::Result<NewSandbox> {
        Ok(NewSandbox {
            template: None,
            limits: self.limits()?,
            env: request::environment(&self.env)?,
            network: self.network.as_deref().map(network).transpose()?,
            labels: labels(&self.label)?,
            lifetime: self.lifetime.as_deref().map(|text| time("--lifetime", text)).transpose()?,
            on_end: self.on_end.map(|action| match action {
                EndAction::Pause => OnEnd::Pause,
                EndAction::Delete => OnEnd::Delete,
            }),
            idle_timeout: self.idle.as_deref().map(|text| time("--idle", text)).transpose()?,
            user: self.user.map(User::from),
            space: self.space.map(Space::from),
            enforcement: self.best_effort.then_some(Enforcement::BestEffort),
            requirements: requirements(&self.require)?,
            routing: self.routing.routing()?,
        })
    }

    fn limits(&self) -> anyhow::Result<LimitsPatch> {
        let mut limits = LimitsPatch::default();
        for (flag, name, text) in [
            ("--memory", LimitName::Memory, &self.memory),
            ("--cpus", LimitName::Cpus, &self.cpus),
            ("--disk", LimitName::Disk, &self.disk),
            ("--pids", LimitName::Processes, &self.pids),
        ] {
            if let Some(text) = text {
                limits.set_text(name, text).map_err(|e| misuse(format!("{flag} {text}: {e}")))?;
            }
        }
        Ok(limits)
    }
}

/// A length of time, as a flag gives it.
pub(in super::super) fn time(flag: &str, text: &str) -> anyhow::Result<Duration> {
    duration::parse(text).map_err(|e| misuse(format!("{flag} {text}: {e}")))
}

/// A policy; the word `allow:` before its hosts may be left out.
pub(super) fn network(text: &str) -> anyhow::Result<NetworkPolicy> {
    request::network(text.strip_prefix("allow:").unwrap_or(text))
}

/// Labels from `KEY=VALUE`; the server checks the rest.
pub(super) fn labels(pairs: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let pair = |pair: &String| match pair.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(misuse(format!("--label {pair}: expected KEY=VALUE"))),
    };
    pairs.iter().map(pair).collect()
}

fn template(text: &str) -> anyhow::Result<Template> {
    match text.split_once(':') {
        None if text == "host" => Ok(Template::Host),
        Some(("image", reference)) if !reference.is_empty() => Ok(Template::Image(reference.to_owned())),
        Some(("snapshot", id)) => {
            id.parse().map(Template::Snapshot).map_err(|e| misuse(format!("--template {text}: {e}")))
        }
        _ => Err(misuse(format!("--template {text}: expected host, image:REFERENCE or snapshot:ID"))),
    }
}

fn requirements(given: &[String]) -> anyhow::Result<BTreeMap<LanguageName, Vec<Requirement>>> {
    let mut all: BTreeMap<LanguageName, Vec<Requirement>> = BTreeMap::new();
    for text in given {
        let bad = |why: String| misuse(format!("--require {text}: {why}"));
        let (language, package) =
            text.split_once(':').ok_or_else(|| bad("expected LANGUAGE:PACKAGE".to_owned()))?;
        let language = language.parse().map_err(|e| bad(format!("{e}")))?;
        all.entry(language).or_default().push(package.parse().map_err(|e| bad(format!("{e}")))?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_a_request() {
        assert_eq!(template("host").unwrap(), Template::Host);
        assert_eq!(template("image:debian:12").unwrap(), Template::Image("debian:12".to_owned()));
        for bad in ["", "debian", "image:", "snapshot:x", "host:"] {
            assert!(template(bad).is_err(), "{bad}");
        }
        assert_eq!(network("allow:example.com").unwrap(), network("example.com").unwrap());
        assert_eq!(network("none").unwrap(), NetworkPolicy::None);
        assert!(network("allow:").is_err());
        assert!(labels(&["team".to_owned()]).is_err());
        assert_eq!(labels(&["team=a=b".to_owned()]).unwrap()["team"], "a=b");
        let found = requirements(&["python:numpy==2.1.0".to_owned(), "python:rich".to_owned()]).unwrap();
        assert_eq!(found.values().next().unwrap().len(), 2);
        assert!(requirements(&["numpy".to_owned()]).is_err());
    }
}
