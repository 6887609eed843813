//! Every way on from a failed attempt.

use proptest::prelude::*;

use super::*;
use crate::failover::RetryBudgetRules;

const FAILED: FailedAttempt = FailedAttempt {
    kind: ErrorKind::Provider,
    family: None,
    retry: Retry::Elsewhere,
    started: Started::Never,
    retry_after: None,
};
const SO_FAR: SoFar = SoFar { attempts: 1, attempts_here: 1, places_left: 3, time_left: None };

fn next(failed: FailedAttempt, rules: AttemptRules, so_far: SoFar) -> Next {
    let mut budget = RetryBudget::new(RetryBudgetRules::default());
    failed.next(&rules, so_far, &mut budget, Moment::START)
}

fn gives_up(why: GiveUp) -> Next {
    Next::GiveUp { why }
}

#[test]
fn what_never_started_goes_elsewhere() {
    assert_eq!(next(FAILED, AttemptRules::default(), SO_FAR), Next::Elsewhere);
}

#[test]
fn what_may_have_run_runs_again_only_if_that_does_no_harm() {
    let failed = FailedAttempt { started: Started::Perhaps, ..FAILED };
    assert_eq!(next(failed, AttemptRules::default(), SO_FAR), gives_up(GiveUp::MayHaveRun));
    let idempotent = AttemptRules { idempotent: true, ..AttemptRules::default() };
    assert_eq!(next(failed, idempotent, SO_FAR), Next::Elsewhere);
}

#[test]
fn here_after_a_pause_unless_that_is_long_or_was_tried() {
    let here = FailedAttempt { retry: Retry::Here, ..FAILED };
    let rules = AttemptRules::default();
    assert_eq!(next(here, rules, SO_FAR), Next::Here { after: PAUSE });
    let asked = FailedAttempt { retry_after: Some(Duration::from_secs(20)), ..here };
    assert_eq!(next(asked, rules, SO_FAR), Next::Elsewhere);
    let alone = SoFar { places_left: 0, ..SO_FAR };
    assert_eq!(next(asked, rules, alone), Next::Here { after: Duration::from_secs(20) });
    let hurried = SoFar { time_left: Some(Duration::from_secs(5)), ..alone };
    assert_eq!(next(asked, rules, hurried), gives_up(GiveUp::NoTime));
    assert_eq!(next(here, rules, SoFar { attempts_here: 2, ..alone }), gives_up(GiveUp::NowhereLeft));
    assert_eq!(next(here, rules, SoFar { attempts_here: 2, ..SO_FAR }), Next::Elsewhere);
}

#[test]
fn there_is_an_end() {
    let rules = AttemptRules::default();
    let never = FailedAttempt { retry: Retry::Never, ..FAILED };
    assert_eq!(next(never, rules, SO_FAR), gives_up(GiveUp::Pointless));
    assert_eq!(next(FAILED, rules, SoFar { attempts: 4, ..SO_FAR }), gives_up(GiveUp::TooMany));
    assert_eq!(next(FAILED, rules, SoFar { places_left: 0, ..SO_FAR }), gives_up(GiveUp::NowhereLeft));
    let late = SoFar { time_left: Some(Duration::ZERO), ..SO_FAR };
    assert_eq!(next(FAILED, rules, late), gives_up(GiveUp::NoTime));
    let mut empty = RetryBudget::new(RetryBudgetRules { per_request: 0.0, per_second: 0.0, most: 0.0 });
    assert_eq!(FAILED.next(&rules, SO_FAR, &mut empty, Moment::START), gives_up(GiveUp::NoBudget));
}

#[test]
fn families_are_told_apart() {
    let of = |kind| FailedAttempt { kind, ..FAILED }.family();
    assert_eq!(of(ErrorKind::Forbidden), Some(ErrorFamily::Auth));
    assert_eq!(of(ErrorKind::Quota), Some(ErrorFamily::Quota));
    assert_eq!(of(ErrorKind::Capacity), Some(ErrorFamily::Capacity));
    assert_eq!(of(ErrorKind::InvalidRequest), None);
    let unpaid = FailedAttempt { family: Some(ErrorFamily::Billing), ..FAILED };
    assert_eq!(unpaid.family(), Some(ErrorFamily::Billing));
}

proptest! {
    #[test]
    fn nothing_runs_twice_unless_it_may(
        perhaps in any::<bool>(), idempotent in any::<bool>(), here in any::<bool>(),
        attempts in 1_u32..6, places_left in 0_usize..3,
    ) {
        let started = if perhaps { Started::Perhaps } else { Started::Never };
        let retry = if here { Retry::Here } else { Retry::Elsewhere };
        let rules = AttemptRules { idempotent, ..AttemptRules::default() };
        let so_far = SoFar { attempts, attempts_here: 1, places_left, time_left: None };
        let again = !matches!(next(FailedAttempt { started, retry, ..FAILED }, rules, so_far), Next::GiveUp { .. });
        prop_assert!(!again || !perhaps || idempotent);
        prop_assert!(!again || attempts < rules.most);
    }
}
