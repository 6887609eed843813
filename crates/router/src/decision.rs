//! The answer: where to go, where next if that fails, and why.

use serde::Serialize;

use crate::{Exclusion, Prediction};

/// What was decided. All of it can be shown to whoever asks why.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Decision {
    /// Places in the order in which to try them.
    pub ranked: Vec<Ranked>,
    pub excluded: Vec<Excluded>,
    /// Sentences on why the first one is first, or why there is none.
    pub why: Vec<String>,
}

/// A place that would do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranked {
    pub provider: String,
    pub region: Option<String>,
    /// Less is better; differences are what weights times doublings make.
    pub score: f64,
    pub prediction: Prediction,
    /// Whether the caller prefers it or has named its turn.
    pub preferred: bool,
}

/// A place that will not do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Excluded {
    pub provider: String,
    pub region: Option<String>,
    pub reasons: Vec<Exclusion>,
    /// The reasons as sentences.
    pub why: Vec<String>,
}

impl Decision {
    pub fn winner(&self) -> Option<&Ranked> {
        self.ranked.first()
    }

    /// Whether every place is out for reasons that may be over soon for one of them at least.
    pub fn may_work_later(&self) -> bool {
        self.ranked.is_empty()
            && self.excluded.iter().any(|place| place.reasons.iter().all(Exclusion::is_passing))
    }
}
