//! A place where a run could go, as data.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sandstorm_catalog::{ProviderEntry, Usd};
use sandstorm_types::{Capabilities, Unmet, duration};
use serde::{Deserialize, Serialize};

use crate::{ArmKey, ErrorFamily, WorkloadClass};

/// One provider in one region.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub provider: String,
    /// The provider's own name for it; `None` where it chooses itself.
    pub region: Option<String>,
    /// The area that the region lies in.
    pub area: Option<String>,
    pub capabilities: Capabilities,
    /// Its page in the catalogue, with the operator's figures.
    pub entry: Arc<ProviderEntry>,
    /// Every reason that the provider gives why it cannot hold this sandbox.
    pub unmet: Vec<Unmet>,
    pub health: Health,
    pub load: Load,
    /// What is left of free credits.
    pub free_credit: Usd,
    /// What may still be spent there; `None` is no limit.
    pub budget: Option<Usd>,
}

impl Candidate {
    /// A healthy, idle one without limits.
    pub fn new(provider: impl Into<String>, capabilities: Capabilities, entry: Arc<ProviderEntry>) -> Self {
        Self {
            provider: provider.into(),
            region: None,
            area: None,
            capabilities,
            entry,
            unmet: Vec::new(),
            health: Health::Up,
            load: Load::default(),
            free_credit: Usd::ZERO,
            budget: None,
        }
    }

    pub fn key(&self, class: &WorkloadClass) -> ArmKey {
        ArmKey { provider: self.provider.clone(), region: self.region.clone(), class: class.clone() }
    }

    /// Whether it lies in a region or area of this name.
    pub fn is_in(&self, place: &str) -> bool {
        self.region.as_deref() == Some(place) || self.area.as_deref() == Some(place)
    }
}

/// Sandboxes that are there, and may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Load {
    pub in_use: u32,
    /// `None` is no limit.
    pub limit: Option<u32>,
}

impl Load {
    pub fn is_full(self) -> bool {
        self.limit.is_some_and(|limit| self.in_use >= limit)
    }
}

/// Whether a provider should be asked at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Health {
    #[default]
    Up,
    /// It failed and is being tried again, by few at a time: it comes last.
    Probing { family: ErrorFamily },
    /// It failed too often with errors of this family.
    Open {
        family: ErrorFamily,
        #[serde(with = "duration::seconds")]
        retry_in: Duration,
    },
    /// It does much worse than the others.
    Ejected {
        #[serde(with = "duration::seconds")]
        retry_in: Duration,
    },
    /// It has asked to be left alone for a while.
    Held {
        #[serde(with = "duration::seconds")]
        retry_in: Duration,
    },
}

impl Health {
    pub fn may_be_asked(self) -> bool {
        matches!(self, Self::Up | Self::Probing { .. })
    }

    pub fn retry_in(self) -> Option<Duration> {
        match self {
            Self::Up | Self::Probing { .. } => None,
            Self::Open { retry_in, .. } | Self::Ejected { retry_in } | Self::Held { retry_in } => {
                Some(retry_in)
            }
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |span: &Duration| duration::format(Duration::from_secs(span.as_secs_f64().ceil() as u64));
        match self {
            Self::Up => f.write_str("it is up"),
            Self::Probing { family } => write!(f, "it is being tried again after errors of {family}"),
            Self::Open { family, retry_in } => {
                write!(f, "it failed too often by {family}, and is tried again in {}", span(retry_in))
            }
            Self::Ejected { retry_in } => {
                write!(f, "it fails far more often than the others, and is tried again in {}", span(retry_in))
            }
            Self::Held { retry_in } => write!(f, "it asked not to be asked for another {}", span(retry_in)),
        }
    }
}
