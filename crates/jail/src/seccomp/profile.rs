//! Which profile answers what: the three columns of the table in [`groups`].

mod arguments;
mod groups;

use std::collections::HashMap;
use std::fmt::Write as _;

use super::rule::{Action, Rule};
use super::syscalls::Arch;
pub(super) use groups::GROUPS;
use groups::Group;

pub(super) const ALLOW: Rule = Rule::Always(Action::Allow);
pub(super) const EPERM: Rule = Rule::Always(Action::Errno(1));
pub(super) const EINVAL: Rule = Rule::Always(Action::Errno(22));
pub(super) const ENOSYS: Rule = Rule::Always(Action::Errno(38));
pub(super) const KILL: Rule = Rule::Always(Action::KillProcess);
/// A known call that no group names; a test keeps that set empty.
pub(super) const UNNAMED: Rule = EPERM;

/// Whom a filter is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Code that the sandbox's user brought.
    Payload,
    /// The same without covert channels between sandboxes that share files.
    PayloadStrict,
    /// Our PID 1 and, by inheritance, everything below it.
    Agent,
}

impl Profile {
    pub const ALL: [Profile; 3] = [Profile::Payload, Profile::PayloadStrict, Profile::Agent];

    pub const fn name(self) -> &'static str {
        match self {
            Profile::Payload => "payload",
            Profile::PayloadStrict => "payload-strict",
            Profile::Agent => "agent",
        }
    }

    /// What the filter of this profile answers to a call, read from the table and not from the compiled program.
    pub fn decide(self, arch: Arch, audit: u32, number: u32, arguments: &[u64; 6]) -> Action {
        if audit != arch.audit() {
            return Action::KillProcess;
        }
        let rule = arch.syscall_name(number).map_or(ENOSYS, |name| self.rule(name));
        rule.decide(arguments)
    }

    /// The table for one architecture as text, a line per call: what a reviewer reads and the golden files hold.
    pub fn describe(self, arch: Arch) -> String {
        let mut text = String::new();
        for (name, _) in arch.syscalls() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} {}", self.rule(name));
        }
        let _ = writeln!(text, "other-numbers {ENOSYS}\nother-architectures {KILL}");
        text
    }

    /// The rule of a known call.
    pub(super) fn rule(self, name: &str) -> Rule {
        let group = GROUPS.iter().find(|group| group.calls.split_ascii_whitespace().any(|call| call == name));
        group.map_or(UNNAMED, |group| self.column(group))
    }

    /// All rules by the name of their call.
    pub(super) fn rules(self) -> HashMap<&'static str, Rule> {
        let calls = GROUPS.iter().flat_map(|group| {
            group.calls.split_ascii_whitespace().map(move |call| (call, self.column(group)))
        });
        calls.collect()
    }

    fn column(self, group: &Group) -> Rule {
        match self {
            Profile::Payload => group.payload,
            Profile::PayloadStrict => group.strict,
            Profile::Agent => group.agent,
        }
    }
}
