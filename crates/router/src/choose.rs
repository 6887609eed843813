//! From candidates and beliefs to a decision: filter, predict, score, rank, explain. Pure.

use sandstorm_catalog::Usd;

use crate::decision::{Decision, Excluded, Ranked};
use crate::explain;
use crate::learning::{Belief, Knowledge};
use crate::{Candidate, Exclusion, Health, Moment, Prediction, RouteRequest, Weights, exclusion};

/// Differences below this do not matter to anybody, and keep the logarithm of nothing away.
const UNNOTICED_MS: f64 = 10.0;
const UNNOTICED_USD: f64 = 1e-6;
/// A preferred place wins unless another is better by this factor.
const PREFERENCE: f64 = 1.25;
/// Before so many outcomes nobody is called too slow.
const EVIDENCE: f64 = 3.0;

/// Decides. `caution` is by how many deviations worse than believed each place is taken to be, so that users' requests do
/// not go where little is known.
pub fn choose(
    request: &RouteRequest,
    candidates: &[Candidate],
    knowledge: &Knowledge,
    caution: f64,
    now: Moment,
) -> Decision {
    let beliefs: Vec<Belief> =
        candidates.iter().map(|candidate| knowledge.belief(&candidate.key(&request.class), now)).collect();
    let filtered: Vec<Vec<Exclusion>> = candidates
        .iter()
        .map(|candidate| exclusion::by_what_it_is(candidate, &request.constraints))
        .collect();
    let open = |place: &usize| filtered[*place].is_empty();
    let mut decision = Decision::default();
    let mut last_resort = Vec::new();
    for (place, candidate) in candidates.iter().enumerate() {
        let mut reasons = filtered[place].clone();
        // Where a failed attempt would go next: the best of the others.
        let others = (0..candidates.len()).filter(open).filter(|other| *other != place);
        let fallback = others.map(|other| beliefs[other].mean_ms).min_by(f64::total_cmp);
        let fallback = fallback.unwrap_or(beliefs[place].mean_ms);
        let prediction = Prediction::new(candidate, request, &beliefs[place], caution, fallback);
        match &prediction {
            Ok(prediction) => reasons.extend(by_prediction(candidate, request, prediction)),
            Err(error) => reasons.push(Exclusion::Unpriced { why: error.to_string() }),
        }
        match prediction {
            Ok(prediction) if reasons.is_empty() => {
                let ranked = rank(candidate, request, prediction);
                let probing = matches!(candidate.health, Health::Probing { .. });
                if probing { last_resort.push(ranked) } else { decision.ranked.push(ranked) }
            }
            _ => decision.excluded.push(excluded(candidate, reasons)),
        }
    }
    for ranked in [&mut decision.ranked, &mut last_resort] {
        ranked.sort_by(|a, b| a.score.total_cmp(&b.score).then_with(|| a.provider.cmp(&b.provider)));
        in_wanted_order(ranked, &request.constraints.order);
    }
    decision.ranked.extend(last_resort);
    decision.why = explain::sentences(request, &decision);
    decision
}

fn by_prediction(candidate: &Candidate, request: &RouteRequest, prediction: &Prediction) -> Vec<Exclusion> {
    let constraints = &request.constraints;
    let mut reasons = exclusion::by_cost(candidate, constraints, &prediction.cost, prediction.out_of_pocket);
    let slow = |most: &std::time::Duration| prediction.p95_ms > most.as_secs_f64() * 1000.0;
    if let Some(most) = constraints.max_latency.filter(|_| prediction.samples >= EVIDENCE).filter(slow) {
        reasons.push(Exclusion::TooSlow { most, p95_ms: prediction.p95_ms });
    }
    reasons
}

fn excluded(candidate: &Candidate, reasons: Vec<Exclusion>) -> Excluded {
    let why = reasons.iter().map(ToString::to_string).collect();
    Excluded { provider: candidate.provider.clone(), region: candidate.region.clone(), reasons, why }
}

fn rank(candidate: &Candidate, request: &RouteRequest, prediction: Prediction) -> Ranked {
    let constraints = &request.constraints;
    let by_name = constraints.preferred_providers.contains(&candidate.provider);
    let by_region = constraints.preferred_region.as_deref().is_some_and(|place| candidate.is_in(place));
    let weights = request.objective.weights();
    let score = score(&weights, prediction.effective_ms, prediction.out_of_pocket, prediction.failure);
    let bonus = PREFERENCE.ln() * (weights.latency() + weights.cost() + weights.reliability());
    let bonuses = f64::from(u8::from(by_name) + u8::from(by_region)) * bonus;
    Ranked {
        provider: candidate.provider.clone(),
        region: candidate.region.clone(),
        score: score - bonuses,
        prediction,
        preferred: by_name || by_region || constraints.order.contains(&candidate.provider),
    }
}

/// Less is better.
pub(crate) fn score(weights: &Weights, latency_ms: f64, cost: Usd, failure: f64) -> f64 {
    let latency = (latency_ms + UNNOTICED_MS).ln();
    let cost = (cost.as_f64() + UNNOTICED_USD).ln();
    let failure = -(1.0 - failure.min(0.99)).ln();
    weights.latency() * latency + weights.cost() * cost + weights.reliability() * failure
}

/// Brings the named ones to the front, in the order in which they are named; a stable sort keeps the rest.
fn in_wanted_order(ranked: &mut [Ranked], order: &[String]) {
    let turn =
        |ranked: &Ranked| order.iter().position(|name| *name == ranked.provider).unwrap_or(order.len());
    ranked.sort_by_key(turn);
}

#[cfg(test)]
mod tests;
