//! The breaker through its states, and whatever order events come in.

use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Moment {
    Moment::from_secs(seconds)
}

fn breaker() -> Breaker {
    let seconds = Duration::from_secs;
    Breaker::new(BreakerRules {
        failures: 3,
        open: seconds(10),
        longest: seconds(30),
        probes: 1,
        successes: 2,
    })
}

fn opened() -> Breaker {
    let mut breaker = breaker();
    (0..3).for_each(|_| breaker.failed(at(0)));
    breaker
}

#[test]
fn failures_in_a_row_open_it_and_a_success_between_does_not() {
    let mut breaker = breaker();
    for _ in 0..5 {
        breaker.failed(at(0));
        breaker.failed(at(0));
        breaker.succeeded();
    }
    assert_eq!(breaker.state(at(0)), BreakerState::Closed);
    assert_eq!(opened().state(at(4)), BreakerState::Open { retry_in: Duration::from_secs(6) });
    assert!(!opened().begin(at(4)));
}

#[test]
fn after_a_while_few_may_try_and_their_success_closes_it() {
    let mut breaker = opened();
    assert!(breaker.begin(at(10)));
    assert!(!breaker.begin(at(10)), "one probe at a time");
    breaker.succeeded();
    assert!(breaker.begin(at(11)));
    breaker.succeeded();
    assert_eq!(breaker.state(at(11)), BreakerState::Closed);
}

#[test]
fn a_probe_that_fails_opens_it_for_longer_but_not_for_ever() {
    let mut breaker = opened();
    let mut now = 0;
    let mut spans = Vec::new();
    for _ in 0..4 {
        let BreakerState::Open { retry_in } = breaker.state(at(now)) else { panic!("not open") };
        spans.push(retry_in.as_secs());
        now += retry_in.as_secs();
        assert!(breaker.begin(at(now)));
        breaker.failed(at(now));
    }
    assert_eq!(spans, [10, 20, 30, 30]);
}

#[test]
fn a_probe_that_never_reports_is_given_up() {
    let mut breaker = opened();
    assert!(breaker.begin(at(10)));
    assert_eq!(breaker.state(at(15)), BreakerState::HalfOpen { free: 0 });
    assert!(breaker.begin(at(21)));
    breaker.abandoned();
    assert_eq!(breaker.state(at(21)), BreakerState::HalfOpen { free: 1 });
}

#[test]
fn families_are_apart_and_the_worst_counts() {
    let mut breakers = Breakers::default();
    breakers.failed("a", ErrorFamily::Failure, at(0));
    assert_eq!(breakers.health("a", at(0)), Health::Up);
    breakers.failed("a", ErrorFamily::Billing, at(0));
    let retry_in = Duration::from_secs(60);
    assert_eq!(breakers.health("a", at(0)), Health::Open { family: ErrorFamily::Billing, retry_in });
    assert_eq!(breakers.health("b", at(0)), Health::Up);
    assert!(!breakers.begin("a", at(0)) && breakers.begin("b", at(0)));
    assert_eq!(breakers.health("a", at(60)), Health::Probing { family: ErrorFamily::Billing });
    assert!(breakers.begin("a", at(60)));
    assert!(!breakers.health("a", at(60)).may_be_asked());
    breakers.succeeded("a");
    assert!(breakers.begin("a", at(61)));
    breakers.succeeded("a");
    assert_eq!(breakers.health("a", at(61)), Health::Up);
}

proptest! {
    /// Whatever happens, it can be tried again within its longest time, and no more at once than its probes.
    #[test]
    fn it_always_comes_back(events in prop::collection::vec((0_u8..4, 0_u64..40), 0..200)) {
        let mut breaker = breaker();
        let mut now = 0;
        for (event, wait) in events {
            now += wait;
            match event {
                0 => drop(breaker.begin(at(now))),
                1 => breaker.succeeded(),
                2 => breaker.failed(at(now)),
                _ => breaker.abandoned(),
            }
            if let BreakerState::HalfOpen { free } = breaker.state(at(now)) {
                prop_assert!(free <= 1);
            }
            let mut later = breaker.clone();
            prop_assert!(later.begin(at(now + 31)), "{breaker:?}");
        }
    }
}
