//! What a program starts ends with the run, and only the program itself decides when that is.

use std::time::{Duration, Instant};

use super::{find_process, unique};
use crate::support::{PATIENCE, Who, run, stderr, stdout};

/// Ways to survive one's parent. `WORD` becomes the name of what should be gone.
const WAYS: [(&str, &str); 8] = [
    ("in the background", "bash -c 'exec -a WORD sleep 600' &"),
    ("in a session of its own", "setsid -f bash -c 'exec -a WORD sleep 600'"),
    ("forked twice", "( ( setsid bash -c 'exec -a WORD sleep 600' & ) & )"),
    ("deaf to signals", "setsid -f bash -c 'trap \"\" TERM HUP INT QUIT; exec -a WORD sleep 600'"),
    ("holding the output", "nohup bash -c 'exec -a WORD sleep 600' & disown"),
    ("stopped", "setsid -f bash -c '(sleep 0.05; kill -STOP $$) & exec -a WORD sleep 600'"),
    (
        "parked in vfork",
        "setsid -f python3 -c 'import subprocess; subprocess.run([\"WORD\", \"600\"], executable=\"/bin/sleep\")'",
    ),
    (
        "forking all the time",
        "setsid -f bash -c 'while :; do bash -c \"exec -a WORD sleep 0.2\" & sleep 0.01; done'",
    ),
];

#[test]
fn descendants_end_with_the_run() {
    for who in Who::all() {
        for (way, script) in WAYS {
            let word = unique();
            let script = script.replace("WORD", &word);
            let wait = format!(
                "{script}\nfor i in $(seq 2000); do grep -qs {word} /proc/[0-9]*/cmdline && break; sleep 0.01; done; echo over"
            );
            let start = Instant::now();
            let output = run(who, &["run", "--timeout", "5m", "-l", "bash", "-c", &wait]);
            assert_eq!(stdout(&output), "over\n", "{way} as {who:?}: {}", stderr(&output));
            assert!(start.elapsed() < PATIENCE, "{way} as {who:?} kept the run from ending");
            assert_eq!(find_process(&word), None, "{way} as {who:?}");
        }
    }
}

#[test]
fn the_run_ends_with_its_program_and_not_with_its_output() {
    for who in Who::all() {
        let start = Instant::now();
        let output = run(who, &["run", "-l", "bash", "-c", "sleep 600 >&- 2>&- & echo a"]);
        assert_eq!((stdout(&output).as_str(), output.status.code()), ("a\n", Some(0)), "{who:?}");
        // The child keeps our output open; the end must not wait for it.
        let output = run(who, &["run", "-l", "bash", "-c", "sleep 600 & echo b"]);
        assert_eq!((stdout(&output).as_str(), output.status.code()), ("b\n", Some(0)), "{who:?}");
        assert!(start.elapsed() < PATIENCE, "{who:?}: a background process kept the run from ending");
        let start = Instant::now();
        let output = run(who, &["run", "--timeout", "1s", "-l", "bash", "-c", "exec >&- 2>&-; sleep 600"]);
        assert_eq!(output.status.code(), Some(124), "{who:?}");
        assert!(start.elapsed() >= Duration::from_secs(1), "{who:?}: closed output ended the run early");
    }
}

/// The limits of PID 1 are not the program's to change, even where both have one user id.
#[test]
fn the_limits_of_pid_one_are_its_own() {
    let code = "import resource\n\
                try:\n    resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0)); print('changed')\n\
                except PermissionError: print('refused')\n\
                print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n";
    for who in Who::all() {
        let result = crate::support::result(who, &["-l", "python", "-c", code]);
        assert_eq!(result["stdout"], "refused\n1024\n", "{who:?}: {result:#}");
    }
}
