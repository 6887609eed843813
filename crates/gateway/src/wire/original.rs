//! A run as clients of the first Sandstorm ask for it, and its answer.
//!
//! Its SDK sends `{spec, constraints}` in camelCase, its gateway took the fields of `spec` without it in snake_case. Either form
//! comes in either spelling here.
//!
//! What this server cannot give is refused by name, never left out in silence.

mod kept;

use std::collections::BTreeMap;
use std::time::Duration;

use sandstorm_types::{
    Blob, ByteSize, EnvMap, GuestPath, Isolation, LanguageName, LimitsPatch, MilliCpus, NetworkPolicy,
    Require, Requirement, Routing, RunResult, RunSpec, Status, Timestamp, cli_exit_code,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::cost::MaxCost;
use super::shapes::{DollarsNumber, LanguageText};
use crate::json::{self, Wire};
use crate::problem::{ApiError, ApiResult};

pub(crate) use kept::{OriginalSnapshot, OriginalUsage, RestoredBody};

/// A run, in the words of the first Sandstorm. What is in `spec` may be sent without it, too.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunInSandbox {
    spec: OriginalSpec,
    #[serde(default)]
    #[schema(nullable)]
    #[serde(deserialize_with = "super::object::optional")]
    #[schema(value_type = Option<OriginalConstraints>)]
    constraints: Option<Box<OriginalConstraints>>,
}

impl Wire for RunInSandbox {
    const LARGE: bool = true;

    fn read(bytes: &[u8]) -> ApiResult<Self> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Form {
            spec: Option<IgnoredAny>,
            code: Option<IgnoredAny>,
        }
        // What this cannot read is refused below, with the reason.
        let form: Form = serde_json::from_slice(bytes).unwrap_or_default();
        if form.spec.is_some() {
            return json::read(bytes);
        }
        let spec: OriginalSpec = json::read(bytes)?;
        match form.code {
            Some(_) => Ok(Self { spec, constraints: None }),
            None => Err(ApiError::field("code", "is missing, and so is `spec`, which may hold it")),
        }
    }
}

/// What is to run. Every field of more than one word may be written in snake_case, too.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct OriginalSpec {
    code: String,
    #[schema(value_type = Option<LanguageText>)]
    language: Option<LanguageName>,
    /// Cores.
    #[serde(alias = "cpu_limit", alias = "cpuLimit")]
    #[schema(minimum = 0.1, maximum = 64)]
    cpu: Option<f64>,
    /// MB.
    #[schema(minimum = 128, maximum = 65536)]
    memory: Option<f64>,
    /// Bytes, as the first gateway counted.
    #[serde(alias = "memory_limit")]
    #[schema(ignore)]
    memory_limit: Option<f64>,
    /// Milliseconds.
    #[schema(minimum = 1000, maximum = 3600000)]
    timeout: Option<f64>,
    #[serde(deserialize_with = "or_default")]
    #[schema(value_type = Option<Vec<String>>)]
    requirements: Vec<Requirement>,
    #[serde(deserialize_with = "or_default")]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    environment: EnvMap,
    #[serde(deserialize_with = "or_default")]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    files: BTreeMap<GuestPath, String>,
    /// Results come at once in any case.
    #[serde(deserialize_with = "or_default")]
    #[schema(ignore)]
    streaming: bool,
    /// `standard`, `strong` or `maximum`.
    #[serde(alias = "isolation_level")]
    #[schema(value_type = Option<IsolationLevel>)]
    isolation_level: Option<IsolationLevel>,
    #[serde(alias = "network_access", deserialize_with = "or_default")]
    #[schema(value_type = Option<bool>)]
    network_access: bool,
    #[schema(ignore)]
    gpu: Option<Value>,
    #[serde(alias = "gpu_type")]
    #[schema(ignore)]
    gpu_type: Option<Value>,
    #[schema(ignore)]
    stateful: Option<Value>,
    region: Option<String>,
    #[serde(alias = "runtime_preference")]
    #[schema(ignore)]
    runtime_preference: Option<Value>,
    #[serde(alias = "bootc_hash")]
    #[schema(ignore)]
    bootc_hash: Option<Value>,
    #[schema(ignore)]
    dockerfile: Option<Value>,
    #[serde(alias = "persist_session")]
    #[schema(ignore)]
    persist_session: Option<Value>,
    #[serde(alias = "session_id")]
    #[schema(ignore)]
    session_id: Option<Value>,
    #[serde(alias = "custom_template")]
    #[schema(ignore)]
    custom_template: Option<Value>,
    #[serde(alias = "container_image")]
    #[schema(ignore)]
    container_image: Option<Value>,
    #[schema(ignore)]
    volumes: Option<Value>,
    #[schema(ignore)]
    secrets: Option<Value>,
    #[serde(alias = "workspace_template")]
    #[schema(ignore)]
    workspace_template: Option<Value>,
    #[serde(alias = "git_repo")]
    #[schema(ignore)]
    git_repo: Option<Value>,
    #[serde(alias = "git_branch")]
    #[schema(ignore)]
    git_branch: Option<Value>,
    #[serde(alias = "custom_kernel")]
    #[schema(ignore)]
    custom_kernel: Option<Value>,
    #[serde(alias = "enable_rosetta")]
    #[schema(ignore)]
    enable_rosetta: Option<Value>,
    #[schema(ignore)]
    architecture: Option<Value>,
    #[schema(ignore)]
    mounts: Option<Value>,
    /// Where there is no `spec` around it.
    #[serde(deserialize_with = "super::object::optional")]
    #[schema(ignore)]
    constraints: Option<Box<OriginalConstraints>>,
}

/// What is absent may be `null`.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum IsolationLevel {
    Standard,
    Strong,
    Maximum,
}

/// What the run has to keep to. Wishes about places and times are for servers that have a choice.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct OriginalConstraints {
    /// USD.
    #[serde(alias = "max_cost")]
    #[schema(value_type = Option<DollarsNumber>)]
    max_cost: Option<MaxCost>,
    /// Milliseconds; a wish.
    #[serde(alias = "max_latency")]
    #[schema(minimum = 1)]
    max_latency: Option<f64>,
    /// A wish.
    #[serde(alias = "preferred_providers", deserialize_with = "or_default")]
    #[schema(value_type = Option<Vec<String>>)]
    preferred_providers: Vec<String>,
    #[serde(alias = "exclude_providers", deserialize_with = "or_default")]
    #[schema(value_type = Option<Vec<String>>)]
    exclude_providers: Vec<String>,
    /// A wish.
    #[serde(alias = "preferred_region")]
    preferred_region: Option<String>,
    #[serde(alias = "require_gpu")]
    #[schema(ignore)]
    require_gpu: Option<Value>,
    #[schema(minimum = 0.1, maximum = 64)]
    cpu: Option<f64>,
    #[schema(minimum = 128, maximum = 65536)]
    memory: Option<f64>,
    #[schema(minimum = 1000, maximum = 3600000)]
    timeout: Option<f64>,
    #[schema(ignore)]
    gpu: Option<Value>,
}

impl RunInSandbox {
    /// The same in our words. `places` are those that this server has: wishes about others mean nothing here.
    pub(crate) fn into_spec(self, places: &[String]) -> ApiResult<RunSpec> {
        let Self { mut spec, constraints } = self;
        let constraints = match (constraints, spec.constraints.take()) {
            (Some(_), Some(_)) => {
                return Err(ApiError::field("constraints", "are given twice: beside `spec` and in it"));
            }
            (given, also) => given.or(also).unwrap_or_default(),
        };
        spec.refuse_what_is_not_there()?;
        let Constrained { max_cost, limits: usual, mut routing } = constraints.in_our_words(places)?;
        routing.require = Require {
            isolation: match spec.isolation_level.unwrap_or(IsolationLevel::Standard) {
                IsolationLevel::Standard => None,
                IsolationLevel::Strong => Some(Isolation::UserKernel),
                IsolationLevel::Maximum => Some(Isolation::MicroVm),
            },
            regions: spec.region.into_iter().filter(|region| !region.is_empty()).collect(),
            ..Require::default()
        };
        let mut limits = limits(spec.timeout, spec.cpu, spec.memory)?;
        if spec.memory_limit.is_some() && limits.memory.is_some() {
            return Err(ApiError::field("memory_limit", "says again what `memory` says"));
        }
        let bytes = scaled("memory_limit", spec.memory_limit, 1_048_576.0, 68_719_476_736.0, 1.0)?;
        limits.memory = limits.memory.or(bytes.map(|bytes| ByteSize::bytes(bytes.round() as u64)));
        fill(&mut limits, usual);
        let python = || "python".parse().expect("it is a good name");
        let run = RunSpec {
            files: spec.files.into_iter().map(|(path, text)| (path, Blob::from(text.into_bytes()))).collect(),
            env: spec.environment,
            requirements: spec.requirements,
            limits,
            network: if spec.network_access { NetworkPolicy::Open } else { NetworkPolicy::None },
            max_cost: max_cost.map(Into::into),
            routing: (routing != Routing::default()).then(|| Box::new(routing)),
            ..RunSpec::new(spec.language.unwrap_or_else(python), spec.code)
        };
        run.validate().map_err(|error| ApiError::invalid(error.to_string()))?;
        Ok(run)
    }
}

impl OriginalSpec {
    /// Other places had these. `false`, nothing and empty ask for nothing.
    fn refuse_what_is_not_there(&self) -> ApiResult<()> {
        refuse(&[
            ("spec.gpu", &self.gpu),
            ("spec.gpuType", &self.gpu_type),
            ("spec.stateful", &self.stateful),
            ("spec.runtimePreference", &self.runtime_preference),
            ("spec.bootcHash", &self.bootc_hash),
            ("spec.dockerfile", &self.dockerfile),
            ("spec.persistSession", &self.persist_session),
            ("spec.sessionId", &self.session_id),
            ("spec.customTemplate", &self.custom_template),
            ("spec.containerImage", &self.container_image),
            ("spec.volumes", &self.volumes),
            ("spec.secrets", &self.secrets),
            ("spec.workspaceTemplate", &self.workspace_template),
            ("spec.gitRepo", &self.git_repo),
            ("spec.gitBranch", &self.git_branch),
            ("spec.customKernel", &self.custom_kernel),
            ("spec.enableRosetta", &self.enable_rosetta),
            ("spec.architecture", &self.architecture),
            ("spec.mounts", &self.mounts),
        ])
    }
}

fn refuse(asked: &[(&str, &Option<Value>)]) -> ApiResult<()> {
    for (name, value) in asked {
        if let Some(value) = value
            && asks_for_something(value)
        {
            return Err(ApiError::field(*name, "is not offered by this server"));
        }
    }
    Ok(())
}

/// What constraints come to.
#[derive(Debug)]
pub(super) struct Constrained {
    pub(super) max_cost: Option<MaxCost>,
    pub(super) limits: LimitsPatch,
    pub(super) routing: Routing,
}

impl OriginalConstraints {
    /// The same in our words. Wishes about places that this server does not have mean nothing here.
    pub(super) fn in_our_words(self, places: &[String]) -> ApiResult<Constrained> {
        refuse(&[("constraints.requireGpu", &self.require_gpu), ("constraints.gpu", &self.gpu)])?;
        let known = |names: Vec<String>| names.into_iter().filter(|name| places.contains(name)).collect();
        let exclude_providers: Vec<String> = known(self.exclude_providers);
        if places.iter().all(|place| exclude_providers.contains(place)) {
            return Err(ApiError::field("constraints.excludeProviders", "leaves no place to run at"));
        }
        let latency = scaled("constraints.maxLatency", self.max_latency, 1.0, 3_600_000.0, 1e-3)?;
        Ok(Constrained {
            max_cost: self.max_cost,
            limits: limits(self.timeout, self.cpu, self.memory)?,
            routing: Routing {
                max_latency: latency.map(Duration::from_secs_f64),
                preferred_region: self.preferred_region.filter(|region| !region.is_empty()),
                preferred_providers: known(self.preferred_providers),
                exclude_providers,
                ..Routing::default()
            },
        })
    }
}

/// Limits in milliseconds, cores and MB.
fn limits(timeout: Option<f64>, cpu: Option<f64>, memory: Option<f64>) -> ApiResult<LimitsPatch> {
    Ok(LimitsPatch {
        wall: scaled("timeout", timeout, 1000.0, 3_600_000.0, 1e-3)?.map(Duration::from_secs_f64),
        cpus: scaled("cpu", cpu, 0.1, 64.0, 1000.0)?.map(|milli| MilliCpus::new(milli.round() as u32)),
        memory: scaled("memory", memory, 128.0, 65_536.0, 1_048_576.0)?
            .map(|bytes| ByteSize::bytes(bytes.round() as u64)),
        ..LimitsPatch::default()
    })
}

/// Takes from constraints what the request itself does not say.
pub(super) fn fill(limits: &mut LimitsPatch, usual: LimitsPatch) {
    limits.wall = limits.wall.or(usual.wall);
    limits.cpus = limits.cpus.or(usual.cpus);
    limits.memory = limits.memory.or(usual.memory);
}

fn asks_for_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

/// A number within its range, in another unit.
fn scaled(name: &str, value: Option<f64>, from: f64, to: f64, factor: f64) -> ApiResult<Option<f64>> {
    match value {
        Some(value) if !(from..=to).contains(&value) => {
            Err(ApiError::field(name, format!("must be from {from} to {to}")))
        }
        value => Ok(value.map(|value| value * factor)),
    }
}

/// What came of it, in the words of the first Sandstorm.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = OriginalResult)]
pub(crate) struct OriginalResultBody {
    #[schema(pattern = "^run_[a-z2-7]{26}$")]
    id: String,
    provider: String,
    stdout: String,
    stderr: String,
    /// The program's own; 124 after a limit of time, 137 after one of memory or money.
    exit_code: i32,
    /// Milliseconds.
    duration: f64,
    /// USD.
    cost: f64,
    logs: Vec<LogLine>,
    metrics: OriginalMetrics,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OriginalLog)]
struct LogLine {
    #[schema(value_type = String, format = DateTime)]
    timestamp: Timestamp,
    level: &'static str,
    message: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = OriginalMetrics)]
struct OriginalMetrics {
    /// Seconds of processor time.
    cpu_usage: f64,
    /// Most bytes at once.
    memory_usage: u64,
}

impl From<RunResult> for OriginalResultBody {
    fn from(result: RunResult) -> Self {
        let exit_code = cli_exit_code(&result).into();
        let mut messages = Vec::new();
        if let Some(budget) = &result.stopped_by {
            messages.push(format!("stopped: {budget} is used up"));
        } else if !matches!(result.status, Status::Ok | Status::Error) {
            messages.push(format!("ended: {}", result.status.name()));
        }
        let now = Timestamp::now();
        let line = |message| LogLine { timestamp: now, level: "warn", message };
        Self {
            exit_code,
            logs: messages.into_iter().map(line).collect(),
            duration: result.metrics.total_ms,
            cost: result.route.cost_usd,
            metrics: OriginalMetrics {
                cpu_usage: result.metrics.cpu_ms / 1000.0,
                memory_usage: result.metrics.peak_memory_bytes,
            },
            id: result.id,
            provider: result.route.provider,
            stdout: result.stdout,
            stderr: result.stderr,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> ApiResult<RunSpec> {
        RunInSandbox::read(json.as_bytes()).unwrap().into_spec(&["local".to_owned()])
    }

    #[test]
    fn the_quick_start_is_read_in_every_form() {
        let code = "\n    import numpy as np\n    print(np.random.rand(5))\n  ";
        let wishes = serde_json::json!({ "maxCost": 0.10, "maxLatency": 5000, "preferredRegion": "us-west" });
        let what = serde_json::json!({ "code": code, "language": "python", "requirements": ["numpy"] });
        let mut flat = what.clone();
        flat["constraints"] = wishes.clone();
        let nested = serde_json::json!({ "spec": what, "constraints": wishes });
        let within = serde_json::json!({ "spec": flat });
        let run = spec(&nested.to_string()).unwrap();
        assert_eq!((run.code.as_str(), run.requirements.len()), (code, 1));
        assert_eq!(run.max_cost.unwrap().to_string(), "0.1");
        let routing = run.routing.as_deref().unwrap();
        assert_eq!(routing.max_latency, Some(Duration::from_secs(5)));
        assert_eq!(routing.preferred_region.as_deref(), Some("us-west"));
        assert_eq!(
            (spec(&flat.to_string()).unwrap(), spec(&within.to_string()).unwrap()),
            (run.clone(), run)
        );
        let twice = serde_json::json!({ "spec": flat, "constraints": wishes });
        assert!(spec(&twice.to_string()).is_err());
    }

    #[test]
    fn the_first_gateways_fields_are_read() {
        let flat = r#"{"code": "x", "language": "shell", "isolation_level": "standard", "runtime_preference": null,
            "cpu_limit": 0.5, "memory_limit": 268435456, "timeout": 1500, "environment": {"A": "1"}, "mounts": []}"#;
        let run = spec(flat).unwrap();
        assert_eq!((run.language.as_str(), run.env.get("A")), ("shell", Some("1")));
        assert_eq!(run.limits.wall, Some(Duration::from_millis(1500)));
        assert_eq!(
            (run.limits.memory, run.limits.cpus),
            (Some(ByteSize::mib(256)), Some(MilliCpus::new(500)))
        );
        let nothing = r#"{"code": "x", "environment": null, "requirements": null, "files": null, "streaming": null,
            "network_access": null, "constraints": {"preferred_region": "", "exclude_providers": null}}"#;
        assert_eq!(spec(nothing).unwrap(), RunSpec::new("python".parse().unwrap(), "x"));
        assert!(spec(r#"{"code": "x", "memory": 256, "memory_limit": 268435456}"#).is_err());
        assert!(spec(r#"{"code": "x", "mounts": [{"source": "/", "destination": "/h"}]}"#).is_err());
    }

    #[test]
    fn both_spellings_and_other_units() {
        let camel = r#"{"spec": {"code": "x", "cpu": 0.5, "memory": 256, "timeout": 1500, "networkAccess": true,
            "isolationLevel": "standard", "gpu": false, "environment": {"A": "1"}, "files": {"a.txt": "b"}},
            "constraints": {"maxCost": 0.5, "maxLatency": 100, "preferredProviders": ["e2b"], "excludeProviders": ["modal"]}}"#;
        let run = spec(camel).unwrap();
        assert_eq!((run.language.as_str(), run.limits.wall), ("python", Some(Duration::from_millis(1500))));
        assert_eq!(
            (run.limits.memory, run.limits.cpus),
            (Some(ByteSize::mib(256)), Some(MilliCpus::new(500)))
        );
        assert_eq!(
            (run.network.clone(), run.max_cost.unwrap().to_string()),
            (NetworkPolicy::Open, "0.5".to_owned())
        );
        let routing = run.routing.as_deref().unwrap();
        assert_eq!(routing.max_latency, Some(Duration::from_millis(100)));
        assert!(
            routing.preferred_providers.is_empty() && routing.exclude_providers.is_empty(),
            "unknown here"
        );
        let strong = spec(r#"{"spec": {"code": "x", "isolationLevel": "strong", "region": "eu"}}"#).unwrap();
        let require = strong.routing.unwrap().require;
        assert_eq!(
            (require.isolation, require.regions.join("")),
            (Some(Isolation::UserKernel), "eu".to_owned())
        );
        assert_eq!(spec(r#"{"spec": {"code": "x"}}"#).unwrap().routing, None);
        let snake = camel
            .replace("networkAccess", "network_access")
            .replace("isolationLevel", "isolation_level")
            .replace("maxCost", "max_cost")
            .replace("maxLatency", "max_latency")
            .replace("preferredProviders", "preferred_providers")
            .replace("excludeProviders", "exclude_providers");
        assert_eq!(spec(&snake).unwrap(), run);
        let by_constraints =
            r#"{"spec": {"code": "x"}, "constraints": {"memory": 256, "timeout": 1500, "cpu": 0.5}}"#;
        assert_eq!(spec(by_constraints).unwrap().limits, run.limits);
    }

    #[test]
    fn what_is_not_there_is_refused_by_name() {
        for (bad, name) in [
            (r#"{"spec": {"code": "x", "gpu": true}}"#, "spec.gpu"),
            (r#"{"spec": {"code": "x", "containerImage": "y"}}"#, "spec.containerImage"),
            (r#"{"spec": {"code": "x", "volumes": {"/a": "b"}}}"#, "spec.volumes"),
            (r#"{"spec": {"code": "x", "memory": 1}}"#, "memory"),
            (r#"{"spec": {"code": "x", "timeout": 3600001}}"#, "timeout"),
            (r#"{"spec": {"code": "x"}, "constraints": {"requireGpu": true}}"#, "constraints.requireGpu"),
            (
                r#"{"spec": {"code": "x"}, "constraints": {"excludeProviders": ["local"]}}"#,
                "constraints.excludeProviders",
            ),
            (r#"{"spec": {"code": "x"}, "constraints": {"maxLatency": 0}}"#, "constraints.maxLatency"),
        ] {
            let body = String::from_utf8(spec(bad).unwrap_err().body("r")).unwrap();
            assert!(body.contains(name), "{bad}: {body}");
        }
        for bad in [
            "{}",
            r#"{"code": "x", "colour": 1}"#,
            r#"{"spec": {"code": "x", "colour": 1}}"#,
            r#"{"spec": {}, "limits": {}}"#,
            r#"{"spec": {"code": "x"}, "code": "y"}"#,
            r#"{"spec": null, "code": "x"}"#,
            r#"["x"]"#,
        ] {
            assert!(RunInSandbox::read(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
