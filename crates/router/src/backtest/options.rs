//! What is replayed, and how.

use std::time::Duration;

use sandstorm_catalog::{Demand, Span, Usd};
use serde::Serialize;

use super::Mode;
use crate::{Objective, Settings};

/// The seeds of a full back-test: fixed, so that two people who run it see the same figures.
pub const SEEDS: [u64; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

/// How requests are routed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// With a second creation beside a slow one.
    Fastest,
    FastestUnhedged,
    Balanced,
    Cheapest,
}

impl Policy {
    pub const ALL: [Self; 4] = [Self::Fastest, Self::FastestUnhedged, Self::Balanced, Self::Cheapest];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Fastest => "fastest",
            Self::FastestUnhedged => "fastest, no hedge",
            Self::Balanced => "balanced",
            Self::Cheapest => "cheapest",
        }
    }

    pub(super) const fn objective(self) -> Objective {
        match self {
            Self::Fastest | Self::FastestUnhedged => Objective::Fastest,
            Self::Balanced => Objective::Balanced,
            Self::Cheapest => Objective::Cheapest,
        }
    }
}

/// A back-test.
#[derive(Debug, Clone)]
pub struct Options {
    pub mode: Mode,
    pub seeds: Vec<u64>,
    pub requests_per_day: u32,
    /// What each request asks for and does.
    pub demand: Demand,
    pub work: Duration,
    pub cpu_permille: u32,
    /// The price of an hour at providers that have none in the catalogue; without it they are left out.
    pub unpriced_hour: Option<Usd>,
    pub settings: Settings,
    /// Of a failed attempt, since the trace does not say.
    pub failure_time: Duration,
}

impl Options {
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            seeds: SEEDS.to_vec(),
            requests_per_day: 200,
            demand: Demand::default(),
            work: Duration::from_secs(10),
            cpu_permille: 500,
            unpriced_hour: None,
            settings: Settings::default(),
            failure_time: Duration::from_secs(3),
        }
    }

    pub(super) fn span(&self) -> Span {
        Span::exactly(self.work)
    }
}
