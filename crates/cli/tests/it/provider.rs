//! The suite for all providers against the local one, as root and as an ordinary user.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::{Place, Who, example, stderr, stdout};

/// What the local provider does not claim, whoever runs it.
const SKIPPED: [&str; 4] = [
    "pause/pauses_and_resumes",
    "pause/programs_stand_still",
    "snapshots/files_come_back_as_they_were",
    "snapshots/unknown_ones_are_not_found",
];

/// What it claims and does not keep yet. The test fails when one of these holds, so that the list only shrinks.
const OPEN: [&str; 5] = [
    "exec_stdin/no_input_is_an_end",
    "exec_stdin/a_signal_closes_input",
    "signals/each_signal_is_told_by_its_number",
    "files/the_wrong_kind_is_told",
    "network/a_closed_port_is_refused",
];

/// The same for users without control groups: these limits are claimed and not enforced.
const OPEN_WITHOUT_GROUPS: [&str; 3] =
    ["limits/cpu_time_ends_a_program", "limits/memory_ends_a_program", "limits/processes_are_counted"];

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
        let mut open: BTreeSet<&str> = OPEN.into();
        if who != Who::Root {
            open.extend(OPEN_WITHOUT_GROUPS);
        }
        let failed = cases("FAIL");
        let failed: BTreeSet<&str> = failed.iter().map(String::as_str).collect();
        assert_eq!(failed, open, "{who:?}: {report}");
        assert_eq!(cases("skip"), SKIPPED, "{who:?}: {report}");
    }
}

fn as_user(flags: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(flags).arg("--");
    command
}
