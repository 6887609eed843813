//! The typed tree: one struct per section of `sandstorm.yaml`.
//!
//! These structs declare every key. Their comments are the text of the reference page, of the JSON schema and of
//! the file that `config init` writes, so they speak to operators.

mod costs;
mod dialects;
mod disk_space;
mod ids;
mod limits;
mod network;
mod packages;
mod pool;
mod providers;
mod quotas;
mod records;
mod run_cache;
mod sandboxes;
mod serve;
mod snapshots;
mod telemetry;

use std::collections::BTreeMap;
use std::path::PathBuf;

use sandstorm_types::{ByteSize, Enforcement, Limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::form;

pub use costs::{Budget, BudgetEnd, BudgetPeriod, Costs};
pub use dialects::{Dialects, E2bDialect, McpDialect, McpToolset, SessionDialect};
pub use disk_space::DiskSpace;
pub use ids::Ids;
use limits::LimitsForm;
pub use network::{Network, NetworkDefault};
pub use packages::{Index, IndexError, Manager, PackageIndex, Packages};
pub use pool::Pool;
pub use providers::{
    Price, PriceModel, ProviderKind, ProviderSettings, RoutingObjective, RoutingSettings, RoutingWeights,
};
pub use quotas::{Admission, Quotas};
pub use records::{Database, Durability, Retention};
pub use run_cache::RunCache;
pub use sandboxes::{Ceiling, Sandboxes};
pub use serve::{Serve, Tls};
pub use snapshots::Snapshots;
pub use telemetry::Telemetry;

/// Configuration of Sandstorm.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where Sandstorm keeps its state: caches, leases, the database of a server. An absolute path; the directory
    /// is made with mode 0700. Not set: `/var/lib/sandstorm` as root, else `$XDG_STATE_HOME/sandstorm`, else
    /// `~/.local/state/sandstorm`.
    #[schemars(example = &"/var/lib/sandstorm")]
    pub state_dir: Option<PathBuf>,

    /// What to do about a limit or wall that this machine cannot enforce: `strict` refuses the work,
    /// `best_effort` runs it and says in the result what was missing. Not set: `best_effort` for `run`; for `serve`
    /// `strict` where this machine can enforce everything, else `best_effort` on loopback addresses, else the server
    /// does not start.
    #[schemars(with = "Option<EnforcementForm>", example = &"strict")]
    pub enforcement: Option<Enforcement>,

    /// Which system calls programs in sandboxes may make. `standard` suits every program. `strict` also refuses locks on
    /// files, questions about the page cache, lists of mounts, `sync`, and the kernel's older asynchronous I/O: builds with
    /// Go or Cargo and SQLite need locks and fail under it, and there are no warm interpreters.
    pub system_calls: SystemCalls,

    /// The control group under which sandboxes get their own, relative to the root of each hierarchy. Not set:
    /// `sandstorm`; for a server of an ordinary user, one below the group that it was started in, if that is the user's.
    #[schemars(example = &"sandstorm")]
    pub cgroup_parent: Option<String>,

    /// Limits of a run or sandbox that asks for none of its own.
    #[serde(with = "limits")]
    #[schemars(with = "LimitsForm")]
    pub limits: Limits,

    /// Network of sandboxes.
    pub network: Network,

    /// Host user and group ids that sandboxes run under when Sandstorm runs as root. Each sandbox holds one block
    /// of 65,536 ids.
    ///
    /// The default range, 2,013,265,920 to 2,144,337,919, is one that nothing else hands out by default: it lies
    /// above the subordinate ids of `/etc/subuid` (up to 600,100,000), systemd's ids for containers (up to
    /// 1,879,048,191) and the ids that SSSD and FreeIPA give to directory users (up to 2,000,200,000), and below
    /// systemd's foreign ids (from 2,147,352,576) and those that some programs take for negative numbers (from
    /// 2,147,483,648).
    pub ids: Ids,

    /// What a sandbox sees of this machine.
    pub template: Template,

    /// Languages by name, for those that need other than the built-in settings.
    #[schemars(example = Language::examples())]
    pub languages: BTreeMap<String, Language>,

    /// Where packages come from when a run asks for some.
    pub packages: Packages,

    /// Caches: dependency layers and compiled programs.
    pub cache: Cache,

    /// Log output of Sandstorm itself, on standard error.
    pub log: Log,

    /// The server.
    pub serve: Serve,

    /// Where a server keeps its records.
    pub database: Database,

    /// What each tenant of a server may use, unless the tenant has quotas of its own.
    pub quotas: Quotas,

    /// What this machine takes on.
    pub admission: Admission,

    /// Sandboxes of a server.
    pub sandbox: Sandboxes,

    /// Places beside this machine where a server's sandboxes can be, by name. With none, everything is here. `local` is
    /// this machine; it is one of them unless it is switched off here.
    #[schemars(example = ProviderSettings::examples())]
    pub providers: BTreeMap<String, ProviderSettings>,

    /// How a place is chosen for a run or a sandbox. Counts only where `providers` are set.
    pub routing: RoutingSettings,

    /// Sandboxes that a server makes before anybody asks for them, so that a run need not wait for one.
    pub pool: Pool,

    /// Results of runs that asked for it with `cache`, for the same run again.
    pub run_cache: RunCache,

    /// Saved sandboxes: what may be kept of them. They stay until they are removed.
    pub snapshots: Snapshots,

    /// Sandboxes of a server with `space: disk`: what they may have of this machine's disk. A sandbox that would go past it
    /// is refused when it is asked for.
    pub disk_space: DiskSpace,

    /// What things cost on this machine, and what the operator adds to what others charge. Amounts are US dollars.
    pub costs: Costs,

    /// What may be spent: nothing is begun that would go past it, and what runs is stopped or paused when it is used up. A
    /// budget that cannot be read lets nothing pass.
    #[schemars(example = Budget::examples())]
    pub budgets: Vec<Budget>,

    /// How long a server keeps its records.
    pub retention: Retention,

    /// Traces and metrics of a server over OpenTelemetry's protocol. Metrics for Prometheus are at `/metrics` in any
    /// case.
    pub telemetry: Telemetry,

    /// Foreign APIs that the server offers beside its own.
    pub dialects: Dialects,
}

/// What a sandbox sees of this machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Template {
    /// Toolchains outside `/usr`, such as rustup's or `/opt`'s, each mounted read-only in every sandbox.
    #[schemars(example = Mount::examples())]
    pub mounts: Vec<Mount>,
}

/// A directory or file of this machine that every sandbox sees, read-only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// The path on this machine, absolute.
    pub source: PathBuf,
    /// The path in the sandbox, absolute.
    pub target: PathBuf,
}

impl Mount {
    fn examples() -> Vec<Self> {
        vec![Mount { source: "/opt/toolchain".into(), target: "/opt/toolchain".into() }]
    }
}

/// Settings of one language.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Language {
    /// The interpreter or compiler to use, as an absolute path in the sandbox. Not set: found by itself.
    pub program: Option<PathBuf>,
    /// Whether runs may use this language.
    pub enabled: bool,
}

impl Default for Language {
    fn default() -> Self {
        Language { program: None, enabled: true }
    }
}

impl Language {
    fn examples() -> BTreeMap<&'static str, Self> {
        BTreeMap::from([("python", Language { program: Some("/usr/bin/python3".into()), enabled: true })])
    }
}

/// Which system calls programs in sandboxes may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SystemCalls {
    /// What programs of every language need.
    #[default]
    Standard,
    /// Without those that could carry signals between sandboxes which share files.
    Strict,
}

/// Caches: dependency layers and compiled programs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cache {
    /// Most bytes that each cache (compiles, layers) may take; what was used least recently goes first.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub max_bytes: ByteSize,
}

impl Default for Cache {
    fn default() -> Self {
        Cache { max_bytes: ByteSize::gib(20) }
    }
}

/// Log output of Sandstorm itself, on standard error.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `pretty` for people, `json` for machines.
    pub format: LogFormat,
    /// The least important lines that are written.
    pub level: LogLevel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Pretty,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// How `Enforcement` stands in the schema; its own type knows no schemas.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
#[expect(dead_code, reason = "stands for another type in the schema, never made")]
enum EnforcementForm {
    Strict,
    BestEffort,
}
