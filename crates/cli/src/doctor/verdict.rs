//! The first line: whether a sandbox can start here, and if not, why.

use sandstorm_types::Walls;

use super::check::{Check, Outcome};
use super::engines::{advice, chain};
use super::probe::Probe;

/// A sandbox was made, or it was not: nothing here is guessed from what the kernel claims to have.
pub(super) fn of(probe: &Probe<'_>, checks: &[Check]) -> String {
    match &probe.made {
        Ok(made) => starts(&made.walls),
        Err(e) => starts_not(&chain(e), &advice(e), checks),
    }
}

fn starts(walls: &Walls) -> String {
    let limits = walls.limits.missing.iter().map(|limit| format!("the limit {}", limit.name));
    let missing: Vec<String> = walls.missing.iter().map(|wall| wall.name.to_string()).chain(limits).collect();
    match missing.is_empty() {
        true => "sandboxes can start here, with every wall and limit".to_owned(),
        false => format!("sandboxes can start here, without {}", missing.join(", ")),
    }
}

/// `advice` is for where nothing better is known: a switch or a version of the kernel that forbids it says more.
fn starts_not(why: &str, advice: &str, checks: &[Check]) -> String {
    let culprit = checks.iter().find(|check| {
        check.outcome == Outcome::Broken && check.group == super::kernel::GROUP && check.fix.is_some()
    });
    match culprit {
        Some(Check { name, meaning, fix: Some(fix), .. }) => {
            format!("no sandbox can start here: {why} ({name}: {meaning}); {fix}")
        }
        _ => format!("no sandbox can start here: {why}; {advice}"),
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::{LimitName, MissingLimit};

    use super::*;

    #[test]
    fn an_engine_that_did_not_start_has_a_verdict() {
        let why = anyhow::anyhow!("no more processes").context("could not fork the launcher");
        let probe = Probe::failed(why.context("the launcher could not be started"));
        let verdict = of(&probe, &[]);
        let (start, cause) =
            ("no sandbox can start here: ", "could not fork the launcher: no more processes; ");
        assert!(verdict.starts_with(start) && verdict.contains(cause), "{verdict}");
        assert!(verdict.ends_with("(`ulimit -u`)"), "{verdict}");
        assert!(probe.engine().is_none() && probe.walls().is_none() && probe.ask(&["true"]).is_none());
        probe.end();
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut walls = Walls::default();
        assert_eq!(starts(&walls), "sandboxes can start here, with every wall and limit");
        walls.miss("uid_wall", "one id", None);
        walls.limits.missing.push(MissingLimit { name: LimitName::Memory, reason: "no group".to_owned() });
        assert_eq!(starts(&walls), "sandboxes can start here, without uid_wall, the limit memory");
    }

    #[test]
    fn the_kernels_own_reason_comes_before_general_advice() {
        let group = super::super::kernel::GROUP;
        let checks = [
            Check::missing(group, "landlock", "not there", "boot another"),
            Check::broken(group, "net namespace", "not there", None),
            Check::broken("users", "ids of sandboxes", "not mapped", Some("map them".to_owned())),
        ];
        assert_eq!(starts_not("why", "advice", &checks), "no sandbox can start here: why; advice");
        let old = Check::broken(group, "version", "5.10 is too old", Some("boot Linux 5.15".to_owned()));
        assert_eq!(
            starts_not("why", "advice", &[checks[0].clone(), old]),
            "no sandbox can start here: why (version: 5.10 is too old); boot Linux 5.15"
        );
    }
}
