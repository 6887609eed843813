//! Sandboxes: made, listed, looked at, ended.

use std::collections::BTreeMap;

use sandstorm_control::server::{NewSandbox, SandboxQuery, SandboxView};
use sandstorm_types::{LimitsPatch, OnEnd};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::run_code::{environment, requirement_list};
use super::{Hints, Tool};
use crate::answer::Answer;
use crate::call::{Call, seconds};
use crate::handles;
use crate::refusal::Refusal;

/// Most that one answer lists.
const PAGE: u32 = 100;

/// A sandbox, as every tool shows it.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Sandbox {
    pub(super) sandbox_id: String,
    /// creating, ready, running, pausing, paused, resuming, terminating, terminated or failed.
    pub(super) state: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(default)]
    pub(super) reason: String,
    pub(super) created_at: String,
    /// When it ends by itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(default)]
    pub(super) expires_at: String,
    /// none, open, or which hosts can be reached.
    pub(super) network: String,
    pub(super) memory: String,
    pub(super) commands_running: usize,
}

impl From<&SandboxView> for Sandbox {
    fn from(view: &SandboxView) -> Self {
        let network = serde_json::to_value(&view.spec.network).ok();
        Self {
            sandbox_id: view.id.to_string(),
            state: view.phase.name().to_owned(),
            reason: view.reason.clone().unwrap_or_default(),
            created_at: view.created_at.to_string(),
            expires_at: view.expires_at.map(|at| at.to_string()).unwrap_or_default(),
            network: match network {
                Some(serde_json::Value::String(name)) => name,
                Some(other) => other.to_string(),
                None => "none".to_owned(),
            },
            memory: view.spec.limits.memory.to_string(),
            commands_running: view.execs_running,
        }
    }
}

impl Sandbox {
    fn line(&self) -> String {
        let until =
            if self.expires_at.is_empty() { String::new() } else { format!(", until {}", self.expires_at) };
        format!(
            "{}: {}{until}, network {}, memory {}",
            self.sandbox_id, self.state, self.network, self.memory
        )
    }
}

#[derive(Debug)]
pub(super) struct Create;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateInput {
    /// Packages by language, such as {"python": ["numpy"]}; mounted read-only.
    #[serde(default)]
    packages: BTreeMap<String, Vec<String>>,
    /// Variables that every program in it has.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Memory of everything in it, such as `512MiB` or `2GiB`; the server's default unless given.
    #[serde(default)]
    memory: String,
    /// Seconds that it lives at most.
    #[serde(default = "five_minutes")]
    lifetime_s: f64,
}

fn five_minutes() -> f64 {
    300.0
}

impl Tool for Create {
    const NAME: &'static str = "sandbox_create";
    const TITLE: &'static str = "Make a sandbox";
    const DESCRIPTION: &'static str = "Makes a sandbox: a safe place with its own files, processes and limits, without network. Its \
        sandbox_id is what run_code, sandbox_exec and the file tools take. For one piece of code, run_code alone is enough.";
    const HINTS: Hints = Hints::ADDS;
    type Input = CreateInput;
    type Output = Sandbox;

    async fn call(call: Call, input: CreateInput) -> Result<Answer<Sandbox>, Refusal> {
        let mut requirements = BTreeMap::new();
        for (language, packages) in &input.packages {
            requirements.insert(handles::language(language)?, requirement_list(packages)?);
        }
        let memory = match input.memory.as_str() {
            "" => None,
            text => {
                Some(text.parse().map_err(|error| Refusal::argument(format!("`memory` {text:?}: {error}")))?)
            }
        };
        let new = NewSandbox {
            requirements,
            env: environment(&input.env)?,
            limits: LimitsPatch { memory, ..LimitsPatch::default() },
            lifetime: Some(seconds("lifetime_s", input.lifetime_s)?),
            on_end: Some(OnEnd::Delete),
            contexts: true,
            ..NewSandbox::default()
        };
        let view = call.wait("preparing", Box::pin(call.control().create_sandbox(&call.caller, new))).await?;
        let made = Sandbox::from(&view);
        let text = format!("Made {}", made.line());
        Ok(Answer::new(made, text))
    }
}

#[derive(Debug)]
pub(super) struct List;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListInput {
    /// Also those that ended lately.
    #[serde(default)]
    include_ended: bool,
    /// From `next_cursor` of an earlier answer.
    #[serde(default)]
    cursor: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Listed {
    sandboxes: Vec<Sandbox>,
    /// There are more: give this back as `cursor`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(default)]
    next_cursor: String,
}

impl Tool for List {
    const NAME: &'static str = "sandbox_list";
    const TITLE: &'static str = "List sandboxes";
    const DESCRIPTION: &'static str =
        "Lists the sandboxes of this account, newest first, with their states and when they end.";
    const HINTS: Hints = Hints::LOOKS;
    type Input = ListInput;
    type Output = Listed;

    async fn call(call: Call, input: ListInput) -> Result<Answer<Listed>, Refusal> {
        let query = SandboxQuery {
            include_ended: input.include_ended,
            limit: Some(PAGE),
            cursor: (!input.cursor.is_empty()).then_some(input.cursor),
            ..SandboxQuery::default()
        };
        let page = call.control().sandboxes(&call.caller, query).await?;
        let sandboxes: Vec<Sandbox> = page.items.iter().map(Sandbox::from).collect();
        let text = match sandboxes.is_empty() {
            true => "There are no sandboxes.".to_owned(),
            false => sandboxes.iter().map(Sandbox::line).collect::<Vec<_>>().join("\n"),
        };
        Ok(Answer::new(Listed { sandboxes, next_cursor: page.next_cursor.unwrap_or_default() }, text))
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OneInput {
    /// The sandbox.
    sandbox_id: String,
}

#[derive(Debug)]
pub(super) struct Get;

impl Tool for Get {
    const NAME: &'static str = "sandbox_get";
    const TITLE: &'static str = "Look at a sandbox";
    const DESCRIPTION: &'static str =
        "Shows the state of one sandbox: whether it lives, until when, with which network and memory.";
    const HINTS: Hints = Hints::LOOKS;
    type Input = OneInput;
    type Output = Sandbox;

    async fn call(call: Call, input: OneInput) -> Result<Answer<Sandbox>, Refusal> {
        let view = call.control().sandbox(&call.caller, handles::sandbox(&input.sandbox_id)?).await?;
        let found = Sandbox::from(&view);
        let text = found.line();
        Ok(Answer::new(found, text))
    }
}

#[derive(Debug)]
pub(super) struct Delete;

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Deleted {
    sandbox_id: String,
    deleted: bool,
}

impl Tool for Delete {
    const NAME: &'static str = "sandbox_delete";
    const TITLE: &'static str = "End a sandbox";
    const DESCRIPTION: &'static str = "Ends a sandbox with everything in it: programs, files and variables. One that has ended already is \
        no error.";
    const HINTS: Hints = Hints::REPLACES;
    type Input = OneInput;
    type Output = Deleted;

    async fn call(call: Call, input: OneInput) -> Result<Answer<Deleted>, Refusal> {
        let sandbox = handles::sandbox(&input.sandbox_id)?;
        call.control().delete_sandbox(&call.caller, sandbox).await?;
        let data = Deleted { sandbox_id: sandbox.to_string(), deleted: true };
        Ok(Answer::new(data, format!("{sandbox} and everything in it is gone.")))
    }
}
