//! The parts of `/proc/<pid>/status`, `stat` and `limits` that two guests have to agree on.

use super::error::Cause;
use super::process::Process;

/// What `status` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) threads: u64,
    /// Its number in the innermost pid namespace.
    pub(super) inside: i32,
    pub(super) umask: u64,
    pub(super) ignored: u64,
    pub(super) caught: u64,
    /// Capabilities and filters: lines that have to be equal.
    pub(super) walls: Vec<String>,
    /// Shadow stacks and the like, which are not carried.
    pub(super) features: bool,
}

/// Lines that say what a guest may do. User and group ids are not among them: each jail has ids of its own.
const WALLS: [&str; 8] =
    ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters"];

impl Status {
    pub(super) fn of(process: &Process) -> Result<Self, Cause> {
        let text = process.text("status", 64 << 10)?;
        Self::parse(&text).ok_or_else(|| match text.contains("\nUmask:") {
            true => Cause::refused(format!("the status of the {} cannot be read", process.who)),
            // One that ends has lost its place in the file system first.
            false => Cause::Gone(process.who),
        })
    }

    /// The name of the program is in there too, but the kernel lets no line break of it through.
    fn parse(text: &str) -> Option<Self> {
        let lines = || text.lines().filter_map(|line| line.split_once(':'));
        let value = |name| lines().find(|(key, _)| *key == name).map(|(_, value)| value.trim());
        let mask = |name| u64::from_str_radix(value(name)?, 16).ok();
        Some(Self {
            threads: value("Threads")?.parse().ok()?,
            inside: value("NSpid")?.split_ascii_whitespace().next_back()?.parse().ok()?,
            umask: u64::from_str_radix(value("Umask")?, 8).ok()?,
            ignored: mask("SigIgn")?,
            caught: mask("SigCgt")?,
            walls: lines()
                .filter(|(key, _)| WALLS.contains(key))
                .map(|(key, value)| format!("{key} {}", value.trim()))
                .collect(),
            features: value("x86_Thread_features").is_some_and(|features| !features.is_empty()),
        })
    }
}

/// Where the program, its stack, its heap and its arguments lie: the same in all forks of one process, and different
/// after an exec.
pub(super) fn birthmark(process: &Process) -> Result<Vec<u64>, Cause> {
    let text = process.text("stat", 16 << 10)?;
    birthmark_in(&text)
        .ok_or_else(|| Cause::refused(format!("the stat of the {} cannot be read", process.who)))
}

fn birthmark_in(text: &str) -> Option<Vec<u64>> {
    // The name of the program stands in brackets and may hold anything, brackets included.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split_ascii_whitespace().collect();
    const FIRST: usize = 3;
    let numbers = (26..=28).chain(45..=51);
    numbers.map(|number: usize| fields.get(number - FIRST)?.parse().ok()).collect()
}

/// The soft and hard limit of each resource, by its number.
pub(super) fn limits(process: &Process) -> Result<Vec<(u64, u64)>, Cause> {
    let text = process.text("limits", 16 << 10)?;
    limits_in(&text)
        .ok_or_else(|| Cause::refused(format!("the limits of the {} cannot be read", process.who)))
}

/// A line for each resource in the order of their numbers; a name of 25 columns, then twice 20.
fn limits_in(text: &str) -> Option<Vec<(u64, u64)>> {
    let number = |word: &str| match word {
        "unlimited" => Some(u64::MAX),
        word => word.parse().ok(),
    };
    let limit = |line: &str| {
        let mut words = line.get(25..)?.split_ascii_whitespace();
        Some((number(words.next()?)?, number(words.next()?)?))
    };
    text.lines().skip(1).map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transplant::error::Who;

    const SELF: Process = Process { who: Who::Source, pid: 0 };

    fn this() -> Process {
        Process { pid: std::process::id() as i32, ..SELF }
    }

    #[test]
    fn the_texts_of_this_kernel_are_understood() {
        let status = Status::of(&this()).unwrap();
        assert!(status.threads >= 1 && status.inside > 0 && status.walls.len() == WALLS.len());
        assert!(birthmark(&this()).unwrap().iter().all(|address| *address > 0));
        let limits = limits(&this()).unwrap();
        assert_eq!(limits.len(), 16);
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        assert_eq!(limits[7].0, files.current.unwrap_or(u64::MAX));
    }

    #[test]
    fn a_name_with_brackets_moves_no_field() {
        let fields: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let text = format!("7 (a) R 1 ) S {}", fields.join(" "));
        let expected: Vec<u64> = (26..=28).chain(45..=51).collect();
        assert_eq!(birthmark_in(&text).unwrap(), expected);
    }

    #[test]
    fn half_a_text_is_refused() {
        assert_eq!(Status::parse("Threads:\t1\n"), None);
        assert_eq!(birthmark_in("7 (a) S 1 2 3"), None);
        assert_eq!(limits_in("Limit\nMax cpu time   12\n"), None);
    }
}
