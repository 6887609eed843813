//! The suite for all providers against the local one, as root and as an ordinary user.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::{Place, Who, example, stderr, stdout};

/// What the local provider does not claim, whoever runs it.
const SKIPPED: [&str; 3] = [
    // Only a server has zygotes, and what it runs is written down.
    "live_fork/files_are_there_and_each_one_its_own",
    "live_fork/what_cannot_be_carried_is_refused_or_named",
    "live_fork/the_source_has_to_be_there_and_ready",
];

/// What users without control groups cannot have: nothing counts for all processes together, or stops them together.
const NOT_COUNTED: [&str; 7] = [
    "limits/cpu_time_ends_a_program",
    "limits/memory_ends_a_program",
    "limits/processes_are_counted",
    "pause/pauses_and_resumes",
    "pause/only_files_are_kept",
    "pause/programs_stand_still",
    "snapshots/a_sleeping_one_is_not_saved",
];

#[test]
fn the_local_provider_keeps_what_it_claims() {
    let judge = example("sandstorm-engine", "conformance");
    for who in Who::all() {
        let place = Place::new();
        // Open to all, so not a place for leases itself.
        let runtime = place.path().join("runtime");
        let mut command = match who {
            Who::Root => Command::new(&judge),
            Who::Ranged => as_user(&["--reuid=sandstorm-test", "--regid=sandstorm-test", "--init-groups"]),
            Who::Single => as_user(&["--reuid=65534", "--regid=65534", "--clear-groups"]),
        };
        if who != Who::Root {
            command.arg(&judge);
        }
        let output = command.arg(&runtime).output().unwrap();
        let report = stdout(&output);
        let cases = |word: &str| -> Vec<String> {
            let of = report.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
            of.map(|rest| rest.split(' ').next().unwrap_or_default().to_owned()).collect()
        };
        assert!(cases("pass").len() > 30, "{who:?}: {report}{}", stderr(&output));
        assert_eq!(cases("FAIL"), [] as [&str; 0], "{who:?}: {report}");
        let skipped = cases("skip");
        let skipped: BTreeSet<&str> = skipped.iter().map(String::as_str).collect();
        let mut expected: BTreeSet<&str> = SKIPPED.into();
        if who != Who::Root {
            expected.extend(NOT_COUNTED);
        }
        assert_eq!(skipped, expected, "{who:?}: {report}");
    }
}

fn as_user(flags: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(flags).arg("--");
    command
}
