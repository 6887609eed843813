//! Making a sandbox.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Extension;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use ring::digest::{SHA256, digest};
use sandstorm_control::server::{Answer, Caller, Keyed, NewSandbox, OneSandbox, SandboxView};
use sandstorm_e2b_wire::IDEMPOTENCY_KEY;
use sandstorm_types::{EnvMap, Labels, OnEnd, SandboxId, Template};
use serde::Deserialize;
use serde_json::Value;

use super::labels::{self, AUTO_RESUME, ORIGIN, TEMPLATE};
use super::network::NetworkWish;
use super::templates::missing;
use crate::body::{self, SMALL};
use crate::refusal::Refusal;
use crate::settings::{BASE, INTERPRETER};
use crate::state::Dialect;

/// Lifetimes of those who ask for none: older clients send requests of their own to keep a sandbox alive.
const OLD_TIMEOUT: i64 = 15;
const TIMEOUT: i64 = 300;

/// A sandbox to make. Fields that are not here are ignored, as E2B's own server does it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Wanted {
    #[serde(rename = "templateID")]
    template: String,
    timeout: Option<i64>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    env_vars: Option<BTreeMap<String, String>>,
    #[serde(default)]
    auto_pause: Option<bool>,
    #[serde(default)]
    auto_pause_memory: Option<bool>,
    #[serde(default)]
    auto_resume: Option<AutoResume>,
    #[serde(rename = "allow_internet_access")]
    internet: Option<bool>,
    #[serde(default)]
    network: Option<NetworkWish>,
    #[serde(default)]
    mcp: Option<Value>,
    #[serde(default)]
    iam: Option<Value>,
    #[serde(default)]
    volume_mounts: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
struct AutoResume {
    #[serde(default)]
    enabled: bool,
}

pub(crate) async fn create(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    dialect.create(&caller, &headers, body, TIMEOUT).await
}

pub(crate) async fn create_v1(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    dialect.create(&caller, &headers, body, OLD_TIMEOUT).await
}

impl Dialect {
    async fn create(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        body: Body,
        usual_timeout: i64,
    ) -> Result<Response, Refusal> {
        let mut room = self.control.body_room(caller);
        let bytes = body::whole(body, SMALL, &mut room).await?;
        let wanted: Wanted = body::json(&bytes)?;
        let origin = self.origin(caller, &wanted.template).await?;
        let name = origin.name.clone();
        let new = self.new_sandbox(wanted, origin, usual_timeout)?;
        let key = headers.get(IDEMPOTENCY_KEY).map(|value| value.to_str().unwrap_or_default());
        let id = match key {
            Some(key) => self.create_once(caller, key, &bytes, new).await?,
            None => {
                let made = Box::pin(self.control.create_sandbox(caller, new)).await;
                made.map_err(|error| Refusal::from(error).hard())?.id
            }
        };
        Ok((StatusCode::CREATED, Json(self.access(caller, id, &name)?)).into_response())
    }

    /// A repeated request finds the sandbox of the first one. Only its id is kept: what opens it is made anew.
    async fn create_once(
        &self,
        caller: &Caller,
        key: &str,
        body: &[u8],
        new: NewSandbox,
    ) -> Result<SandboxId, Refusal> {
        let hash = digest(&SHA256, body).as_ref().try_into().expect("SHA-256 has 32 bytes");
        let keyed = Keyed { route: "POST /v2/sandboxes", key, body_hash: hash };
        let write = |made: SandboxView| {
            let body = Bytes::from(made.id.bare());
            Answer { status: 201, content_type: "text/plain".to_owned(), body }
        };
        let answered = Box::pin(self.control.once(caller, keyed, OneSandbox(new), write)).await;
        let answer = answered.and_then(|answered| answered.answer);
        let body = answer.map_err(|error| Refusal::from(error).hard())?.body;
        let id = str::from_utf8(&body).ok().and_then(|id| SandboxId::from_bare(id).ok());
        id.ok_or_else(|| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "a kept answer cannot be read"))
    }

    fn new_sandbox(&self, wanted: Wanted, origin: Origin, usual_timeout: i64) -> Result<NewSandbox, Refusal> {
        let Wanted { timeout, metadata, env_vars, auto_pause, auto_pause_memory, .. } = wanted;
        for (given, what) in [
            (wanted.mcp.is_some_and(|mcp| !mcp.is_null()), "mcp"),
            (wanted.iam.is_some_and(|iam| !iam.is_null()), "iam"),
            (wanted.volume_mounts.is_some_and(|mounts| !mounts.is_empty()), "volumeMounts"),
        ] {
            if given {
                return Err(Refusal::invalid(format!("{what} is not offered by this server")));
            }
        }
        if auto_pause_memory == Some(false) {
            return Err(Refusal::invalid("this server pauses with memory: autoPauseMemory cannot be false"));
        }
        let Origin { template, name, behind } = origin;
        let interprets = behind.as_ref().unwrap_or(&name) == INTERPRETER;
        let public = wanted.network.as_ref().and_then(NetworkWish::public_ports).unwrap_or(true);
        let network = self.network(wanted.internet, wanted.network)?;
        let mut own = vec![(TEMPLATE, name.clone())];
        own.extend(behind.map(|behind| (ORIGIN, behind)));
        if wanted.auto_resume.is_some_and(|resume| resume.enabled) {
            own.push((AUTO_RESUME, "true".to_owned()));
        }
        own.push((Labels::PUBLIC_PORTS, public.to_string()));
        let mut new = NewSandbox {
            template,
            limits: self.settings.limits,
            env: environment(env_vars.unwrap_or_default(), &name)?,
            network,
            labels: labels::labels(metadata.unwrap_or_default(), own)?,
            lifetime: Some(self.lifetime(timeout.unwrap_or(usual_timeout))?),
            on_end: Some(if auto_pause == Some(true) { OnEnd::Pause } else { OnEnd::Delete }),
            // It lives its time out, used or not.
            idle_timeout: Some(self.settings.longest_lifetime),
            contexts: interprets,
            ..NewSandbox::default()
        };
        if interprets && !self.settings.python_packages.is_empty() {
            let python = "python".parse().expect("letters only");
            new.requirements.insert(python, self.settings.python_packages.clone());
        }
        Ok(new)
    }

    /// What a template's name means: one of the operator's, or a saved sandbox of the caller's.
    async fn origin(&self, caller: &Caller, asked: &str) -> Result<Origin, Refusal> {
        let name = untagged(asked).ok_or_else(|| missing(asked))?;
        if let Some(template) = self.settings.templates.get(name) {
            return Ok(Origin { template: template.clone(), name: name.to_owned(), behind: None });
        }
        let saved = self.saved(caller, asked).await?;
        let labels = &saved.spec.labels;
        let behind = labels.get(ORIGIN).or_else(|| labels.get(TEMPLATE)).unwrap_or(BASE).to_owned();
        Ok(Origin {
            template: Template::Snapshot(saved.id),
            name: saved.id.to_string(),
            behind: Some(behind),
        })
    }

    /// A lifetime in seconds, within what the server allows.
    pub(crate) fn lifetime(&self, seconds: i64) -> Result<Duration, Refusal> {
        let longest = self.settings.longest_lifetime;
        match u64::try_from(seconds).map(Duration::from_secs) {
            Ok(span) if span > longest => {
                let hours = longest.as_secs_f64() / 3600.0;
                Err(Refusal::invalid(format!("Timeout cannot be greater than {hours} hours")))
            }
            Ok(span) if !span.is_zero() => Ok(span),
            _ => Err(Refusal::invalid("Timeout must be greater than 0")),
        }
    }
}

/// What a sandbox is made from.
struct Origin {
    template: Template,
    /// As clients are shown it.
    name: String,
    /// The operator's template that a saved sandbox was made from.
    behind: Option<String>,
}

/// A template's name without its tag. Tags are not kept here: the usual one is none, and others mean nothing.
pub(crate) fn untagged(template: &str) -> Option<&str> {
    match template.split_once(':') {
        None => Some(template),
        Some((name, "default" | "latest")) => Some(name),
        Some(_) => None,
    }
}

/// Variables of every program, with those by which one knows where it is.
fn environment(given: BTreeMap<String, String>, template: &str) -> Result<EnvMap, Refusal> {
    let ours = [("E2B_SANDBOX", "true"), ("E2B_TEMPLATE_ID", template)];
    let ours = ours.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    variables(ours.chain(given))
}

/// Variables as they were given, refused by name.
pub(crate) fn variables(given: impl IntoIterator<Item = (String, String)>) -> Result<EnvMap, Refusal> {
    let mut env = EnvMap::new();
    for (name, value) in given {
        let wrong = |error| Refusal::invalid(format!("{error}"));
        env.insert(name.parse().map_err(wrong)?, value).map_err(wrong)?;
    }
    Ok(env)
}
