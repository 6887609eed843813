//! How long what was seen counts.

use std::time::Duration;

use sandstorm_types::duration;
use serde::{Deserialize, Serialize};

/// How fast experience fades: with time, because providers change, and with the number of newer outcomes, so that a busy
/// provider is judged by its latest hundred and not by its morning.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// After this time an outcome counts half.
    #[serde(with = "duration::seconds")]
    pub half_life: Duration,
    /// About so many outcomes count at once.
    pub samples: f64,
    /// The same two for failures of late: a provider that begins to fail is noticed within few runs, and forgiven soon.
    #[serde(with = "duration::seconds")]
    pub recent_half_life: Duration,
    pub recent_samples: f64,
    /// What a failed attempt cost in time where nobody measured it.
    #[serde(with = "duration::seconds")]
    pub unknown_failure_time: Duration,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            half_life: Duration::from_secs(6 * 3600),
            samples: 100.0,
            recent_half_life: Duration::from_secs(1800),
            recent_samples: 15.0,
            unknown_failure_time: Duration::from_secs(3),
        }
    }
}

impl Memory {
    /// The factor by which everything fades in `elapsed`.
    pub(super) fn fade(&self, elapsed: Duration) -> f64 {
        halved(elapsed, self.half_life)
    }

    pub(super) fn fade_recent(&self, elapsed: Duration) -> f64 {
        halved(elapsed, self.recent_half_life)
    }

    /// The factor by which everything fades with one more outcome.
    pub(super) fn crowd(&self) -> f64 {
        1.0 - 1.0 / self.samples.max(1.0)
    }

    pub(super) fn crowd_recent(&self) -> f64 {
        1.0 - 1.0 / self.recent_samples.max(1.0)
    }
}

fn halved(elapsed: Duration, half_life: Duration) -> f64 {
    if half_life.is_zero() { 0.0 } else { (-elapsed.as_secs_f64() / half_life.as_secs_f64()).exp2() }
}
