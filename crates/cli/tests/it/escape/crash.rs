//! Core dumps: the handler that the host may have is started by the kernel, as root, outside.

use std::time::Duration;

use crate::support::{Place, Who, eventually, run, shell, skip, stderr};

const PATTERN: &str = "/proc/sys/kernel/core_pattern";

/// The host's setting, put back when dropped.
struct Pattern(Vec<u8>);

impl Drop for Pattern {
    fn drop(&mut self) {
        std::fs::write(PATTERN, &self.0).unwrap();
    }
}

#[test]
fn the_limit_of_cores_is_the_one_that_keeps_handlers_quiet() {
    for who in Who::all() {
        let limits = shell(who, "grep '^Max core file size' /proc/self/limits");
        assert_eq!(limits.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["1", "1"], "{who:?}");
        let left = shell(
            who,
            "ulimit -c unlimited 2>/dev/null; (kill -SEGV $BASHPID) 2>/dev/null; find / -xdev -name 'core*' -newer /etc/passwd 2>/dev/null; true",
        );
        assert_eq!(left, "", "{who:?}");
    }
}

/// Changes a setting of the whole machine for a moment, so it runs only where everything has to.
#[test]
fn a_crash_starts_no_handler_on_the_host() {
    if std::env::var_os("SANDSTORM_REQUIRE_ALL").is_none() || !rustix::process::geteuid().is_root() {
        return skip("the core pattern of a machine is changed only where nothing may be left out");
    }
    let place = Place::new();
    let record = place.path().join("record");
    let handler = place.write("handler", format!("#!/bin/sh\necho crash >> {}\n", record.display()));
    std::fs::set_permissions(&handler, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let _before = Pattern(std::fs::read(PATTERN).unwrap());
    std::fs::write(PATTERN, format!("|{}", handler.display())).unwrap();
    for who in Who::all() {
        let output = run(who, &["run", "-l", "bash", "-c", "kill -SEGV $$"]);
        assert_eq!(output.status.code(), Some(128 + 11), "{who:?}: {}", stderr(&output));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(!record.exists(), "a handler ran on the host");
    // The recorder does record: a crash outside starts it.
    let crash = std::process::Command::new("bash")
        .args(["-c", "ulimit -c unlimited; kill -SEGV $$"])
        .status()
        .unwrap();
    assert!(!crash.success());
    // Its silence would prove nothing if it could not speak.
    eventually("the recorder works", || record.exists());
}
