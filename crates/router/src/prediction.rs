//! What is expected of one place for one request, with how sure that is.

use std::time::Duration;

use sandstorm_catalog::{ChargeError, CostEstimate, Span, Usd};
use serde::Serialize;

use crate::learning::Belief;
use crate::{Candidate, RouteRequest};

/// Deviations between which nine of ten truths lie.
const NINE_IN_TEN: f64 = 1.645;

/// What is expected. Times are milliseconds until the sandbox can be used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// The mean, and between what it lies with nine in ten.
    pub ready_ms: Range,
    pub p50_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    /// How probably the attempt fails.
    pub failure: f64,
    /// Time until the request is served, failures and the next place counted in, at the cautious end: what is compared.
    pub effective_ms: f64,
    /// About how many outcomes this rests on.
    pub samples: f64,
    /// By the list of prices.
    pub cost: CostEstimate,
    /// What is left of the expected cost after free credits.
    pub out_of_pocket: Usd,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Range {
    pub low: f64,
    pub expected: f64,
    pub high: f64,
}

impl Prediction {
    pub(crate) fn new(
        candidate: &Candidate,
        request: &RouteRequest,
        belief: &Belief,
        caution: f64,
        fallback_ms: f64,
    ) -> Result<Self, ChargeError> {
        let cost = cost(candidate, request, belief)?;
        Ok(Self {
            ready_ms: Range {
                low: belief.mean_at(-NINE_IN_TEN),
                expected: belief.mean_ms,
                high: belief.mean_at(NINE_IN_TEN),
            },
            p50_ms: belief.p50_ms,
            p95_ms: belief.p95_ms,
            p99_ms: belief.p99_ms,
            failure: belief.failure(),
            effective_ms: belief.effective_ms(caution, fallback_ms),
            samples: belief.samples,
            cost,
            out_of_pocket: cost.expected.saturating_sub(candidate.free_credit),
        })
    }
}

/// A sandbox is billed while it is made, too: not everywhere, but nobody should be surprised.
fn cost(candidate: &Candidate, request: &RouteRequest, belief: &Belief) -> Result<CostEstimate, ChargeError> {
    let ready = Span {
        low: millis(belief.mean_at(-NINE_IN_TEN)),
        expected: millis(belief.mean_ms),
        high: millis(belief.mean_at(NINE_IN_TEN)),
    };
    let span = ready.then(request.work);
    candidate.entry.estimate(&request.demand, span, request.cpu_permille, candidate.region.is_some())
}

pub(crate) fn millis(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1000.0).unwrap_or(Duration::MAX)
}
