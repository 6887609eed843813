//! What is asked of the router.

use std::time::Duration;

use sandstorm_catalog::{Demand, Span, Usd};
use sandstorm_types::duration;
use serde::{Deserialize, Serialize};

use crate::{Objective, Require, WorkloadClass};

/// One question: where should this go?
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouteRequest {
    pub objective: Objective,
    pub constraints: Constraints,
    /// Runs that it is like.
    pub class: WorkloadClass,
    /// How large it is.
    pub demand: Demand,
    /// How long it will run once it is ready.
    pub work: Span,
    /// How much of its processors it will use meanwhile, in thousandths.
    pub cpu_permille: u32,
}

impl Default for RouteRequest {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            objective: Objective::default(),
            constraints: Constraints::default(),
            class: WorkloadClass::default(),
            demand: Demand::default(),
            // Nothing is known: short, as most runs are, but perhaps as long as the usual limit.
            work: Span { low: seconds(1), expected: seconds(5), high: seconds(30) },
            cpu_permille: 500,
        }
    }
}

/// What a route has to keep to, and what it should.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Constraints {
    /// Nothing whose expected cost is more.
    pub max_cost: Option<Usd>,
    /// Nothing of which one in twenty is known to take longer until it is ready.
    #[serde(with = "duration::optional_seconds")]
    pub max_latency: Option<Duration>,
    /// Goes there unless another place is a quarter better.
    pub preferred_region: Option<String>,
    /// The same for providers.
    pub preferred_providers: Vec<String>,
    /// Never these.
    pub exclude_providers: Vec<String>,
    /// These first, in this order; the others by their score after them.
    pub order: Vec<String>,
    pub require: Require,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_full_request_and_refuses_unknown_fields() {
        let json = r#"{"objective": "fastest", "class": "python", "demand": {"cpus": 2, "memory": "1GiB"},
            "work": {"low": 1, "expected": "2s", "high": 10}, "constraints": {"max_cost": "0.01", "max_latency": 2.5,
            "preferred_region": "eu", "preferred_providers": ["a"], "exclude_providers": ["b"], "order": ["c"],
            "require": {"capabilities": ["exec_tty"], "isolation": "micro_vm", "gpu": "H100", "regions": ["eu"]}}}"#;
        let request: RouteRequest = serde_json::from_str(json).unwrap();
        assert_eq!(request.constraints.max_latency, Some(Duration::from_millis(2500)));
        assert_eq!(request.constraints.require.isolation, Some(sandstorm_types::Isolation::MicroVm));
        let back = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<RouteRequest>(&back).unwrap(), request);
        for json in [
            r#"{"goal": 1}"#,
            r#"{"constraints": {"maxCost": 1}}"#,
            r#"{"constraints": {"require": {"tty": 1}}}"#,
        ] {
            assert!(serde_json::from_str::<RouteRequest>(json).is_err(), "{json}");
        }
        assert_eq!(serde_json::from_str::<RouteRequest>("{}").unwrap(), RouteRequest::default());
    }
}
