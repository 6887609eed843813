//! Code that may stand in few places only: `unsafe`, and signals by pid.

use crate::report::Report;
use crate::source::{code_only, lines_with_word};
use crate::tree::Tree;

struct Confined {
    what: &'static str,
    words: &'static [&'static str],
    homes: &'static [&'static str],
    /// Tests and examples may do it: they own the processes that they start.
    product_only: bool,
}

const CONFINED: &[Confined] = &[
    Confined { what: "unsafe code", words: &["unsafe"], homes: &["crates/sys/"], product_only: false },
    // A pid may be somebody else's by the time that the signal arrives; a pidfd
    // cannot. The agent signals pids of its own pid namespace that it has not
    // reaped yet, and those cannot be reused.
    Confined {
        what: "a signal by pid",
        words: &[
            "libc::kill",
            "kill_process",
            "kill_process_group",
            "killpg",
            "SYS_kill",
            "SYS_tkill",
            "SYS_tgkill",
        ],
        homes: &["crates/sys/", "crates/agent/src/", "crates/jail/src/seccomp/"],
        product_only: true,
    },
];

/// Programs that run inside a sandbox play the attacker and may do anything.
const PLAYED: &[&str] = &["fixtures/", "tests/escape/"];

pub(crate) fn check(tree: &Tree, report: &mut Report) {
    for (path, text) in tree.with_extension("rs") {
        if starts_with_any(path, PLAYED) {
            continue;
        }
        let code = code_only(text);
        let product = !path.contains("/tests/") && !path.contains("/examples/");
        for confined in CONFINED {
            if starts_with_any(path, confined.homes) || (confined.product_only && !product) {
                continue;
            }
            for word in confined.words {
                for line in lines_with_word(&code, word) {
                    let (what, homes) = (confined.what, confined.homes.join(", "));
                    report.error(format!("{path}:{line}: {what} ({word}) belongs in {homes}"));
                }
            }
        }
    }
}

fn starts_with_any(path: &str, folders: &[&str]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn this_repository_keeps_both_in_their_places() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut report = Report::default();
        check(&Tree::load(&root).unwrap(), &mut report);
        assert_eq!(report.errors, [] as [&str; 0]);
    }

    fn errors(path: &str, text: &str) -> Vec<String> {
        let mut report = Report::default();
        check(&Tree::of(&[(path, text)]), &mut report);
        report.errors
    }

    #[test]
    fn unsafe_outside_its_crate_is_an_error() {
        let found = errors("crates/jail/src/mount.rs", "fn f() {\n    unsafe { g() }\n}\n");
        assert_eq!(found, ["crates/jail/src/mount.rs:2: unsafe code (unsafe) belongs in crates/sys/"]);
        assert_eq!(errors("crates/system/src/lib.rs", "unsafe impl Send for X {}").len(), 1);
        assert_eq!(errors("crates/cli/tests/it/main.rs", "#[unsafe(no_mangle)]").len(), 1);
    }

    #[test]
    fn unsafe_inside_its_crate_or_in_words_is_fine() {
        assert!(errors("crates/sys/src/clone.rs", "unsafe { g() }").is_empty());
        assert!(errors("crates/jail/src/mount.rs", "// unsafe\n#![forbid(unsafe_code)]").is_empty());
        assert!(errors("fixtures/languages/rust/hello.rs", "unsafe { g() }").is_empty());
    }

    #[test]
    fn a_signal_by_pid_is_an_error_outside_the_agent() {
        let text = "rustix::process::kill_process(pid, Signal::KILL)?;";
        assert_eq!(errors("crates/engine/src/reap.rs", text).len(), 1);
        assert_eq!(errors("crates/jail/src/launcher.rs", "libc::syscall(libc::SYS_kill, pid)").len(), 1);
        assert_eq!(errors("crates/jail/src/launcher.rs", "libc::kill(pid, 9)").len(), 1);
        assert!(errors("crates/agent/src/reap.rs", text).is_empty());
        assert!(errors("crates/jail/tests/it/main.rs", text).is_empty());
        assert!(errors("crates/engine/src/reap.rs", "pidfd_send_signal(fd, Signal::KILL)?;").is_empty());
    }
}
