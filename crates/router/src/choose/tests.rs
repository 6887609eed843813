//! Decisions over a handful of made-up places.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sandstorm_catalog::{Catalog, Overrides, Span};
use sandstorm_types::{Capabilities, Isolation, Unmet};

use super::*;
use crate::failover::ErrorFamily;
use crate::{Constraints, Load, Objective, Outcome, OutcomeResult, Require};

/// A place that costs so many millionths of a dollar for each second.
fn place(name: &str, micros: u64) -> Candidate {
    let json =
        format!(r#"{{"{name}": {{"like": "local", "price": {{"model": "owned", "vcpu_hour": {}}}}}}}"#, {
            micros as f64 * 3600.0 / 1e6
        });
    let overrides: Overrides = serde_json::from_str(&json).unwrap();
    let entry = Catalog::embedded().with(&overrides).unwrap().get(name).unwrap().clone();
    Candidate::new(name, Capabilities { exec: true, ..Capabilities::default() }, Arc::new(entry))
}

/// What is known after twenty outcomes each.
fn known(latencies: &[(&str, u64)]) -> Knowledge {
    let mut knowledge = Knowledge::default();
    for (name, ms) in latencies {
        let key = place(name, 1).key(&Default::default());
        let result = OutcomeResult::Ready { after: Duration::from_millis(*ms) };
        (0..20).for_each(|_| knowledge.observe(&Outcome { key: key.clone(), result }, Moment::START));
    }
    knowledge
}

fn request(objective: Objective, constraints: Constraints) -> RouteRequest {
    let work = Span::exactly(Duration::from_secs(10));
    RouteRequest { objective, constraints, work, ..RouteRequest::default() }
}

fn names(decision: &Decision) -> String {
    decision.ranked.iter().map(|ranked| ranked.provider.as_str()).collect::<Vec<_>>().join(" ")
}

fn three() -> (Vec<Candidate>, Knowledge) {
    let places = vec![place("quick", 9), place("cheap", 1), place("middle", 3)];
    (places, known(&[("quick", 100), ("cheap", 2000), ("middle", 200)]))
}

fn decide(objective: Objective, constraints: Constraints) -> Decision {
    let (places, knowledge) = three();
    choose(&request(objective, constraints), &places, &knowledge, 0.5, Moment::START)
}

#[test]
fn each_objective_has_its_winner() {
    let ranking = |objective| names(&decide(objective, Constraints::default()));
    assert_eq!(ranking(Objective::Fastest), "quick middle cheap");
    assert_eq!(ranking(Objective::Cheapest), "cheap middle quick");
    assert_eq!(ranking(Objective::Balanced), "middle quick cheap");
    let time_is_money = Weights::new(3.0, 1.0, 0.0).unwrap();
    assert_eq!(ranking(Objective::Weighted(time_is_money)), "quick middle cheap");
}

#[test]
fn the_same_inputs_give_the_same_decision() {
    let json = || serde_json::to_string(&decide(Objective::Balanced, Constraints::default())).unwrap();
    assert_eq!(json(), json());
}

#[test]
fn the_winner_is_explained() {
    let decision = decide(Objective::Fastest, Constraints::default());
    assert!(decision.why[0].starts_with("quick is the fastest: ready in about 1"), "{:?}", decision.why);
    assert!(decision.why[1].starts_with("the next one, middle, is 1."), "{:?}", decision.why);
    assert!(decision.why[1].ends_with("and costs 0.34 times as much"), "{:?}", decision.why);
}

#[test]
fn preference_order_and_exclusion() {
    let prefer =
        |name: &str| Constraints { preferred_providers: vec![name.into()], ..Constraints::default() };
    // A fifth slower is fine for who is preferred, twenty times slower is not.
    let places = [place("a", 1), place("b", 1), place("c", 1)];
    let knowledge = known(&[("a", 500), ("b", 600), ("c", 9000)]);
    let ranking = |constraints| {
        names(&choose(&request(Objective::Fastest, constraints), &places, &knowledge, 0.5, Moment::START))
    };
    assert_eq!(ranking(prefer("b")), "b a c");
    assert_eq!(ranking(prefer("c")), "a b c");
    let order = Constraints { order: vec!["c".into(), "b".into()], ..Constraints::default() };
    assert_eq!(ranking(order), "c b a");
    let exclude = Constraints { exclude_providers: vec!["a".into()], ..Constraints::default() };
    assert_eq!(ranking(exclude), "b c");
}

#[test]
fn a_preferred_region_counts_and_a_required_one_decides() {
    let in_region = |name: &str, region: &str| Candidate {
        region: Some(region.into()),
        area: Some(region[..2].into()),
        ..place(name, 1)
    };
    let places = [in_region("a", "us-1"), in_region("b", "eu-1"), place("c", 1)];
    let decide = |constraints| {
        choose(&request(Objective::Cheapest, constraints), &places, &Knowledge::default(), 0.5, Moment::START)
    };
    let preferred = Constraints { preferred_region: Some("eu".into()), ..Constraints::default() };
    assert_eq!(names(&decide(preferred)), "b a c");
    let require = Require { regions: vec!["eu".into()], ..Require::default() };
    let decision = decide(Constraints { require, ..Constraints::default() });
    assert_eq!(names(&decision), "b");
    let whys: Vec<_> = decision.excluded.iter().map(|place| place.why.join("; ")).collect();
    assert_eq!(
        whys,
        ["its region is us-1, and eu is required", "its region is not known, and eu is required"]
    );
}

#[test]
fn every_reason_is_given() {
    let mut bad = place("bad", 100);
    bad.unmet = vec![Unmet::new("exec_tty", "yes", "no", "there are no terminals here")];
    bad.load = Load { in_use: 3, limit: Some(3) };
    bad.health = Health::Open { family: ErrorFamily::Billing, retry_in: Duration::from_millis(1500) };
    bad.budget = Some(Usd::micros(5));
    let require = Require {
        capabilities: vec!["exec".into(), "pause".into(), "levitate".into()],
        isolation: Some(Isolation::MicroVm),
        gpu: Some("any".into()),
        regions: Vec::new(),
    };
    let constraints = Constraints {
        max_cost: Some(Usd::micros(10)),
        max_latency: Some(Duration::from_millis(500)),
        exclude_providers: vec!["bad".into()],
        require,
        ..Constraints::default()
    };
    let knowledge = known(&[("bad", 1000)]);
    let decision = choose(&request(Objective::Fastest, constraints), &[bad], &knowledge, 0.5, Moment::START);
    assert_eq!(decision.why, ["none of 1 places will do"]);
    assert!(!decision.may_work_later());
    let json = serde_json::to_value(&decision.excluded[0].reasons).unwrap();
    let codes: Vec<_> =
        json.as_array().unwrap().iter().map(|reason| reason["reason"].as_str().unwrap()).collect();
    let wanted = "unmet not_wanted capability capability isolation gpu full unhealthy too_expensive over_budget too_slow";
    assert_eq!(codes.join(" "), wanted);
    let why = &decision.excluded[0].why;
    assert_eq!(why[3], "there is no capability called `levitate`");
    assert_eq!(why[7], "it failed too often by billing, and is tried again in 2s");
}

#[test]
fn what_has_no_price_is_not_used() {
    let entry = Catalog::embedded().get("morph").unwrap().clone();
    let morph = Candidate::new("morph", Capabilities::default(), Arc::new(entry));
    let request = request(Objective::Fastest, Constraints::default());
    let decision = choose(&request, &[morph, place("a", 1)], &Knowledge::default(), 0.5, Moment::START);
    assert_eq!(names(&decision), "a");
    assert_eq!(decision.excluded[0].why, ["the price of morph is not known: the operator has to set it"]);
}

#[test]
fn free_credits_are_used_first() {
    let mut gift = place("gift", 9);
    gift.free_credit = Usd::dollars(1);
    let request = request(Objective::Cheapest, Constraints::default());
    let decision =
        choose(&request, &[place("a", 1), gift.clone()], &Knowledge::default(), 0.5, Moment::START);
    assert_eq!(names(&decision), "gift a");
    assert!(decision.why.iter().any(|why| why.starts_with("free credits pay for it")), "{:?}", decision.why);
    gift.free_credit = Usd::ZERO;
    let decision = choose(&request, &[place("a", 1), gift], &Knowledge::default(), 0.5, Moment::START);
    assert_eq!(names(&decision), "a gift");
}

#[test]
fn users_do_not_go_where_little_is_known() {
    let mut knowledge = known(&[("old", 300)]);
    let key = place("new", 1).key(&Default::default());
    let result = OutcomeResult::Ready { after: Duration::from_millis(250) };
    knowledge.observe(&Outcome { key, result }, Moment::START);
    let request = request(Objective::Fastest, Constraints::default());
    let ranking = |caution| {
        names(&choose(&request, &[place("new", 1), place("old", 1)], &knowledge, caution, Moment::START))
    };
    assert_eq!(ranking(1.0), "old new");
}

#[test]
fn the_fallback_is_one_that_does_not_fail() {
    let mut knowledge = known(&[("a", 100), ("b", 150), ("c", 400)]);
    let key = place("b", 1).key(&Default::default());
    let result = OutcomeResult::Failed { after: Some(Duration::from_millis(100)) };
    (0..10).for_each(|_| knowledge.observe(&Outcome { key: key.clone(), result }, Moment::START));
    let places = [place("a", 1), place("b", 1), place("c", 1)];
    let request = request(Objective::Fastest, Constraints::default());
    assert_eq!(names(&choose(&request, &places, &knowledge, 0.5, Moment::START)), "a c b");
}

#[test]
fn who_is_being_tried_again_comes_last_and_nobody_is_slow_unseen() {
    let mut sick = place("sick", 1);
    sick.health = Health::Probing { family: ErrorFamily::Failure };
    let knowledge = known(&[("sick", 10)]);
    let constraints = Constraints { max_latency: Some(Duration::from_secs(1)), ..Constraints::default() };
    let request = request(Objective::Fastest, constraints);
    let decision = choose(&request, &[sick, place("a", 1)], &knowledge, 0.5, Moment::START);
    assert_eq!(names(&decision), "a sick");
}

proptest! {
    /// Every candidate is either ranked or excluded with a reason, and the ranking is by score.
    #[test]
    fn nobody_is_forgotten(
        latencies in prop::collection::vec(1_u64..100_000, 1..6), costs in prop::collection::vec(0_u64..1000, 6),
        most in 0_i64..5000, seen in any::<bool>(),
    ) {
        let names: Vec<String> = (0..latencies.len()).map(|n| format!("p{n}")).collect();
        let places: Vec<_> = names.iter().zip(&costs).map(|(name, cost)| place(name, *cost)).collect();
        let pairs: Vec<_> = names.iter().map(String::as_str).zip(latencies.iter().copied()).collect();
        let knowledge = if seen { known(&pairs) } else { Knowledge::default() };
        let constraints = Constraints { max_cost: Some(Usd::micros(most)), ..Constraints::default() };
        let decision = choose(&request(Objective::Balanced, constraints), &places, &knowledge, 0.5, Moment::START);
        prop_assert_eq!(decision.ranked.len() + decision.excluded.len(), places.len());
        prop_assert!(decision.ranked.iter().all(|ranked| ranked.score.is_finite()));
        prop_assert!(decision.ranked.iter().all(|ranked| ranked.score >= decision.ranked[0].score));
        prop_assert!(decision.excluded.iter().all(|place| !place.reasons.is_empty()));
        prop_assert!(decision.ranked.iter().all(|ranked| ranked.prediction.cost.expected <= Usd::micros(most)));
    }
}
