//! Decisions in sentences.

use sandstorm_catalog::Usd;

use crate::decision::{Decision, Ranked};
use crate::{Objective, RouteRequest};

pub(crate) fn sentences(request: &RouteRequest, decision: &Decision) -> Vec<String> {
    let Some(winner) = decision.winner() else {
        return vec![format!("none of {} places will do", decision.excluded.len())];
    };
    let mut why = vec![format!(
        "{} {}: ready in about {} ({} to {}), {} USD",
        name(winner),
        wins_by(request, winner),
        time(winner.prediction.ready_ms.expected),
        time(winner.prediction.ready_ms.low),
        time(winner.prediction.ready_ms.high),
        short(winner.prediction.cost.expected),
    )];
    if winner.prediction.samples < 0.5 {
        why.push(format!("little was seen of {} lately, so its time is a guess", name(winner)));
    }
    if winner.prediction.failure > 0.02 {
        let share = winner.prediction.failure * 100.0;
        why.push(format!("about {share:.0} % of attempts there fail, which is counted in"));
    }
    if winner.prediction.out_of_pocket < winner.prediction.cost.expected {
        why.push(format!("free credits pay for it, all but {} USD", short(winner.prediction.out_of_pocket)));
    }
    why.extend(decision.ranked.get(1).map(|next| compared(winner, next)));
    if !decision.excluded.is_empty() {
        let names: Vec<_> = decision.excluded.iter().map(|place| place.provider.as_str()).collect();
        why.push(format!("out of the question: {}", names.join(", ")));
    }
    why
}

fn wins_by(request: &RouteRequest, winner: &Ranked) -> &'static str {
    if request.constraints.order.contains(&winner.provider) {
        return "comes first in the order that was asked for";
    }
    match (request.objective, winner.preferred) {
        (_, true) => "is preferred, and no other is much better",
        (Objective::Cheapest, false) => "is the cheapest",
        (Objective::Fastest, false) => "is the fastest",
        (Objective::Balanced, false) => "has the best balance of time and cost",
        (Objective::Weighted(_), false) => "is best by the weights that were given",
    }
}

fn compared(winner: &Ranked, next: &Ranked) -> String {
    let (ours, theirs) = (&winner.prediction, &next.prediction);
    let times = theirs.effective_ms / ours.effective_ms.max(0.001);
    let (faster, times) = if times >= 1.0 { ("slower", times) } else { ("faster", 1.0 / times) };
    let cost = match (ours.out_of_pocket.as_f64(), theirs.out_of_pocket.as_f64()) {
        (ours, theirs) if (theirs - ours).abs() < ours.max(1e-6) * 0.005 => "costs the same".to_owned(),
        (ours, theirs) if ours <= 0.0 => format!("costs {theirs:.6} USD instead of nothing"),
        (_, theirs) if theirs <= 0.0 => "costs nothing".to_owned(),
        (ours, theirs) if theirs < ours * 0.01 => "costs next to nothing".to_owned(),
        (ours, theirs) => format!("costs {:.2} times as much", theirs / ours),
    };
    if theirs.samples < 0.5 {
        return format!("the next one, {}, {cost}; how fast it is was not seen lately", name(next));
    }
    format!("the next one, {}, is {times:.1} times {faster}, failures counted in, and {cost}", name(next))
}

fn name(ranked: &Ranked) -> String {
    match &ranked.region {
        Some(region) => format!("{} in {region}", ranked.provider),
        None => ranked.provider.clone(),
    }
}

fn time(ms: f64) -> String {
    if ms < 1000.0 { format!("{ms:.0} ms") } else { format!("{:.1} s", ms / 1000.0) }
}

/// Four digits that count are enough for a sentence.
fn short(amount: Usd) -> String {
    let value = amount.as_f64();
    if value == 0.0 {
        return "0".to_owned();
    }
    let places = (4 - value.abs().log10().ceil() as i32).clamp(2, 12) as usize;
    let text = format!("{value:.places$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
