//! The system calls that code in a sandbox may make, and the BPF programs that say so to the kernel.
//!
//! [`profile`] holds one table of groups of calls. It is the documentation, the input of the compiler and the
//! input of the tests. Programs are only produced here; installing them is `sandstorm_sys`'s work.
//!
//! The rules that every program keeps:
//! - another architecture than the expected one kills the process (on x86-64: `int 0x80` and 32-bit code);
//! - a known call that is not allowed answers `EPERM`, a number that the table does not know answers `ENOSYS`, so
//!   that a libc newer than the table falls back. x32 numbers (bit 30) are such numbers: a kernel without x32
//!   answers the same;
//! - arguments are compared in 32 bits, because the kernel takes every one that we look at as a 32-bit value. What
//!   stands in the upper half changes neither what the kernel does nor what we decide.
//!
//! ```
//! use sandstorm_jail::seccomp::{self, Arch};
//!
//! let program = seccomp::payload(Arch::host(), false);
//! assert_eq!(program.bytes().len(), program.instructions().len() * 8);
//! ```

mod compile;
#[cfg(test)]
mod interpret;
mod profile;
mod rule;
mod syscalls;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

pub use compile::{Instruction, Program};
pub use profile::Profile;
pub use rule::Action;
pub use syscalls::Arch;

/// The filter of code that the sandbox's user brought. Strict closes covert channels between sandboxes that share
/// files (locks, page-cache questions) at the price of programs that need them.
pub fn payload(arch: Arch, strict: bool) -> Program {
    compiled(if strict { Profile::PayloadStrict } else { Profile::Payload }, arch)
}

/// The filter of our PID 1. Filters are inherited and the strictest answer wins, so it allows at least what the
/// payload's filter allows.
pub fn agent(arch: Arch) -> Program {
    compiled(Profile::Agent, arch)
}

/// Each program is compiled once: a launcher asks for one at every birth.
fn compiled(profile: Profile, arch: Arch) -> Program {
    static PROGRAMS: [[OnceLock<Program>; Arch::ALL.len()]; Profile::ALL.len()] =
        [const { [const { OnceLock::new() }; Arch::ALL.len()] }; Profile::ALL.len()];
    let slot = &PROGRAMS[profile as usize][arch as usize];
    slot.get_or_init(|| compile::compile(profile, arch)).clone()
}
