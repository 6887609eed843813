//! Why a place is out of the question: every reason, as a value and as a sentence.

use std::fmt;
use std::time::Duration;

use sandstorm_catalog::{CostEstimate, Usd};
use sandstorm_types::{Capabilities, Isolation, Unmet, duration};
use serde::Serialize;

use crate::{Candidate, Constraints, Health, Load};

/// One reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Exclusion {
    /// The provider cannot hold the sandbox.
    Unmet {
        unmet: Unmet,
    },
    /// The caller does not want it.
    NotWanted,
    /// A capability that was asked for by name is missing, or there is none of that name.
    Capability {
        name: String,
        known: bool,
    },
    Isolation {
        wanted: Isolation,
        offered: Isolation,
    },
    Gpu {
        wanted: String,
    },
    /// Data may not go there.
    Region {
        wanted: Vec<String>,
        offered: Option<String>,
    },
    Unpriced {
        why: String,
    },
    TooExpensive {
        most: Usd,
        expected: Usd,
    },
    OverBudget {
        left: Usd,
        expected: Usd,
    },
    TooSlow {
        #[serde(with = "duration::seconds")]
        most: Duration,
        p95_ms: f64,
    },
    Full {
        load: Load,
    },
    Unhealthy {
        health: Health,
    },
}

impl Exclusion {
    /// Whether it may be over soon: what then is left to say to a caller is when to come again, not that it never works.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Unhealthy { .. } | Self::TooSlow { .. } => true,
            Self::Unmet { unmet } => unmet.feature == Unmet::CONNECTION,
            _ => false,
        }
    }
}

impl fmt::Display for Exclusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unmet { unmet } => {
                write!(
                    f,
                    "{}: wanted {}, offered {}: {}",
                    unmet.feature, unmet.wanted, unmet.offered, unmet.why
                )
            }
            Self::NotWanted => f.write_str("the request excludes it"),
            Self::Capability { name, known: true } => write!(f, "it lacks the capability {name}"),
            Self::Capability { name, known: false } => write!(f, "there is no capability called `{name}`"),
            Self::Isolation { wanted, offered } => {
                write!(f, "its boundary is {offered}, and at least {wanted} is required")
            }
            Self::Gpu { wanted } => write!(f, "it has no accelerator `{wanted}`"),
            Self::Region { wanted, offered } => {
                let offered = offered.as_deref().unwrap_or("not known");
                write!(f, "its region is {offered}, and {} is required", wanted.join(" or "))
            }
            Self::Unpriced { why } => f.write_str(why),
            Self::TooExpensive { most, expected } => {
                write!(f, "it would cost about {expected} USD, more than {most}")
            }
            Self::OverBudget { left, expected } => {
                write!(f, "it would cost about {expected} USD, and its budget has {left} left")
            }
            Self::TooSlow { most, p95_ms } => {
                let most = duration::format(*most);
                write!(f, "one in twenty takes longer than {p95_ms:.0} ms there, more than {most}")
            }
            Self::Full { load } => {
                write!(f, "it has {} sandboxes, and may have {}", load.in_use, load.limit.unwrap_or(u32::MAX))
            }
            Self::Unhealthy { health } => health.fmt(f),
        }
    }
}

/// Reasons that do not depend on what was predicted.
pub(crate) fn by_what_it_is(candidate: &Candidate, constraints: &Constraints) -> Vec<Exclusion> {
    let require = &constraints.require;
    let mut reasons: Vec<Exclusion> =
        candidate.unmet.iter().map(|unmet| Exclusion::Unmet { unmet: unmet.clone() }).collect();
    if constraints.exclude_providers.contains(&candidate.provider) {
        reasons.push(Exclusion::NotWanted);
    }
    reasons.extend(lacking(&candidate.capabilities, &require.capabilities));
    let offered = candidate.capabilities.isolation;
    if let Some(wanted) = require.isolation.filter(|wanted| *wanted > offered) {
        reasons.push(Exclusion::Isolation { wanted, offered });
    }
    if let Some(wanted) = &require.gpu {
        let fits = |kind: &str| wanted == "any" || kind.eq_ignore_ascii_case(wanted);
        if !candidate.entry.gpus().any(fits) {
            reasons.push(Exclusion::Gpu { wanted: wanted.clone() });
        }
    }
    if !require.regions.is_empty() && !require.regions.iter().any(|place| candidate.is_in(place)) {
        reasons
            .push(Exclusion::Region { wanted: require.regions.clone(), offered: candidate.region.clone() });
    }
    if candidate.load.is_full() {
        reasons.push(Exclusion::Full { load: candidate.load });
    }
    if !candidate.health.may_be_asked() {
        reasons.push(Exclusion::Unhealthy { health: candidate.health });
    }
    reasons
}

/// Reasons of money; `pocket` is what is left to pay after free credits.
pub(crate) fn by_cost(
    candidate: &Candidate,
    constraints: &Constraints,
    cost: &CostEstimate,
    pocket: Usd,
) -> Vec<Exclusion> {
    let too_expensive = constraints.max_cost.filter(|most| cost.expected > *most);
    let over_budget = candidate.budget.filter(|left| pocket > *left);
    let too_expensive = too_expensive.map(|most| Exclusion::TooExpensive { most, expected: cost.expected });
    let over_budget = over_budget.map(|left| Exclusion::OverBudget { left, expected: pocket });
    too_expensive.into_iter().chain(over_budget).collect()
}

fn lacking(capabilities: &Capabilities, names: &[String]) -> Vec<Exclusion> {
    let judge = |name: &String| match capabilities.has(name) {
        Some(true) => None,
        known => Some(Exclusion::Capability { name: name.clone(), known: known.is_some() }),
    };
    names.iter().filter_map(judge).collect()
}
