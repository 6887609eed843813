//! Runs that reach a limit, by every way there is to reach it.

use std::time::Duration;

use super::{CASE, Case, check_all};
use crate::support::{self, Who};

const SOON: Duration = Duration::from_secs(45);

/// A memory limit that the kernel had to enforce.
const OUT_OF_MEMORY: Case = Case {
    flags: &["--memory", "64M", "--timeout", "5m"],
    language: "python",
    status: "memory",
    exit_code: None,
    signal: Some(9),
    cli: 137,
    ..CASE
};

/// Children in the states that a signal does not end by itself, left behind by a program that ends well.
const PARKED: &str = r#"
#include <signal.h>
#include <sys/ptrace.h>
#include <unistd.h>
int main() {
    if (fork() == 0) { raise(SIGSTOP); pause(); }
    if (fork() == 0) { ptrace(PTRACE_TRACEME, 0, 0, 0); raise(SIGSTOP); pause(); }
    if (fork() == 0) { signal(SIGTERM, SIG_IGN); if (vfork() == 0) { for (;;) pause(); } pause(); }
    usleep(100000);
    return 0;
}
"#;

const OUT_OF_TIME: Case = Case {
    flags: &["--timeout", "1s"],
    status: "timeout",
    exit_code: None,
    signal: Some(9),
    cli: 124,
    within: SOON,
    ..CASE
};

#[test]
fn wall_time_ends_everything_that_waits() {
    check_all(&[
        Case { name: "sleep", code: "sleep 60", ..OUT_OF_TIME },
        Case {
            name: "ignores signals",
            code: "trap '' TERM INT HUP; while :; do sleep 60; done",
            ..OUT_OF_TIME
        },
        Case { name: "closes its output and sleeps", code: "exec >&- 2>&-; exec sleep 60", ..OUT_OF_TIME },
        Case {
            name: "waits for input that never comes",
            language: "python",
            code: "import os; r, w = os.pipe(); os.read(r, 1)",
            ..OUT_OF_TIME
        },
        Case { name: "stops itself", code: "kill -STOP $$", ..OUT_OF_TIME },
        Case { name: "stops everything", code: "sleep 60 & kill -STOP -1; kill -STOP $$", ..OUT_OF_TIME },
    ]);
}

#[test]
fn the_end_of_the_program_is_the_end_of_the_run() {
    check_all(&[
        Case { name: "background child without streams", code: "sleep 600 >&- 2>&- &", within: SOON, ..CASE },
        Case { name: "background child with streams", code: "sleep 600 &", within: SOON, ..CASE },
        Case {
            name: "background child that keeps writing",
            code: "while :; do echo y; done & exit 0",
            within: SOON,
            ..CASE
        },
        Case {
            name: "daemon",
            code: "(setsid bash -c 'trap \"\" TERM HUP; (sleep 600 &) ; sleep 600' &) ; exit 0",
            within: SOON,
            ..CASE
        },
        Case {
            name: "kills everybody else",
            code: "sleep 600 & kill -KILL -1; exit 4",
            status: "error",
            exit_code: Some(4),
            cli: 4,
            within: SOON,
            ..CASE
        },
        Case {
            name: "children that are stopped, traced and parked in vfork",
            language: "c",
            code: PARKED,
            within: SOON,
            ..CASE
        },
        Case {
            name: "signals PID 1",
            code: "kill -KILL 1; kill -STOP 1; kill -TERM 1; exit 5",
            status: "error",
            exit_code: Some(5),
            cli: 5,
            within: SOON,
            ..CASE
        },
    ]);
}

#[test]
fn processor_time_counts_every_process() {
    let over = Case {
        flags: &["--cpu-time", "500ms", "--cpus", "2", "--timeout", "5m"],
        status: "cpu",
        exit_code: None,
        signal: Some(9),
        cli: 124,
        ..CASE
    };
    Case { name: "spins", code: "while :; do :; done", ..over }.check(Who::Root);
    Case { name: "children spin", code: "for i in 1 2 3; do (while :; do :; done) & done; wait", ..over }
        .check(Who::Root);
    Case {
        name: "sleeping costs nothing",
        code: "sleep 1",
        status: "ok",
        exit_code: Some(0),
        signal: None,
        cli: 0,
        ..over
    }
    .check(Who::Root);
}

#[test]
fn memory_is_that_of_the_whole_sandbox() {
    for case in [
        Case { name: "heap", code: "x = bytearray(200 << 20)", ..OUT_OF_MEMORY },
        Case {
            name: "shared mapping",
            code: "import mmap; m = mmap.mmap(-1, 200 << 20)\nfor i in range(0, 200 << 20, 4096): m[i] = 1",
            ..OUT_OF_MEMORY
        },
        Case {
            name: "a child, while the program sleeps",
            language: "bash",
            code: "python3 -c 'x = bytearray(200 << 20)' & sleep 600",
            ..OUT_OF_MEMORY
        },
        Case {
            name: "a child, and the program does not mind",
            language: "bash",
            code: "python3 -c 'x = bytearray(200 << 20)'; sleep 1; exit 0",
            ..OUT_OF_MEMORY
        },
        Case {
            name: "many children, each within the limit",
            language: "bash",
            code: "for i in 1 2 3 4 5 6 7 8; do python3 -c 'import time; x = bytearray(b\"x\") * (20 << 20); time.sleep(600)' & done; wait",
            ..OUT_OF_MEMORY
        },
    ] {
        case.check(Who::Root);
    }
}

/// Files lie in memory too, but have a limit of their own: what is written ends nobody.
#[test]
fn what_is_written_is_no_memory_of_programs() {
    let written = Case { language: "python", flags: OUT_OF_MEMORY.flags, ..CASE };
    for case in [
        Case {
            name: "files",
            code: "f = open('/tmp/f', 'wb')\nfor i in range(200): f.write(bytes(1 << 20))",
            ..written
        },
        Case {
            name: "shared memory that has a name",
            code: "f = open('/dev/shm/f', 'wb')\nfor i in range(200): f.write(bytes(1 << 20))",
            ..written
        },
        Case {
            name: "both, and a program that takes too much beside it",
            code: "for d in '/tmp', '/dev/shm':\n  f = open(d + '/f', 'wb')\n  for i in range(100): f.write(bytes(1 << 20))\nx = bytearray(200 << 20)",
            ..OUT_OF_MEMORY
        },
    ] {
        case.check(Who::Root);
    }
}

#[test]
fn processes_and_threads_share_a_limit() {
    let touched = Case {
        language: "python",
        flags: &["--pids", "32", "--timeout", "5m"],
        limits_hit: &["processes"],
        ..CASE
    };
    Case {
        name: "forks",
        code: "import os, time\ntry:\n  for i in range(100):\n    if os.fork() == 0: time.sleep(60); os._exit(0)\nexcept OSError: os._exit(0)\nos._exit(1)",
        ..touched
    }
    .check(Who::Root);
    Case {
        name: "threads",
        code: "import os, threading, time\ntry:\n  for i in range(100): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nexcept RuntimeError: os._exit(0)\nos._exit(1)",
        ..touched
    }
    .check(Who::Root);
    let args = ["-l", "bash", "-c", ":(){ :|:& };: ; sleep 60", "--pids", "32", "--timeout", "5s"];
    let (result, _) = support::ending(Who::Root, &args);
    assert_eq!(result["limits_hit"], serde_json::json!(["processes"]), "{result:#}");
}

#[test]
fn disk_and_inodes_are_limited_together_for_all_places() {
    let full = Case { flags: &["--disk", "16M"], limits_hit: &["disk"], ..CASE };
    let past_memory = Case { flags: &["--disk", "160M", "--memory", "64M"], ..full };
    let crowded = Case { flags: &["--inodes", "200"], limits_hit: &["inodes"], ..CASE };
    check_all(&[
        Case { name: "one file", code: "head -c 100M /dev/zero >big && exit 1; exit 0", ..full },
        Case {
            name: "more than memory",
            code: "head -c 200M /dev/zero >big && exit 1; exit 0",
            ..past_memory
        },
        Case {
            name: "many files at every place",
            code: "for i in {1..40}; do for d in /workspace /tmp /home/user /dev/shm; do head -c 1M /dev/zero 2>&- >$d/$i || exit 0; done; done; exit 1",
            ..full
        },
        Case {
            name: "many empty files",
            code: "for i in {1..400}; do : >f$i || exit 0; done; exit 1",
            ..crowded
        },
        Case {
            name: "many folders",
            code: "for i in {1..400}; do mkdir /tmp/d$i || exit 0; done; exit 1",
            ..crowded
        },
        Case {
            name: "a sparse file takes no room",
            code: "truncate -s 10G sparse && stat -c %b sparse | grep -qx 0",
            flags: &["--disk", "16M"],
            ..CASE
        },
    ]);
}

#[test]
fn open_files_are_limited_for_each_process() {
    let code = "import os\nn = 0\ntry:\n  while True: os.open('/dev/null', 0); n += 1\nexcept OSError as e: print(e.errno, n)";
    for who in Who::all() {
        let (result, _) = support::ending(who, &["-l", "python", "-c", code, "--open-files", "40"]);
        // 24 is EMFILE; the three standard streams count.
        assert_eq!(result["stdout"], "24 37\n", "{who:?}: {result:#}");
    }
}

/// What an ordinary user cannot have enforced without control groups of their own.
const NEEDS_GROUPS: [&str; 3] = ["cpus", "memory", "processes"];

#[test]
fn a_limit_that_cannot_be_enforced_is_named() {
    for who in [Who::Ranged, Who::Single] {
        if !Who::all().contains(&who) {
            continue;
        }
        let (result, cli) =
            support::ending(who, &["-l", "bash", "-c", "exit 0", "--memory", "64M", "--pids", "20"]);
        assert_eq!(cli, 0, "{result:#}");
        let missing = result["walls"]["limits"]["missing"].as_array().unwrap();
        let mut names: Vec<&str> = missing.iter().map(|limit| limit["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, NEEDS_GROUPS, "{who:?}: {result:#}");
        assert!(
            missing.iter().all(|limit| !limit["reason"].as_str().unwrap().is_empty()),
            "{who:?}: {missing:?}"
        );
        // What is left of the memory limit holds for each process by itself.
        let (result, _) =
            support::ending(who, &["-l", "python", "-c", "x = bytearray(200 << 20)", "--memory", "64M"]);
        assert_eq!(result["status"], "error", "{who:?}: {result:#}");
        let strict = support::run(who, &["run", "--strict", "-l", "bash", "-c", "echo ran"]);
        assert_eq!(strict.status.code(), Some(125), "{}", support::stderr(&strict));
        assert_eq!(support::stdout(&strict), "", "a program ran that should not have");
        let told = support::stderr(&strict);
        assert!(NEEDS_GROUPS.iter().any(|name| told.contains(name)), "{told}");
    }
    let strict = support::run(Who::Root, &["run", "--strict", "-l", "bash", "-c", "echo ran"]);
    assert_eq!(support::stdout(&strict), "ran\n", "{}", support::stderr(&strict));
}
