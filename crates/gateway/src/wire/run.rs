//! One-shot runs.

use std::collections::BTreeMap;

use sandstorm_control::server::RunView;
use sandstorm_types::{
    Blob, Enforcement, EnvMap, GuestPath, Labels, LanguageName, LimitsPatch, NetworkPolicy, Requirement,
    Routing, RunId, RunSpec, Space, Status, Timestamp,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ResultBody;
use super::cost::MaxCost;
use super::original::{self, Constrained, OriginalConstraints};
use super::shapes::{
    Content, Dollars, EnforcementName, LanguageText, LimitsRequest, NetworkShape, RoutingShape, SpaceName,
    StatusName,
};
use crate::json::Wire;
use crate::problem::{ApiError, ApiResult};

/// A run to start.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartRun {
    #[schema(value_type = LanguageText)]
    language: LanguageName,
    #[schema(example = "print(1)")]
    code: String,
    /// Files to put in place first, relative to the workspace unless absolute.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, Content>)]
    files: BTreeMap<GuestPath, Blob>,
    #[serde(default)]
    #[schema(value_type = Content)]
    stdin: Blob,
    #[serde(default)]
    #[schema(max_items = 4096)]
    args: Vec<String>,
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, String>)]
    env: EnvMap,
    /// Packages, as the language's package manager spells them.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    requirements: Vec<Requirement>,
    #[serde(default)]
    #[schema(value_type = LimitsRequest)]
    limits: LimitsPatch,
    #[serde(default)]
    #[schema(value_type = NetworkShape)]
    network: NetworkPolicy,
    /// `strict` unless said otherwise.
    #[serde(default)]
    #[schema(value_type = Option<EnforcementName>)]
    enforcement: Option<Enforcement>,
    /// Whether an earlier successful result of the same run of this tenant will do. Only without network. What comes from
    /// an earlier run says so with `cached`.
    #[serde(default)]
    cache: bool,
    /// Where what it writes lies.
    #[serde(default)]
    #[schema(value_type = SpaceName)]
    space: Space,
    /// What its cost is counted under, beside the tenant and the key.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, String>)]
    labels: Labels,
    /// The most that it may cost, in US dollars: it is not begun if more is expected, and stopped before it costs more.
    #[serde(default)]
    #[schema(value_type = Option<Dollars>)]
    max_cost: Option<MaxCost>,
    /// Where it should go, where the server has a choice.
    #[schema(value_type = Option<RoutingShape>)]
    #[serde(default, deserialize_with = "super::object::optional")]
    routing: Option<Box<Routing>>,
    /// What it has to keep to, as clients of the first Sandstorm say it. What `limits` says counts before it.
    #[schema(value_type = Option<OriginalConstraints>)]
    #[serde(default, deserialize_with = "super::object::optional")]
    constraints: Option<Box<OriginalConstraints>>,
}

impl Wire for StartRun {
    const LARGE: bool = true;
}

impl StartRun {
    /// `places` are those that this server has.
    pub(crate) fn into_spec(mut self, places: &[String]) -> ApiResult<RunSpec> {
        if let Some(constraints) = self.constraints.take() {
            self.keep_to(constraints.in_our_words(places)?)?;
        }
        let spec = RunSpec {
            language: self.language,
            code: self.code,
            files: self.files,
            stdin: self.stdin,
            args: self.args,
            env: self.env,
            requirements: self.requirements,
            limits: self.limits,
            network: self.network,
            enforcement: self.enforcement,
            cache: self.cache,
            space: self.space,
            labels: self.labels,
            max_cost: self.max_cost.map(Into::into),
            routing: self.routing,
        };
        spec.validate().map_err(|error| ApiError::invalid(error.to_string()))?;
        Ok(spec)
    }

    fn keep_to(&mut self, constrained: Constrained) -> ApiResult<()> {
        let Constrained { max_cost, limits, routing } = constrained;
        if max_cost.is_some() && self.max_cost.is_some() {
            return Err(ApiError::field("constraints.maxCost", "says again what `max_cost` says"));
        }
        self.max_cost = self.max_cost.or(max_cost);
        original::fill(&mut self.limits, limits);
        if routing != Routing::default() {
            if self.routing.is_some() {
                return Err(ApiError::field(
                    "constraints",
                    "has wishes about places, which are in `routing` already",
                ));
            }
            self.routing = Some(Box::new(routing));
        }
        Ok(())
    }
}

/// A run.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Run)]
pub(crate) struct RunBody {
    #[schema(value_type = String, pattern = "^run_[a-z2-7]{26}$")]
    id: RunId,
    #[schema(value_type = String)]
    language: LanguageName,
    /// `null` while it runs; also `null`, with `problem`, when the platform failed.
    #[schema(value_type = Option<StatusName>)]
    status: Option<Status>,
    problem: Option<String>,
    result: Option<ResultBody>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
}

/// A page of runs, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunList {
    pub(crate) items: Vec<RunBody>,
    pub(crate) next_cursor: Option<String>,
}

impl From<RunView> for RunBody {
    fn from(view: RunView) -> Self {
        Self {
            id: view.id,
            language: view.language,
            status: view.status,
            problem: view.problem,
            result: view.result.map(ResultBody::from),
            created_at: view.created_at,
            ended_at: view.ended_at,
        }
    }
}
