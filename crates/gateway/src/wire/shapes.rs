//! Shapes that only the document needs: how values look which the types inside read by themselves.

#![expect(
    dead_code,
    reason = "these types are never made: they give schemas to values that are read elsewhere"
)]

use utoipa::ToSchema;

/// Stable names of the families of failure.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum ErrorCode {
    InvalidRequest,
    Unauthenticated,
    Forbidden,
    NotFound,
    Conflict,
    Quota,
    Billing,
    Capacity,
    Timeout,
    Isolation,
    FileSystem,
    Provider,
    Internal,
    Cancelled,
}

/// Where a sandbox is in its life; `running` is `ready` with execs in flight.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum StateName {
    Creating,
    Ready,
    Running,
    Pausing,
    Paused,
    Resuming,
    Terminating,
    Terminated,
    Failed,
}

/// How a program ended.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum StatusName {
    Ok,
    Error,
    CompileError,
    Timeout,
    Cpu,
    Memory,
    Output,
    Killed,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum LimitNameText {
    Wall,
    CpuTime,
    Cpus,
    Memory,
    Processes,
    OpenFiles,
    Disk,
    Inodes,
    Output,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum UserName {
    User,
    Root,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum SpaceName {
    /// In memory, beside what programs have.
    Memory,
    /// On the server's disk.
    Disk,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum OnEndName {
    Pause,
    /// Pause with its files only: every program in it ends.
    PauseFiles,
    Delete,
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum EnforcementName {
    /// Refuse what this host cannot enforce.
    Strict,
    /// Run anyway and say what was missing.
    BestEffort,
}

/// Seconds, or a text such as `1m30s`.
#[derive(ToSchema)]
#[serde(untagged)]
pub(crate) enum Span {
    Seconds(Seconds),
    Text(SpanText),
}

#[derive(ToSchema)]
#[schema(minimum = 0, maximum = 315360000)]
pub(crate) struct Seconds(f64);

#[derive(ToSchema)]
#[schema(pattern = "^[0-9.]+((d|h|m|s|ms)([0-9.]+(h|m|s|ms))*)?$")]
pub(crate) struct SpanText(String);

/// A language of `/v1/languages`, by name or alias.
#[derive(ToSchema)]
#[schema(pattern = "^[A-Za-z0-9+#._-]{1,32}$", example = "python")]
pub(crate) struct LanguageText(String);

/// A path in the sandbox, relative to the workspace unless absolute; it cannot go up with `..`.
#[derive(ToSchema)]
#[schema(min_length = 1, max_length = 4096, pattern = "^[^\\u0000]+$", example = "data/in.csv")]
pub(crate) struct PathText(String);

/// A number of bytes, or a text such as `256M`.
#[derive(ToSchema)]
#[serde(untagged)]
pub(crate) enum Size {
    Bytes(u64),
    Text(SizeText),
}

#[derive(ToSchema)]
#[schema(pattern = "^[0-9]{1,15}([kKmMgGtT]([iI]?[bB]?)|[bB])?$")]
pub(crate) struct SizeText(String);

/// A number of processors, or a text such as `500m`.
#[derive(ToSchema)]
#[serde(untagged)]
pub(crate) enum Processors {
    Number(ProcessorsNumber),
    Text(ProcessorsText),
}

#[derive(ToSchema)]
#[schema(minimum = 0.01, maximum = 1024, multiple_of = 0.001)]
pub(crate) struct ProcessorsNumber(f64);

#[derive(ToSchema)]
#[schema(pattern = "^([0-9]{1,4}(\\.[0-9]{1,3})?|[0-9]{1,7}m)$")]
pub(crate) struct ProcessorsText(String);

/// Limits that are asked for; what is absent is the operator's default, and more than the operator's ceiling is
/// refused or lowered.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitsRequest {
    /// Time by the clock, 10 ms to a day.
    wall: Option<Span>,
    /// Processor time of all processes together.
    cpu_time: Option<Span>,
    cpus: Option<Processors>,
    memory: Option<Size>,
    #[schema(minimum = 1, maximum = 65536)]
    processes: Option<u32>,
    #[schema(minimum = 16, maximum = 1048576)]
    open_files: Option<u32>,
    disk: Option<Size>,
    #[schema(minimum = 64, maximum = 100000000)]
    inodes: Option<u64>,
    /// Bytes kept of standard output and standard error together.
    output: Option<Size>,
}

/// Limits that hold. Times are seconds, sizes bytes.
#[derive(ToSchema)]
pub(crate) struct LimitsValues {
    wall: f64,
    cpu_time: Option<f64>,
    cpus: f64,
    memory: u64,
    processes: u32,
    open_files: u32,
    disk: u64,
    inodes: u64,
    output: u64,
}

/// `"none"` (only its own loopback), `"open"` (any public address), or a list of what may be reached.
#[derive(ToSchema)]
#[serde(untagged)]
pub(crate) enum NetworkShape {
    Word(NetworkWord),
    List(NetworkList),
    Filtered(NetworkFiltered),
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum NetworkWord {
    None,
    Open,
}

#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NetworkList {
    /// `example.com`, `*.example.com:443`, `ip:192.0.2.1:22,80`; without ports 80 and 443.
    #[schema(max_items = 1024)]
    allow: Vec<String>,
}

#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NetworkFiltered {
    filter: NetworkFilterShape,
}

/// Any public address less what is denied. What is allowed goes before what is denied.
#[derive(ToSchema)]
#[schema(as = NetworkFilter)]
#[serde(deny_unknown_fields)]
pub(crate) struct NetworkFilterShape {
    /// Networks such as `192.0.2.0/24`; `192.0.2.1/32` is one address.
    #[schema(max_items = 1024)]
    deny: Option<Vec<String>>,
    /// `ip:192.0.2.1` and `ip:192.0.2.0/24` on every port, `example.com` and `*.example.com` on ports 80 and 443.
    #[schema(max_items = 1024)]
    allow: Option<Vec<String>>,
    /// Headers that plain HTTP requests get on their way. TLS to such a host is refused.
    #[schema(max_items = 64)]
    headers: Option<Vec<HeaderRuleShape>>,
}

#[derive(ToSchema)]
#[schema(as = HeaderRule)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeaderRuleShape {
    /// `example.com`, `*.example.com`.
    host: String,
    headers: std::collections::BTreeMap<String, String>,
}

/// What a caller says about where a run or a sandbox should go. What is absent is the operator's default.
#[derive(ToSchema)]
#[schema(as = Routing)]
#[serde(deny_unknown_fields)]
pub(crate) struct RoutingShape {
    objective: Option<ObjectiveShape>,
    /// Nothing whose expected cost is more, in US dollars.
    max_cost: Option<Dollars>,
    /// Nothing of which one in twenty is known to take longer until it is ready.
    max_latency: Option<Span>,
    /// Goes there unless another place is a quarter better.
    #[schema(min_length = 1, max_length = 64)]
    preferred_region: Option<String>,
    /// The same for providers.
    #[schema(max_items = 64)]
    preferred_providers: Option<Vec<String>>,
    /// Never these.
    #[schema(max_items = 64)]
    exclude_providers: Option<Vec<String>>,
    /// These first, in this order; the others by their score after them.
    #[schema(max_items = 64)]
    order: Option<Vec<String>>,
    require: Option<RequireShape>,
}

/// What is better: a name, or weights of your own.
#[derive(ToSchema)]
#[serde(untagged)]
pub(crate) enum ObjectiveShape {
    Name(ObjectiveName),
    Weights(Weighted),
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum ObjectiveName {
    /// What costs least.
    Cheapest,
    /// What is ready first.
    Fastest,
    /// Twice as fast is worth twice the price.
    Balanced,
}

#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Weighted {
    weighted: WeightsShape,
}

/// How much each thing counts: what a doubling is worth. One is more than 0.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WeightsShape {
    #[schema(minimum = 0)]
    latency: Option<f64>,
    #[schema(minimum = 0)]
    cost: Option<f64>,
    #[schema(minimum = 0)]
    reliability: Option<f64>,
}

/// What a place must have.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequireShape {
    /// Capabilities by name, such as `exec_tty`.
    #[schema(max_items = 64)]
    capabilities: Option<Vec<String>>,
    /// The weakest boundary that is acceptable.
    isolation: Option<super::walls::Tier>,
    /// A kind of accelerator, or `any`.
    #[schema(min_length = 1, max_length = 64)]
    gpu: Option<String>,
    /// Regions, or areas that they lie in, that data may go to.
    #[schema(max_items = 64)]
    regions: Option<Vec<String>>,
}

/// An amount of US dollars: a number, or a decimal text with up to 12 places.
#[derive(ToSchema)]
#[serde(untagged)]
pub(crate) enum Dollars {
    Number(DollarsNumber),
    Text(DollarsText),
}

#[derive(ToSchema)]
#[schema(minimum = 0, maximum = 1000000)]
pub(crate) struct DollarsNumber(f64);

#[derive(ToSchema)]
#[schema(pattern = "^[0-9]{1,7}(\\.[0-9]{1,12})?$")]
pub(crate) struct DollarsText(String);

/// `"host"` (the host's own toolchains), an OCI image, or a snapshot.
#[derive(ToSchema)]
#[serde(untagged)]
pub(crate) enum TemplateShape {
    Word(TemplateWord),
    Image(TemplateImage),
    Snapshot(TemplateSnapshot),
}

#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
pub(crate) enum TemplateWord {
    Host,
}

#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplateImage {
    image: String,
}

#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TemplateSnapshot {
    #[schema(pattern = "^snap_[a-z2-7]{26}$")]
    snapshot: String,
}

/// Content: a text, or bytes in base64.
#[derive(ToSchema)]
#[serde(untagged)]
pub(crate) enum Content {
    Text(String),
    Bytes(Base64),
}

#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Base64 {
    #[schema(content_encoding = "base64")]
    base64: String,
}

/// A line for the sandbox's shell, or a program with its arguments.
#[derive(ToSchema)]
#[serde(untagged)]
pub(crate) enum CommandShape {
    Line(String),
    Program(Vec<String>),
}
