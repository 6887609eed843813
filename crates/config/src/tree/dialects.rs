//! Foreign APIs that a server offers beside its own.

use std::collections::BTreeMap;
use std::time::Duration;

use sandstorm_types::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::form;

/// Foreign APIs that the server offers beside its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Dialects {
    /// The API under `/workspace/se`. Its limits are its own: those of `limits` do not count there.
    pub session: SessionDialect,
    /// The Model Context Protocol at `/mcp` and `/mcp/ws`, and over standard input and output with `sandstorm mcp`.
    pub mcp: McpDialect,
    /// E2B's API, for its own SDKs: sandboxes, commands, files, the code interpreter.
    pub e2b: E2bDialect,
}

/// The API under `/workspace/se`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionDialect {
    /// Whether it is offered.
    pub enabled: bool,
    /// Processor time of one execution.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub cpu_time: Duration,
    /// Memory of a session's programs. The files of a session live in memory too, and come on top of this.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub memory: ByteSize,
    /// Whether sessions reach the public internet, whatever `network.default` says.
    pub network: bool,
    /// Time by the clock of one execution that asks for none.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub timeout: Duration,
    /// Processes and threads of a session alive at once.
    pub processes: u32,
    /// How long a session lives; it is deleted then, with its files.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub expiration: Duration,
}

impl Default for SessionDialect {
    fn default() -> Self {
        SessionDialect {
            enabled: true,
            cpu_time: Duration::from_secs(2),
            memory: ByteSize::mib(128),
            network: true,
            timeout: Duration::from_secs(300),
            processes: 10,
            expiration: Duration::from_secs(86_400),
        }
    }
}

/// The Model Context Protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct McpDialect {
    /// Whether `sandstorm serve` offers it.
    pub enabled: bool,
    /// Tools beside the usual ones.
    pub toolsets: Vec<McpToolset>,
    /// Tools that are left out, by name.
    #[schemars(example = vec!["port_url".to_owned()])]
    pub disabled_tools: Vec<String>,
    /// Bytes of one stream or file that an answer shows a model; a link leads to the rest.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub shown: ByteSize,
    /// Calls of one client at the same time.
    pub calls_at_once: u32,
    /// When a call becomes a task, for clients that know tasks.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub task_after: Duration,
    /// How long the sandbox of a client lives after its last call.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub idle_timeout: Duration,
    /// Where clients reach the server, such as `https://sandstorm.example.org`, if it is behind a proxy under another name.
    pub public_url: Option<String>,
}

/// Tools that are switched on together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpToolset {
    /// Deleting and moving files, carrying folders in and out.
    Files,
    /// Copying living sandboxes.
    Forks,
    /// Which languages there are.
    Packages,
    /// The tools of SandboxRunner, under their own names.
    Sandboxrunner,
}

impl Default for McpDialect {
    fn default() -> Self {
        McpDialect {
            enabled: true,
            toolsets: Vec::new(),
            disabled_tools: Vec::new(),
            shown: ByteSize::kib(32),
            calls_at_once: 32,
            task_after: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30 * 60),
            public_url: None,
        }
    }
}

/// E2B's API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct E2bDialect {
    /// Whether it is offered.
    pub enabled: bool,
    /// The domain below which sandboxes have hosts, `{port}-{id}.{domain}`, with a port if that is not the usual one. Not
    /// needed where clients set `E2B_SANDBOX_URL`.
    #[schemars(example = "sandbox.example.org")]
    pub domain: Option<String>,
    /// Names of templates beside `base` and `code-interpreter-v1`, and what each means: `host`, or `image:` and a
    /// reference.
    pub templates: BTreeMap<String, String>,
    /// Python packages of sandboxes from `code-interpreter-v1`, beside what the host has.
    pub python_packages: Vec<String>,
    /// Whether sandboxes that do not say reach the public internet, as on E2B.
    pub network: bool,
}

impl Default for E2bDialect {
    fn default() -> Self {
        E2bDialect {
            enabled: true,
            domain: None,
            templates: BTreeMap::new(),
            python_packages: Vec::new(),
            network: true,
        }
    }
}
