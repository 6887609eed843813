//! What the server tells about itself and its caller.

use std::time::Duration;

use sandstorm_control::server::{Sample, UsageView};
use sandstorm_types::{Isolation, LimitSet, Limits, TenantId, Timestamp, duration};
use serde::Serialize;
use utoipa::ToSchema;

use super::cost::CostsBody;
use super::key::{QuotaBody, ScopeName};
use super::shapes::{LimitNameText, LimitsValues};
use super::walls::Tier;

/// Whether the server is alive or ready, and if not, why.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Health)]
pub(crate) struct HealthBody {
    /// `ok`, or why not: `draining`, `disk`, `lease`, `store`, `provider`.
    pub(crate) status: &'static str,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Version)]
pub(crate) struct VersionBody {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Version of this API.
    pub(crate) api: &'static str,
    pub(crate) capabilities: CapabilitiesBody,
}

/// What not every server can do, as far as it can be had through this API.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Capabilities)]
pub(crate) struct CapabilitiesBody {
    /// The least that stands between a sandbox and its host.
    #[schema(value_type = Tier)]
    isolation: Isolation,
    /// Starts from the host's own toolchains.
    template_host: bool,
    /// Starts from an OCI image.
    template_image: bool,
    /// Runs programs.
    exec: bool,
    /// Feeds a program's standard input after it has started.
    exec_stdin: bool,
    /// Runs programs on a terminal.
    exec_tty: bool,
    /// Runs programs on when nobody listens.
    exec_background: bool,
    /// Tells the events of a program again.
    exec_attach: bool,
    /// Sends signals other than kill.
    exec_signals: bool,
    /// Runs programs as root of the sandbox.
    exec_root: bool,
    /// Reads, writes, lists, moves and removes files.
    files: bool,
    /// Packs and unpacks folders.
    files_archive: bool,
    /// Finds files by name.
    files_search: bool,
    /// Reports changes of files.
    files_watch: bool,
    /// Connects to ports inside a sandbox.
    connect: bool,
    /// Reports what a sandbox uses.
    usage: bool,
    /// Pauses and resumes sandboxes.
    pause: bool,
    /// Pauses sandboxes with their files only.
    pause_files: bool,
    /// Makes sandboxes that go on from where a living one is.
    live_fork: bool,
    /// Programs of some interpreters begin in one that is warm already.
    warm_start: bool,
    /// Keeps sandboxes off the network.
    network_none: bool,
    /// Lets sandboxes reach only listed hosts.
    network_allow: bool,
    /// Lets sandboxes reach the public network.
    network_open: bool,
    /// Changes what a living sandbox may reach.
    network_change: bool,
    /// Puts the writable space of a sandbox on a disk.
    disk_space: bool,
    /// Installs packages of a language before a sandbox starts.
    requirements: bool,
    /// Limits that are enforced.
    #[schema(value_type = Vec<LimitNameText>)]
    limits: LimitSet,
}

impl From<sandstorm_types::Capabilities> for CapabilitiesBody {
    fn from(can: sandstorm_types::Capabilities) -> Self {
        Self {
            isolation: can.isolation,
            template_host: can.template_host,
            template_image: can.template_image,
            exec: can.exec,
            exec_stdin: can.exec_stdin,
            exec_tty: can.exec_tty,
            exec_background: can.exec_background,
            exec_attach: can.exec_attach,
            exec_signals: can.exec_signals,
            exec_root: can.exec_root,
            files: can.files,
            files_archive: can.files_archive,
            files_search: can.files_search,
            files_watch: can.files_watch,
            connect: can.connect,
            usage: can.usage,
            pause: can.pause,
            pause_files: can.pause_files,
            live_fork: can.live_fork,
            warm_start: can.warm_start,
            network_none: can.network_none,
            network_allow: can.network_allow,
            network_open: can.network_open,
            network_change: can.network_change,
            disk_space: can.disk_space,
            requirements: can.requirements,
            limits: can.limits,
        }
    }
}

/// One language.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Language)]
pub struct LanguageView {
    pub name: String,
    pub version: Option<String>,
    pub available: bool,
    /// How to get it.
    pub install: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LanguageList {
    pub(crate) languages: Vec<LanguageView>,
}

/// Limits of this server.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ServerLimits)]
pub(crate) struct LimitsBody {
    /// What a request gets that asks for nothing.
    #[schema(value_type = LimitsValues)]
    pub(crate) default: Limits,
    /// The most that may be asked for.
    #[schema(value_type = LimitsValues)]
    pub(crate) ceiling: Limits,
    /// Longest lifetime of a sandbox in seconds.
    #[serde(with = "duration::seconds")]
    #[schema(value_type = f64)]
    pub(crate) lifetime_max: Duration,
    /// Largest JSON body in bytes.
    pub(crate) json_bytes: usize,
}

/// Who calls.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Me)]
pub(crate) struct MeBody {
    #[schema(value_type = String)]
    pub(crate) tenant: TenantId,
    /// The public id of the key.
    pub(crate) key: String,
    pub(crate) scopes: Vec<ScopeName>,
}

/// What the tenant uses and may use.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Usage)]
pub(crate) struct UsageBody {
    quota: QuotaBody,
    /// Alive now.
    sandboxes: u32,
    cpu_milli: u64,
    memory_bytes: u64,
    /// The first of the month, from which the following are counted.
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
    /// Carried out.
    runs: u64,
    /// Answered with an earlier result.
    cached_runs: u64,
    execs: u64,
    sandboxes_created: u64,
    cpu_ms: u64,
    memory_mib_seconds: u64,
    /// What it cost.
    costs: CostsBody,
}

impl UsageBody {
    pub(crate) fn new(view: UsageView, costs: CostsBody) -> Self {
        Self {
            costs,
            quota: view.quota.into(),
            sandboxes: view.sandboxes,
            cpu_milli: view.cpu_milli,
            memory_bytes: view.memory_bytes,
            since: view.since,
            runs: view.runs,
            cached_runs: view.cached_runs,
            execs: view.execs,
            sandboxes_created: view.sandboxes_created,
            cpu_ms: view.cpu_ms,
            memory_mib_seconds: view.memory_mib_seconds,
        }
    }
}

/// One reading of a sandbox's counters.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Sample)]
pub(crate) struct SampleBody {
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    cpu_ms: u64,
    memory_bytes: u64,
    peak_memory_bytes: u64,
    processes: u32,
    disk_bytes: u64,
    inodes: u64,
}

/// Readings, oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SampleList {
    pub(crate) samples: Vec<SampleBody>,
}

impl From<Vec<Sample>> for SampleList {
    fn from(samples: Vec<Sample>) -> Self {
        Self { samples: samples.into_iter().map(SampleBody::from).collect() }
    }
}

impl From<Sample> for SampleBody {
    fn from(sample: Sample) -> Self {
        Self {
            at: sample.at,
            cpu_ms: sample.cpu_ms,
            memory_bytes: sample.memory_bytes,
            peak_memory_bytes: sample.peak_memory_bytes,
            processes: sample.processes,
            disk_bytes: sample.disk_bytes,
            inodes: sample.inodes,
        }
    }
}
