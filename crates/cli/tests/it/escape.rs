//! Attacks from inside, as whoever may start a sandbox. Each has markers around it that must show up nowhere.

mod attacks;
mod canaries;
mod crash;
mod descendants;
mod identity;
mod inodes;
mod memory;
mod propagation;
mod served;
mod terminal;
mod working_folder;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{Who, sandstorm, stderr, stdout};
use canaries::Canaries;

/// Where the programs of the attacks are.
fn attack_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/escape").join(name)
}

/// An attack in Python with what all of them share in front.
pub(crate) fn attack_code(name: &str) -> String {
    let read = |name: &str| std::fs::read_to_string(attack_file(name)).unwrap();
    read("attack.py") + &read(&format!("{name}.py"))
}

/// The command that makes an attack in a sandbox. The mark is in the environment of the binary itself.
fn attack_command(who: Who, name: &str, arguments: &[String], mark: &str) -> Command {
    let mut command = sandstorm(who);
    command
        .env("SANDSTORM_TEST_CANARY", mark)
        .args(["run", "-l", "python", "-c", &attack_code(name), "--"])
        .args(arguments);
    command
}

/// The attack ran to its end, every attempt was refused, and no marker is in what it printed.
fn held(who: Who, name: &str, output: &Output, canaries: &Canaries) {
    let printed = stdout(output);
    let verdict = printed.lines().last().unwrap_or_default();
    let shown = || format!("{name} as {who:?}: {printed}\n{}", stderr(output));
    assert!(output.status.success(), "{}", shown());
    assert!(verdict.ends_with(" attempts, 0 broken") && !verdict.starts_with("0 "), "{}", shown());
    canaries.absent_from(output, &format!("{name} as {who:?}"));
}

/// Makes an attack as everybody. What it gets as arguments depends on what was planted.
fn withstands(name: &str, arguments: impl Fn(&Canaries) -> Vec<String>) {
    for who in Who::all() {
        let canaries = Canaries::plant(who);
        let output = attack_command(who, name, &arguments(&canaries), canaries.mark()).output().unwrap();
        held(who, name, &output, &canaries);
    }
}

/// The pid, as the host counts, of the process that has this word as its name. The binary that started it has it
/// further back in its command line.
pub(crate) fn find_process(word: &str) -> Option<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).next() == Some(word.as_bytes())
    })
}

/// A word that nobody else uses.
pub(crate) fn unique() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap().trim().replace('-', "")
}
