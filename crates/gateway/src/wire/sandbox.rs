//! Sandboxes.

use std::collections::BTreeMap;
use std::time::Duration;

use sandstorm_control::server::{NewSandbox, SandboxView};
use sandstorm_types::{
    Enforcement, EnvMap, Labels, LanguageName, Limits, LimitsPatch, NetworkPolicy, OnEnd, Phase, Requirement,
    Routing, SandboxId, Space, Template, Timestamp, User, duration,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::cost::MaxCost;
use super::shapes::{
    Dollars, EnforcementName, LimitsRequest, LimitsValues, NetworkShape, OnEndName, RoutingShape, SpaceName,
    Span, StateName, TemplateShape, UserName,
};
use super::walls::WallsBody;
use crate::json::Wire;
use crate::problem::{ApiError, ApiResult};

/// A sandbox to make. What is absent is the operator's default.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CreateSandbox {
    #[schema(value_type = TemplateShape)]
    template: Template,
    #[schema(value_type = LimitsRequest)]
    limits: LimitsPatch,
    /// Variables of every exec.
    #[schema(value_type = BTreeMap<String, String>)]
    env: EnvMap,
    #[schema(value_type = NetworkShape)]
    network: NetworkPolicy,
    #[schema(value_type = BTreeMap<String, String>)]
    labels: Labels,
    /// How long it lives without being extended.
    #[serde(with = "duration::optional_seconds")]
    #[schema(value_type = Option<Span>)]
    lifetime: Option<Duration>,
    /// What becomes of it then.
    #[schema(value_type = Option<OnEndName>)]
    on_end: Option<OnEnd>,
    /// Ends it like its lifetime when nothing was asked of it for so long.
    #[serde(with = "duration::optional_seconds")]
    #[schema(value_type = Option<Span>)]
    idle_timeout: Option<Duration>,
    #[schema(value_type = UserName)]
    user: User,
    /// Where what it writes lies.
    #[schema(value_type = SpaceName)]
    space: Space,
    #[schema(value_type = Option<EnforcementName>)]
    enforcement: Option<Enforcement>,
    /// Packages by language.
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    requirements: BTreeMap<LanguageName, Vec<Requirement>>,
    /// The most that it may cost, in US dollars: it is not made if more is expected, and ended before it costs more.
    #[schema(value_type = Option<Dollars>)]
    max_cost: Option<MaxCost>,
    /// Where it should go, where the server has a choice.
    #[schema(value_type = Option<RoutingShape>)]
    #[serde(default, deserialize_with = "super::object::optional")]
    routing: Option<Box<Routing>>,
}

impl Wire for CreateSandbox {
    const LARGE: bool = true;
}

impl From<CreateSandbox> for NewSandbox {
    fn from(wanted: CreateSandbox) -> Self {
        Self {
            template: wanted.template,
            limits: wanted.limits,
            env: wanted.env,
            network: wanted.network,
            labels: wanted.labels,
            lifetime: wanted.lifetime,
            on_end: wanted.on_end,
            idle_timeout: wanted.idle_timeout,
            user: wanted.user,
            space: wanted.space,
            enforcement: wanted.enforcement,
            requirements: wanted.requirements,
            max_cost: wanted.max_cost.map(Into::into),
            routing: wanted.routing,
            contexts: false,
        }
    }
}

/// A new end of the lifetime, counted from now: exactly one of the two.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extend {
    #[serde(default, with = "duration::optional_seconds")]
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 315360000)]
    seconds: Option<Duration>,
    #[serde(default, with = "duration::optional_seconds")]
    #[schema(value_type = Option<Span>)]
    lifetime: Option<Duration>,
}

impl Wire for Extend {}

impl Extend {
    pub(crate) fn by(self) -> ApiResult<Duration> {
        match (self.seconds, self.lifetime) {
            (Some(by), None) | (None, Some(by)) => Ok(by),
            _ => Err(ApiError::field("lifetime", "give either `lifetime` or `seconds`")),
        }
    }
}

/// A network policy: the policy itself, or an object with `network`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetNetwork {
    #[schema(value_type = NetworkShape)]
    pub(crate) network: NetworkPolicy,
}

impl Wire for SetNetwork {}

/// A sandbox. Its variables are not shown: they may be secrets.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Sandbox)]
pub(crate) struct SandboxBody {
    #[schema(value_type = String, pattern = "^sbx_[a-z2-7]{26}$")]
    id: SandboxId,
    #[schema(value_type = StateName)]
    state: Phase,
    /// Why it failed.
    reason: Option<String>,
    #[schema(value_type = TemplateShape)]
    template: Template,
    #[schema(value_type = LimitsValues)]
    limits: Limits,
    #[schema(value_type = EnforcementName)]
    enforcement: Enforcement,
    #[schema(value_type = NetworkShape)]
    network: NetworkPolicy,
    #[schema(value_type = BTreeMap<String, String>)]
    labels: Labels,
    #[schema(value_type = UserName)]
    user: User,
    /// Where what it writes lies.
    #[schema(value_type = SpaceName)]
    space: Space,
    /// Seconds.
    #[serde(with = "duration::seconds")]
    #[schema(value_type = f64)]
    lifetime: Duration,
    #[schema(value_type = OnEndName)]
    on_end: OnEnd,
    /// Seconds.
    #[serde(with = "duration::optional_seconds")]
    #[schema(value_type = Option<f64>)]
    idle_timeout: Option<Duration>,
    #[schema(value_type = BTreeMap<String, Vec<String>>)]
    requirements: BTreeMap<LanguageName, Vec<Requirement>>,
    walls: Option<WallsBody>,
    provider: String,
    isolator: String,
    execs_running: usize,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
    /// What was counted for one that has ended, as it is billed. Lists leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    metered: Option<MeteredBody>,
}

/// What was counted for a sandbox. One that was never made took no time.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Metered)]
pub(crate) struct MeteredBody {
    /// From its creation to its end, without the time that it was paused; each millisecond that was begun.
    wall_ms: u64,
    cpu_ms: u64,
    peak_memory_bytes: u64,
}

/// A page of sandboxes, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SandboxList {
    pub(crate) items: Vec<SandboxBody>,
    pub(crate) next_cursor: Option<String>,
}

impl From<SandboxView> for SandboxBody {
    fn from(view: SandboxView) -> Self {
        let spec = view.spec;
        Self {
            id: view.id,
            state: view.phase,
            reason: view.reason,
            template: spec.template,
            limits: spec.limits,
            enforcement: spec.enforcement,
            network: spec.network,
            labels: spec.labels,
            user: spec.user,
            space: spec.space,
            lifetime: spec.lifetime.after,
            on_end: spec.lifetime.then,
            idle_timeout: view.idle_timeout,
            requirements: spec.requirements,
            walls: view.walls.map(WallsBody::from),
            provider: view.provider,
            isolator: view.isolator,
            execs_running: view.execs_running,
            created_at: view.created_at,
            expires_at: view.expires_at,
            ended_at: view.ended_at,
            metered: view.metered.map(|metered| MeteredBody {
                wall_ms: metered.wall_ms,
                cpu_ms: metered.cpu_ms,
                peak_memory_bytes: metered.peak_memory_bytes,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::read;

    #[test]
    fn an_empty_object_asks_for_defaults() {
        let new = NewSandbox::from(read::<CreateSandbox>(b"{}").unwrap());
        assert!(new.enforcement.is_none() && new.lifetime.is_none() && new.network == NetworkPolicy::None);
        let json = br#"{"lifetime": "10m", "on_end": "delete", "enforcement": "best_effort", "user": "root",
            "network": {"allow": ["example.com"]}, "labels": {"a": "b"}, "requirements": {"python": ["numpy"]}}"#;
        let new = NewSandbox::from(read::<CreateSandbox>(json).unwrap());
        assert_eq!((new.lifetime, new.on_end), (Some(Duration::from_secs(600)), Some(OnEnd::Delete)));
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            r#"{"privileged": true}"#,
            r#"{"lifetime": -1}"#,
            r#"{"lifetime": 1e300}"#,
            r#"{"limits": {"memory": 0}}"#,
            r#"{"limits": {"processes": 1.5}}"#,
            r#"{"env": {"SANDSTORM_X": "1"}}"#,
            r#"{"network": {"allow": ["http://x"]}}"#,
            r#"{"user": "nobody"}"#,
            r#"[]"#,
        ] {
            assert!(read::<CreateSandbox>(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(read::<Extend>(b"{}").unwrap().by().is_err());
        assert!(read::<Extend>(br#"{"seconds": 1, "lifetime": 1}"#).unwrap().by().is_err());
        assert_eq!(read::<Extend>(br#"{"seconds": 90}"#).unwrap().by().unwrap(), Duration::from_secs(90));
    }
}
