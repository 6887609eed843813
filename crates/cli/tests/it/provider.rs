//! The suite for all providers against the local one, as root and as an ordinary user.

use std::process::Command;

use crate::support::{Place, Who, example, stderr, stdout};

/// What the local provider does not claim, whoever runs it.
const SKIPPED: [&str; 4] = [
    "pause/pauses_and_resumes",
    "pause/programs_stand_still",
    "snapshots/files_come_back_as_they_were",
    "snapshots/unknown_ones_are_not_found",
];

#[test]
fn the_local_provider_passes_the_suite() {
    let judge = example("sandstorm-engine", "conformance");
    for who in Who::all() {
        let place = Place::new();
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
        assert_eq!(cases("FAIL"), Vec::<String>::new(), "{who:?}: {report}");
        // Without groups, nothing limits the whole sandbox; everything else is claimed and so has to hold.
        let skipped: Vec<String> =
            cases("skip").into_iter().filter(|case| !case.starts_with("limits/")).collect();
        assert_eq!(skipped, SKIPPED, "{who:?}: {report}");
        assert!(who != Who::Root || !report.contains("skip limits/"), "{who:?}: {report}");
        assert!(output.status.success(), "{who:?}: {}", stderr(&output));
    }
}

fn as_user(flags: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args(flags).arg("--");
    command
}
