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

use super::labels::{self, AUTO_RESUME, ORIGIN, REQUEST_HOST, TEMPLATE};
use super::network::NetworkWish;
use super::templates::missing;
use crate::address::Here;
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
    here: Here,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    dialect.create((&caller, &here), &headers, body, TIMEOUT).await
}

pub(crate) async fn create_v1(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    here: Here,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    dialect.create((&caller, &here), &headers, body, OLD_TIMEOUT).await
}

impl Dialect {
    async fn create(
        &self,
        (caller, here): (&Caller, &Here),
        headers: &HeaderMap,
        body: Body,
        usual_timeout: i64,
    ) -> Result<Response, Refusal> {
        let mut room = self.control.body_room(caller);
        let bytes = body::whole(body, SMALL, &mut room).await?;
        let wanted: Wanted = body::json(&bytes)?;
        let origin = match self.origin(caller, &wanted.template).await {
            Err(refused) if wanted.wants_gateway() && refused.status() == StatusCode::NOT_FOUND => {
                return Err(no_gateway(&wanted.template, &refused));
            }
            origin => origin?,
        };
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
        Ok((StatusCode::CREATED, Json(self.access(caller, id, &name, here)?)).into_response())
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
            (wanted.iam.is_some_and(|iam| !iam.is_null()), "iam"),
            (wanted.volume_mounts.is_some_and(|mounts| !mounts.is_empty()), "volumeMounts"),
        ] {
            if given {
                return Err(Refusal::invalid(format!("{what} is not offered by this server")));
            }
        }
        let resumes = wanted.auto_resume.as_ref().is_some_and(|resume| resume.enabled);
        let then = match (auto_pause.unwrap_or(false), auto_pause_memory.unwrap_or(true)) {
            (true, false) if resumes => {
                let message = "autoPauseMemory: false and autoResume exclude each other: what is paused without memory \
                    is resumed by connect only";
                return Err(Refusal::invalid(message));
            }
            (true, false) => OnEnd::PauseFiles,
            (true, true) => OnEnd::Pause,
            (false, false) => {
                return Err(Refusal::invalid("autoPauseMemory is for sandboxes with autoPause"));
            }
            (false, true) => OnEnd::Delete,
        };
        let Origin { template, name, behind } = origin;
        let has_programs = !matches!(template, Template::Image(_));
        let interprets = behind.as_ref().unwrap_or(&name) == INTERPRETER;
        let public = wanted.network.as_ref().and_then(NetworkWish::public_ports).unwrap_or(true);
        let request_host = wanted.network.as_ref().map(NetworkWish::request_host).transpose()?.flatten();
        let network = self.network(wanted.internet, wanted.network)?;
        let mut own = vec![(TEMPLATE, name.clone())];
        own.extend(behind.map(|behind| (ORIGIN, behind)));
        if resumes {
            own.push((AUTO_RESUME, "true".to_owned()));
        }
        own.push((Labels::PUBLIC_PORTS, public.to_string()));
        own.extend(request_host.map(|mask| (REQUEST_HOST, mask)));
        let mut new = NewSandbox {
            template,
            limits: self.settings.limits,
            env: environment(env_vars.unwrap_or_default(), &name, has_programs)?,
            network,
            labels: labels::labels(metadata.unwrap_or_default(), own)?,
            lifetime: Some(self.lifetime(timeout.unwrap_or(usual_timeout))?),
            on_end: Some(then),
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

impl Wanted {
    /// Whether the client will start E2B's MCP gateway in the sandbox. The server has no part in that: the program is in the
    /// template, and a client that does not find it there says so and ends the sandbox.
    fn wants_gateway(&self) -> bool {
        self.mcp.as_ref().is_some_and(|mcp| !mcp.is_null())
    }
}

fn no_gateway(template: &str, refused: &Refusal) -> Refusal {
    let shown: String = template.chars().take(128).collect();
    let message = format!(
        "mcp needs a template with E2B's program mcp-gateway, and {}: name an image that has it under \
         dialects.e2b.templates as '{shown}', or connect an MCP client to this server's own /mcp",
        refused.message()
    );
    Refusal::new(refused.status(), message)
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

/// Where programs are looked for: first among those that a sandbox of the host's tools has beside them, such as `sudo`.
const PROGRAMS: &str = "/etc/sandstorm/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables of every program, with those by which one knows where it is.
fn environment(
    given: BTreeMap<String, String>,
    template: &str,
    has_programs: bool,
) -> Result<EnvMap, Refusal> {
    let ours = [("E2B_SANDBOX", "true"), ("E2B_TEMPLATE_ID", template)];
    let ours = ours.into_iter().chain(has_programs.then_some(("PATH", PROGRAMS)));
    let ours = ours.map(|(name, value)| (name.to_owned(), value.to_owned()));
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
