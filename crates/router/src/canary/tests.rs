//! Whom the planner probes, and when it stops.

use std::collections::BTreeMap;
use std::sync::Arc;

use sandstorm_catalog::Catalog;
use sandstorm_types::Capabilities;

use super::*;
use crate::failover::ErrorFamily;
use crate::{Objective, Outcome, OutcomeResult};

fn place(name: &str, like: &str) -> Candidate {
    let entry = Catalog::embedded().get(like).unwrap().clone();
    Candidate::new(name, Capabilities::default(), Arc::new(entry))
}

fn fastest() -> RouteRequest {
    RouteRequest { objective: Objective::Fastest, ..RouteRequest::default() }
}

fn see(knowledge: &mut Knowledge, name: &str, ms: u64, times: usize, now: Moment) {
    let key = place(name, "local").key(&Default::default());
    let result = OutcomeResult::Ready { after: Duration::from_millis(ms) };
    (0..times).for_each(|_| knowledge.observe(&Outcome { key: key.clone(), result }, now));
}

fn plans(
    places: &[Candidate],
    knowledge: &Knowledge,
    rules: CanaryRules,
    times: u64,
) -> BTreeMap<String, u32> {
    let (mut budget, mut random) = (CanaryBudget::new(rules), Random::new(1));
    let mut counts = BTreeMap::new();
    for minute in 0..times {
        let now = Moment::from_secs(60 * minute);
        if let Some(probe) = plan(&fastest(), places, knowledge, &mut budget, &mut random, now) {
            *counts.entry(probe.provider).or_default() += 1;
        }
    }
    counts
}

const PLENTY: CanaryRules = CanaryRules {
    per_request: 0.0,
    per_hour: 60.0,
    most: 1000.0,
    spend_permille: 0,
    usd_per_day: Usd::dollars(100),
    usd_most: Usd::dollars(100),
};

#[test]
fn what_may_be_better_is_probed_and_the_surely_worse_is_not() {
    let mut knowledge = Knowledge::default();
    see(&mut knowledge, "first", 100, 50, Moment::START);
    see(&mut knowledge, "slow", 5000, 50, Moment::START);
    see(&mut knowledge, "close", 110, 5, Moment::START);
    let places = ["first", "slow", "close"].map(|name| place(name, "local"));
    let counts = plans(&places, &knowledge, PLENTY, 60);
    assert_eq!(counts.get("first"), None, "users go there anyway");
    assert_eq!(counts.get("slow"), None);
    assert!(counts["close"] > 5, "{counts:?}");
}

#[test]
fn what_was_never_seen_is_asked_once_however_good_the_first_one_is() {
    let mut knowledge = Knowledge::default();
    see(&mut knowledge, "first", 1, 1000, Moment::START);
    let places = ["first", "new"].map(|name| place(name, "local"));
    let (mut budget, mut random) = (CanaryBudget::new(PLENTY), Random::new(1));
    let mut planned =
        |knowledge: &Knowledge| plan(&fastest(), &places, knowledge, &mut budget, &mut random, Moment::START);
    let probe = planned(&knowledge).unwrap();
    assert_eq!((probe.provider.as_str(), probe.why), ("new", ProbeReason::NeverSeen));
    see(&mut knowledge, "new", 5000, 1, Moment::START);
    assert_eq!(planned(&knowledge), None);
    // What it costs still counts.
    let places = [place("first", "local"), place("dear", "e2b")];
    assert!(
        plans(&places, &knowledge, CanaryRules { usd_most: Usd::ZERO, usd_per_day: Usd::ZERO, ..PLENTY }, 60)
            .is_empty()
    );
}

#[test]
fn number_and_money_are_limits() {
    let places = ["a", "b", "c"].map(|name| place(name, "e2b"));
    let few = CanaryRules { per_hour: 2.0, most: 3.0, ..PLENTY };
    let total = |rules, times| plans(&places, &Knowledge::default(), rules, times).values().sum::<u32>();
    assert_eq!(total(few, 3 * 60 + 5), 3 + 6);
    assert_eq!(total(CanaryRules { most: 0.0, ..PLENTY }, 60), 0);
    // One probe is about 2.3 s of 1 CPU and 512 MiB: 0.000037 USD.
    let poor = CanaryRules { usd_per_day: Usd::ZERO, usd_most: Usd::micros(120), ..PLENTY };
    assert_eq!(total(poor, 30), 3);
    let mut budget = CanaryBudget::new(CanaryRules { spend_permille: 10, ..poor });
    budget.spend(Usd::micros(100));
    budget.pay_in(Usd::micros(5000));
    assert_eq!(budget.money, Usd::micros(70));
}

#[test]
fn who_may_have_recovered_is_asked_if_that_is_worth_it() {
    let mut knowledge = Knowledge::default();
    see(&mut knowledge, "first", 300, 50, Moment::START);
    see(&mut knowledge, "quick", 100, 50, Moment::START);
    see(&mut knowledge, "slow", 5000, 50, Moment::START);
    let sick = |name: &str| Candidate {
        health: Health::Probing { family: ErrorFamily::Failure },
        ..place(name, "local")
    };
    let held =
        Candidate { health: Health::Held { retry_in: Duration::from_secs(9) }, ..place("held", "local") };
    let places = [held, sick("quick"), sick("slow"), place("first", "local")];
    let (mut budget, mut random) = (CanaryBudget::new(PLENTY), Random::new(1));
    let probe = plan(&fastest(), &places, &knowledge, &mut budget, &mut random, Moment::START).unwrap();
    assert_eq!((probe.provider.as_str(), probe.why), ("quick", ProbeReason::Recovery));
    let counts = plans(&places, &knowledge, PLENTY, 60);
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["quick"]);
    let unpriced = [place("morph", "morph")];
    let probe = plan(&fastest(), &unpriced, &Knowledge::default(), &mut budget, &mut random, Moment::START);
    assert_eq!(probe, None);
}
