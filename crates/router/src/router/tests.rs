//! The parts together.

use std::sync::Arc;

use sandstorm_catalog::Catalog;
use sandstorm_types::{Capabilities, ErrorKind, Retry};

use super::*;
use crate::failover::Started;
use crate::{Objective, WorkloadClass};

fn places(names: &[&str]) -> Vec<Candidate> {
    let entry = Arc::new(Catalog::embedded().get("e2b").unwrap().clone());
    let place = |name: &&str| Candidate::new(*name, Capabilities::default(), Arc::clone(&entry));
    names.iter().map(place).collect()
}

fn key(provider: &str) -> ArmKey {
    ArmKey { provider: provider.into(), region: None, class: WorkloadClass::default() }
}

fn ready(ms: u64) -> Observed {
    Observed::Ready { after: Duration::from_millis(ms) }
}

fn failed(family: ErrorFamily) -> Observed {
    Observed::Failed { family, after: None, retry_after: None }
}

fn fastest() -> RouteRequest {
    RouteRequest { objective: Objective::Fastest, ..RouteRequest::default() }
}

fn at(seconds: u64) -> Moment {
    Moment::from_secs(seconds)
}

fn first(router: &mut Router, places: &[Candidate], seconds: u64) -> Option<String> {
    router.decide(&fastest(), places, at(seconds)).winner().map(|winner| winner.provider.clone())
}

#[test]
fn it_goes_to_the_faster_one_until_that_fails() {
    let mut router = Router::new(Settings::default(), 1);
    let places = places(&["a", "b"]);
    for n in 0..20 {
        router.attempt_observed(&key("a"), ready(100), at(n));
        router.attempt_observed(&key("b"), ready(300), at(n));
    }
    assert_eq!(first(&mut router, &places, 20).as_deref(), Some("a"));
    (0..3).for_each(|_| router.attempt_observed(&key("a"), failed(ErrorFamily::Failure), at(20)));
    let decision = router.decide(&fastest(), &places, at(20));
    assert_eq!(decision.winner().unwrap().provider, "b");
    assert!(decision.excluded[0].why[0].starts_with("it failed too often by failure"), "{decision:?}");
}

#[test]
fn all_down_is_said_with_each_reason() {
    let mut router = Router::new(Settings::default(), 1);
    let places = places(&["a", "b"]);
    router.attempt_observed(&key("a"), failed(ErrorFamily::Billing), at(0));
    let busy = Observed::Failed {
        family: ErrorFamily::Capacity,
        after: None,
        retry_after: Some(Duration::from_secs(30)),
    };
    router.attempt_observed(&key("b"), busy, at(0));
    let decision = router.decide(&fastest(), &places, at(0));
    assert!(decision.ranked.is_empty() && decision.may_work_later());
    assert_eq!(decision.excluded[0].why, ["it failed too often by billing, and is tried again in 1m"]);
    assert_eq!(decision.excluded[1].why, ["it asked not to be asked for another 30s"]);
}

#[test]
fn a_clock_that_jumps_back_holds_nobody_for_longer() {
    let mut router = Router::new(Settings::default(), 1);
    let places = places(&["a"]);
    router.decide(&fastest(), &places, at(1_000_000));
    router.attempt_observed(&key("a"), failed(ErrorFamily::Quota), at(1_000_000));
    assert_eq!(first(&mut router, &places, 1_000_000), None);
    assert_eq!(first(&mut router, &places, 5), None);
    assert_eq!(first(&mut router, &places, 16).as_deref(), Some("a"));
}

#[test]
fn without_probes_a_request_finds_out_who_has_recovered() {
    let quiet = CanaryRules { most: 0.0, ..CanaryRules::default() };
    for (canaries, expected) in [(CanaryRules::default(), "b"), (quiet, "a")] {
        let mut router = Router::new(Settings { canaries, ..Settings::default() }, 1);
        let places = places(&["a", "b"]);
        for n in 0..60 {
            router.attempt_observed(&key("a"), ready(100), at(n));
            router.attempt_observed(&key("b"), ready(2000), at(n));
        }
        (0..3).for_each(|_| router.attempt_observed(&key("a"), failed(ErrorFamily::Failure), at(60)));
        assert_eq!(first(&mut router, &places, 61).as_deref(), Some("b"));
        assert_eq!(first(&mut router, &places, 3600).as_deref(), Some(expected));
    }
}

#[test]
fn sitting_out_does_not_leave_a_request_without_a_place() {
    let mut router = Router::new(Settings::default(), 1);
    for n in 0..12 {
        router.attempt_observed(&key("good"), ready(100), at(n));
        router.attempt_observed(&key("fine"), ready(100), at(n));
        let half = if n % 2 == 0 { ready(100) } else { failed(ErrorFamily::Failure) };
        router.attempt_observed(&key("half"), half, at(n));
    }
    assert!(matches!(router.health("half", at(12)), Health::Ejected { .. }));
    let both = router.decide(&fastest(), &places(&["half", "good"]), at(12));
    assert_eq!((both.ranked.len(), both.excluded.len()), (1, 1));
    assert_eq!(first(&mut router, &places(&["half"]), 12).as_deref(), Some("half"));
}

#[test]
fn a_full_place_is_left_alone_and_its_limit_learned() {
    let mut router = Router::new(Settings::default(), 1);
    let places = places(&["a"]);
    for _ in 0..10 {
        assert!(router.attempt_begins("a", at(0)));
    }
    router.attempt_observed(&key("a"), failed(ErrorFamily::Capacity), at(0));
    let decision = router.decide(&fastest(), &places, at(0));
    assert_eq!(decision.excluded[0].why, ["it has 10 sandboxes, and may have 7"]);
    (0..4).for_each(|_| router.attempt_ends("a"));
    assert_eq!(first(&mut router, &places, 0).as_deref(), Some("a"));
}

#[test]
fn the_whole_way_of_a_request_that_fails_over() {
    let mut router = Router::new(Settings::default(), 1);
    let places = places(&["a", "b"]);
    let decision = router.decide(&fastest(), &places, at(0));
    router.request_begins(&decision);
    assert!(router.attempt_begins("a", at(0)));
    router.attempt_observed(&key("a"), failed(ErrorFamily::Failure), at(3));
    router.attempt_ends("a");
    let failure = FailedAttempt {
        kind: ErrorKind::Provider,
        family: None,
        retry: Retry::Elsewhere,
        started: Started::Never,
        retry_after: None,
    };
    let so_far = SoFar { attempts: 1, attempts_here: 1, places_left: 1, time_left: None };
    assert_eq!(router.next(&failure, &AttemptRules::default(), so_far, at(3)), Next::Elsewhere);
    assert!(router.attempt_begins(&decision.ranked[1].provider, at(3)));
    router.attempt_observed(&key("b"), ready(200), at(4));
    router.attempt_ends("b");
    router.request_ended(&decision, 3200.0, Usd::micros(9));
    assert!(router.regret().mean_latency_ms() > 1000.0);
    let settings = serde_json::to_string(&Settings::default()).unwrap();
    assert_eq!(serde_json::from_str::<Settings>(&settings).unwrap(), Settings::default());
}
