//! What is believed after what was seen.

use super::*;

fn key(class: &str) -> ArmKey {
    ArmKey { provider: "a".into(), region: None, class: WorkloadClass::new(class) }
}

fn ready(class: &str, ms: u64) -> Outcome {
    Outcome { key: key(class), result: OutcomeResult::Ready { after: Duration::from_millis(ms) } }
}

fn failed(class: &str) -> Outcome {
    Outcome { key: key(class), result: OutcomeResult::Failed { after: None } }
}

fn minute(minute: u64) -> Moment {
    Moment::from_secs(60 * minute)
}

#[test]
fn nothing_seen_is_the_prior_and_more_is_more_certain() {
    let mut knowledge = Knowledge::default();
    assert_eq!(knowledge.belief(&key("x"), minute(0)), Belief::prior());
    let mut last = Belief::prior();
    for (seen, at) in [(1, 1), (10, 11), (40, 51)] {
        (0..seen).for_each(|n| knowledge.observe(&ready("x", 95 + n % 10), minute(at)));
        let belief = knowledge.belief(&key("x"), minute(at));
        assert!(belief.deviation < last.deviation && belief.failure() < last.failure(), "{belief:?}");
        last = belief;
    }
    assert!((last.p50_ms / 100.0 - 1.0).abs() < 0.1, "{last:?}");
}

#[test]
fn time_takes_certainty_away_but_not_the_median() {
    let mut knowledge = Knowledge::default();
    (0..50).for_each(|_| knowledge.observe(&ready("x", 100), minute(0)));
    let (now, later) = (knowledge.belief(&key("x"), minute(0)), knowledge.belief(&key("x"), minute(48 * 60)));
    assert!(later.deviation > 3.0 * now.deviation, "{later:?}");
    assert!(later.samples < 1.0);
    assert!((later.p50_ms / now.p50_ms - 1.0).abs() < 1e-9, "{later:?}");
    let never = knowledge.belief(&key("x"), minute(100_000 * 60));
    assert!(never.deviation < 1.1, "{never:?}");
}

#[test]
fn a_few_failures_in_a_row_are_noticed_and_forgiven() {
    let mut knowledge = Knowledge::default();
    (0..100).for_each(|n| knowledge.observe(&ready("x", 100), minute(n)));
    assert!(knowledge.belief(&key("x"), minute(100)).failure() < 0.01);
    (100..103).for_each(|n| knowledge.observe(&failed("x"), minute(n)));
    let after = knowledge.belief(&key("x"), minute(103));
    assert!(after.failure() > 0.1, "{}", after.failure());
    let later = knowledge.belief(&key("x"), minute(103 + 5 * 60));
    assert!(later.failure() < after.failure() / 2.0, "{}", later.failure());
}

#[test]
fn a_failed_attempt_takes_its_real_time_or_three_seconds() {
    let mut knowledge = Knowledge::default();
    knowledge.observe(&failed("x"), minute(0));
    assert_eq!(knowledge.belief(&key("x"), minute(0)).failure_ms, 3000.0);
    let mut knowledge = Knowledge::default();
    let result = OutcomeResult::Failed { after: Some(Duration::from_millis(200)) };
    knowledge.observe(&Outcome { key: key("x"), result }, minute(0));
    let belief = knowledge.belief(&key("x"), minute(0));
    assert_eq!(belief.failure_ms, 200.0);
    let typical = (belief.p50_ms * belief.mean_ms).sqrt();
    let expected = (1.0 - belief.failure()) * typical + belief.failure() * 500.0;
    assert!((belief.effective_ms(0.0, 300.0) - expected).abs() < 1e-9);
}

#[test]
fn a_class_begins_with_what_the_others_have_shown() {
    let mut knowledge = Knowledge::default();
    (0..50).for_each(|_| knowledge.observe(&ready("x", 100), minute(0)));
    let unseen = knowledge.belief(&key("y"), minute(0));
    assert!((unseen.p50_ms / 100.0 - 1.0).abs() < 0.1, "{unseen:?}");
    (0..20).for_each(|_| knowledge.observe(&ready("y", 1000), minute(0)));
    let (x, y) = (knowledge.belief(&key("x"), minute(0)), knowledge.belief(&key("y"), minute(0)));
    assert!(x.p50_ms < 150.0 && y.p50_ms > 700.0, "{x:?} {y:?}");
}

#[test]
fn knowledge_survives_a_restart() {
    let mut knowledge = Knowledge::default();
    (0..50).for_each(|n| knowledge.observe(&ready("x", 100 + n), minute(n)));
    knowledge.observe(&failed("y"), minute(50));
    let saved = knowledge.save();
    let load = |saved, now| Knowledge::load(Memory::default(), saved, now, |_| true);
    assert_eq!(load(saved.clone(), minute(50)).unwrap(), knowledge);
    assert!(load(serde_json::json!([{"provider": 1}]), minute(50)).is_err());
    assert!(load(saved.clone(), minute(49)).is_err(), "nobody learns in the future");
    let mut odd = saved.clone();
    odd[0]["arm"]["latency"]["sum"] = serde_json::json!(-1.0);
    assert!(load(odd, minute(50)).is_err());
    let none = Knowledge::load(Memory::default(), saved, minute(50), |_| false).unwrap();
    assert_eq!(none, Knowledge::default());
}

#[test]
fn names_of_classes_do_not_fill_the_memory() {
    let mut knowledge = Knowledge::default();
    (0..1000).for_each(|n| knowledge.observe(&ready(&n.to_string(), 100), minute(0)));
    let kept = knowledge.places.values().map(|place| place.classes.len()).sum::<usize>();
    assert_eq!(kept, MOST_CLASSES);
    assert!(knowledge.belief(&key("999"), minute(0)).samples > 30.0);
}
