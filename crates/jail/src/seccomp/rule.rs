//! What a filter answers: actions, and rules that choose one by the arguments of a call.

use std::fmt;

/// The kernel's answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    Allow,
    /// The call is not made and fails with this error number.
    Errno(u16),
    /// The whole process dies of `SIGSYS`, and the kernel logs it.
    KillProcess,
}

impl Action {
    /// The value that a filter returns: `SECCOMP_RET_ALLOW`, `_ERRNO` or `_KILL_PROCESS`.
    pub const fn code(self) -> u32 {
        match self {
            Action::Allow => 0x7FFF_0000,
            Action::Errno(number) => 0x0005_0000 | number as u32,
            Action::KillProcess => 0x8000_0000,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Allow => out.write_str("allow"),
            Action::Errno(1) => out.write_str("EPERM"),
            Action::Errno(22) => out.write_str("EINVAL"),
            Action::Errno(38) => out.write_str("ENOSYS"),
            Action::Errno(93) => out.write_str("EPROTONOSUPPORT"),
            Action::Errno(94) => out.write_str("ESOCKTNOSUPPORT"),
            Action::Errno(97) => out.write_str("EAFNOSUPPORT"),
            Action::Errno(number) => write!(out, "errno {number}"),
            Action::KillProcess => out.write_str("kill"),
        }
    }
}

/// An action, or a question about one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    Always(Action),
    Switch(&'static Switch),
}

/// Chooses by the low 32 bits of one argument. There is no way to look at the upper half: it exists only for
/// arguments that the kernel takes in 64 bits, and no rule asks about one of those.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Switch {
    /// 0 to 5.
    pub(super) argument: u8,
    pub(super) mask: u32,
    /// Values of the masked argument, and what then; a value stands in one case only.
    pub(super) cases: &'static [(&'static [u32], Rule)],
    pub(super) otherwise: Rule,
}

impl Rule {
    /// The answer to a call with these arguments, read straight from the table.
    pub(super) fn decide(self, arguments: &[u64; 6]) -> Action {
        match self {
            Rule::Always(action) => action,
            Rule::Switch(switch) => {
                let value = arguments[usize::from(switch.argument)] as u32 & switch.mask;
                let case = switch.cases.iter().find(|(values, _)| values.contains(&value));
                case.map_or(switch.otherwise, |(_, rule)| *rule).decide(arguments)
            }
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = match self {
            Rule::Always(action) => return action.fmt(out),
            Rule::Switch(switch) => switch,
        };
        write!(out, "arg{}", switch.argument)?;
        if switch.mask != u32::MAX {
            write!(out, "&{:#x}", switch.mask)?;
        }
        out.write_str(" {")?;
        for (values, rule) in switch.cases {
            for (index, value) in values.iter().enumerate() {
                write!(out, "{}{value:#x}", if index == 0 { "" } else { "," })?;
            }
            write!(out, ": {rule}; ")?;
        }
        write!(out, "else: {}}}", switch.otherwise)
    }
}
