//! From how a case ended to its outcome.

use sandstorm_provider::{EndCause, ExecEnd, ExecStatus};
use sandstorm_types::Walls;

use super::Outcome;
use super::cases::{Case, Expect};

/// Why a case cannot be tried with these walls, as the engine itself reports it.
pub(super) fn refusal(case: &Case, walls: &Walls) -> Option<String> {
    if let Some(limit) = case.expect.limit()
        && let Some(missing) = walls.limits.missing.iter().find(|missing| missing.name == limit)
    {
        return Some(missing.reason.clone());
    }
    let wall = case.wall?;
    walls.missing.iter().find(|missing| missing.name == wall).map(|missing| missing.reason.clone())
}

/// What came of a case that ran.
pub(super) fn judge(expect: Expect, end: &ExecEnd, said: &str) -> (Outcome, String) {
    let said = said.trim();
    let silent = if said.is_empty() { Ok(()) } else { Err(said.to_owned()) };
    let verdict = match expect {
        Expect::Silence => silent.and_then(|()| match (end.cause, end.status) {
            (EndCause::Program, ExecStatus::Code(0)) => Ok(()),
            (cause, status) => Err(format!("the script did not run to its end: {status:?} by {cause:?}")),
        }),
        Expect::EndedBy(limit) if end.cause == EndCause::Limit(limit) => Ok(()),
        Expect::EndedBy(limit) => {
            Err(format!("not ended by its {limit} limit: {:?} by {:?}", end.status, end.cause))
        }
        Expect::Touched(limit) => silent.and_then(|()| {
            let touched = end.limits_hit.contains(limit);
            if touched { Ok(()) } else { Err(format!("the {limit} limit was never reached")) }
        }),
    };
    match verdict {
        Ok(()) => (Outcome::Pass, String::new()),
        Err(reason) => (Outcome::Fail, reason),
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_provider::Usage;
    use sandstorm_types::{LimitName, LimitSet, MissingLimit, PerStream};

    use super::super::cases::CASES;
    use super::*;

    fn end(cause: EndCause, code: i32) -> ExecEnd {
        ExecEnd {
            status: ExecStatus::Code(code),
            cause,
            limits_hit: LimitSet::EMPTY,
            denied: Vec::new(),
            written: PerStream::default(),
            truncated: PerStream::default(),
            usage: Usage::default(),
        }
    }

    #[test]
    fn a_script_that_speaks_or_breaks_off_has_failed() {
        let fine = end(EndCause::Program, 0);
        assert_eq!(judge(Expect::Silence, &fine, "\n").0, Outcome::Pass);
        assert_eq!(judge(Expect::Silence, &fine, "made one\n"), (Outcome::Fail, "made one".to_owned()));
        assert_eq!(judge(Expect::Silence, &end(EndCause::Program, 2), "").0, Outcome::Fail);
        assert_eq!(judge(Expect::Silence, &end(EndCause::Limit(LimitName::Wall), 0), "").0, Outcome::Fail);
    }

    #[test]
    fn only_the_limit_on_trial_counts() {
        let expect = Expect::EndedBy(LimitName::Memory);
        assert_eq!(judge(expect, &end(EndCause::Limit(LimitName::Memory), 0), "x").0, Outcome::Pass);
        assert_eq!(judge(expect, &end(EndCause::Limit(LimitName::Wall), 0), "").0, Outcome::Fail);
        assert_eq!(judge(expect, &end(EndCause::Program, 137), "").0, Outcome::Fail);
        let touched = Expect::Touched(LimitName::Disk);
        let hit = ExecEnd { limits_hit: LimitSet::EMPTY.with(LimitName::Disk), ..end(EndCause::Program, 0) };
        assert_eq!(judge(touched, &hit, "").0, Outcome::Pass);
        assert_eq!(judge(touched, &hit, "16 MiB fit into /tmp").0, Outcome::Fail);
        assert_eq!(judge(touched, &end(EndCause::Program, 0), "").0, Outcome::Fail);
    }

    #[test]
    fn what_the_engine_reports_as_missing_is_refused() {
        let memory = CASES.iter().find(|case| case.expect == Expect::EndedBy(LimitName::Memory)).unwrap();
        let own_id = CASES.iter().find(|case| case.wall.is_some()).unwrap();
        let mut walls = Walls::default();
        assert_eq!(refusal(memory, &walls), None);
        walls.limits.missing.push(MissingLimit { name: LimitName::Memory, reason: "no group".to_owned() });
        walls.miss("uid_wall", "one id", None);
        assert_eq!(refusal(memory, &walls).as_deref(), Some("no group"));
        assert_eq!(refusal(own_id, &walls).as_deref(), Some("one id"));
    }
}
