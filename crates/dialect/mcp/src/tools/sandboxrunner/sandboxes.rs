//! Sandboxes as SandboxRunner names them: made, listed, terminated.

use std::collections::BTreeMap;
use std::str::FromStr;

use sandstorm_control::server::{NewSandbox, SandboxQuery, SandboxView};
use sandstorm_provider::FileOp;
use sandstorm_types::{ErrorKind, GuestPath, LimitsPatch, NetworkPolicy, OnEnd, Phase};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::trouble;
use crate::answer::Answer;
use crate::call::Call;
use crate::handles;
use crate::refusal::Refusal;
use crate::tools::run_code::environment;
use crate::tools::{Hints, Tool};

/// Sandboxes of one look at the store.
const PAGE: u32 = 1000;

#[derive(Debug)]
pub(in crate::tools) struct Create;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct CreateInput {
    /// Accepted for callers that name one; every sandbox shows this host's own programs and toolchains.
    #[serde(default)]
    image: String,
    /// A folder to make at once. Programs start in /workspace unless their call says otherwise.
    #[serde(default = "workspace")]
    workspace_dir: String,
    /// Variables that every program in it has.
    #[serde(default)]
    environment: BTreeMap<String, String>,
    /// Processors, such as `1.0`; the server's default unless given.
    #[serde(default)]
    cpu_limit: String,
    /// Memory of everything in it, such as `1G` or `512M`; the server's default unless given.
    #[serde(default)]
    memory_limit: String,
    /// Space for its files, such as `10G`; the server's default unless given.
    #[serde(default)]
    disk_limit: String,
    /// `none`, or public addresses with `bridge` and `host`, which mean the same here. It is fixed from here on.
    #[serde(default)]
    network_mode: NetworkMode,
}

pub(super) fn workspace() -> String {
    GuestPath::WORKSPACE.to_owned()
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum NetworkMode {
    #[default]
    None,
    Bridge,
    Host,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::tools) struct Created {
    sandbox_id: String,
    /// The same: a sandbox is one thing here.
    container_id: String,
    status: String,
    working_dir: String,
    created_at: String,
    /// When it ends by itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(default)]
    expires_at: String,
}

impl Tool for Create {
    const NAME: &'static str = "create_sandbox";
    const TITLE: &'static str = "Create a sandbox";
    const DESCRIPTION: &'static str = "Makes a sandbox with its own files, processes and limits. Its sandbox_id is what the other tools take. \
        It has no network unless network_mode asks for one, and lives until terminate_sandbox or until it was long unused.";
    const HINTS: Hints = Hints::ADDS;
    type Input = CreateInput;
    type Output = Created;

    async fn call(call: Call, input: CreateInput) -> Result<Answer<Created>, Refusal> {
        let folder = handles::folder(&input.workspace_dir)?;
        let settings = &call.shared.settings;
        let new = NewSandbox {
            env: environment(&input.environment)?,
            limits: limits(&input)?,
            network: match input.network_mode {
                NetworkMode::None => NetworkPolicy::None,
                NetworkMode::Bridge | NetworkMode::Host => NetworkPolicy::Open,
            },
            // SandboxRunner's sandboxes stay until they are terminated; one that nobody uses should not.
            lifetime: Some(settings.home_lifetime),
            idle_timeout: Some(settings.home_idle),
            on_end: Some(OnEnd::Delete),
            ..NewSandbox::default()
        };
        let view = call.wait("preparing", Box::pin(call.control().create_sandbox(&call.caller, new))).await?;
        if folder != GuestPath::workspace() {
            let made =
                call.control().files(&call.caller, view.id, FileOp::MakeDir { path: folder.clone() }).await;
            if let Err(error) = made {
                // The caller gets no id, so nobody else could end it.
                call.control().delete_sandbox(&call.caller, view.id).await?;
                return Err(error.into());
            }
        }
        let text = describe(&view, &input, &folder);
        let created = Created {
            sandbox_id: view.id.to_string(),
            container_id: view.id.to_string(),
            status: status(view.phase).to_owned(),
            working_dir: folder.to_string(),
            created_at: view.created_at.to_string(),
            expires_at: view.expires_at.map(|at| at.to_string()).unwrap_or_default(),
        };
        Ok(Answer::new(created, text))
    }
}

fn limits(input: &CreateInput) -> Result<LimitsPatch, Refusal> {
    Ok(LimitsPatch {
        cpus: read("cpu_limit", &input.cpu_limit)?,
        memory: read("memory_limit", &input.memory_limit)?,
        disk: read("disk_limit", &input.disk_limit)?,
        ..LimitsPatch::default()
    })
}

/// A limit as text; nothing is the server's default.
fn read<T: FromStr<Err: std::fmt::Display>>(name: &str, text: &str) -> Result<Option<T>, Refusal> {
    match text.trim() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|error| Refusal::argument(format!("`{name}`: {error}"))),
    }
}

fn describe(view: &SandboxView, input: &CreateInput, folder: &GuestPath) -> String {
    let limits = &view.spec.limits;
    let network = match input.network_mode {
        NetworkMode::None => "none",
        NetworkMode::Bridge | NetworkMode::Host => "public addresses",
    };
    let mut text = format!(
        "Sandbox {} is {}.\nworking_dir: {folder}\ncreated_at: {}\nconfig: cpu {}, memory {}, disk {}, network {network}",
        view.id,
        status(view.phase),
        view.created_at,
        limits.cpus,
        limits.memory,
        limits.disk,
    );
    if let Some(until) = view.expires_at {
        text.push_str(&format!("\nIt ends by itself at {until}, or earlier if nothing uses it."));
    }
    if !input.image.is_empty() {
        text.push_str(&format!(
            "\nNote: no image is used, also not {:?}: programs and toolchains are those of this host.",
            input.image
        ));
    }
    if *folder != GuestPath::workspace() {
        text.push_str(
            "\nNote: programs start in /workspace unless `working_dir` of their call names this folder.",
        );
    }
    text
}

/// SandboxRunner's word for a state.
fn status(phase: Phase) -> &'static str {
    match phase {
        Phase::Creating => "creating",
        Phase::Ready | Phase::Running | Phase::Resuming => "running",
        Phase::Pausing | Phase::Paused | Phase::Terminating | Phase::Terminated => "stopped",
        Phase::Failed => "error",
    }
}

#[derive(Debug)]
pub(in crate::tools) struct List;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Nothing {}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::tools) struct Listed {
    count: usize,
    sandboxes: Vec<Line>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Line {
    id: String,
    container_id: String,
    /// creating, running, stopped or error.
    status: String,
    created_at: String,
    updated_at: String,
}

impl Tool for List {
    const NAME: &'static str = "list_sandboxes";
    const TITLE: &'static str = "List sandboxes";
    const DESCRIPTION: &'static str =
        "Lists all living sandboxes of this account with their states, the newest first.";
    const HINTS: Hints = Hints::LOOKS;
    type Input = Nothing;
    type Output = Listed;

    async fn call(call: Call, _input: Nothing) -> Result<Answer<Listed>, Refusal> {
        let (mut sandboxes, mut cursor) = (Vec::new(), None);
        loop {
            let query = SandboxQuery { limit: Some(PAGE), cursor, ..SandboxQuery::default() };
            let page = call.control().sandboxes(&call.caller, query).await?;
            sandboxes.extend(page.items.iter().map(|view| Line {
                id: view.id.to_string(),
                container_id: view.id.to_string(),
                status: status(view.phase).to_owned(),
                created_at: view.created_at.to_string(),
                updated_at: view.ended_at.unwrap_or(view.created_at).to_string(),
            }));
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        let mut text = format!("{} sandbox(es)", sandboxes.len());
        for line in &sandboxes {
            text.push_str(&format!("\n{}: {}, created {}", line.id, line.status, line.created_at));
        }
        Ok(Answer::new(Listed { count: sandboxes.len(), sandboxes }, text))
    }
}

#[derive(Debug)]
pub(in crate::tools) struct Terminate;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct TerminateInput {
    /// The sandbox.
    sandbox_id: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::tools) struct Terminated {
    sandbox_id: String,
    /// CONTAINER_NOT_FOUND, where there is none.
    #[serde(skip_serializing_if = "str::is_empty")]
    #[schemars(default)]
    error_code: &'static str,
}

impl Tool for Terminate {
    const NAME: &'static str = "terminate_sandbox";
    const TITLE: &'static str = "Terminate a sandbox";
    const DESCRIPTION: &'static str =
        "Ends a sandbox with every program and file in it. One that has ended already is no error.";
    const HINTS: Hints = Hints::REPLACES;
    type Input = TerminateInput;
    type Output = Terminated;

    async fn call(call: Call, input: TerminateInput) -> Result<Answer<Terminated>, Refusal> {
        let sandbox = handles::sandbox(&input.sandbox_id)?;
        let sandbox_id = sandbox.to_string();
        match call.control().delete_sandbox(&call.caller, sandbox).await {
            Ok(()) => {
                let text = format!("Sandbox {sandbox} is terminated, and everything in it is gone.");
                Ok(Answer::new(Terminated { sandbox_id, error_code: "" }, text))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let (error_code, text) = trouble(&call, sandbox, error).await;
                let mut answer = Answer::new(Terminated { sandbox_id, error_code }, text);
                answer.is_error = true;
                Ok(answer)
            }
            Err(error) => Err(error.into()),
        }
    }
}
