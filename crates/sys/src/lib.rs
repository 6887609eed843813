//! Thin safe wrappers over the Linux calls that the jail and the agent need; the one home of unsafe code.
//!
//! Whatever rustix offers is used from there; here is only what it leaves out or marks unsafe. Each function checks
//! what it needs to be sound, so that callers need no `unsafe` of their own.

pub mod disk;
pub mod exec;
pub mod filter;
pub mod fork;
pub mod lock;
pub mod mount;
pub mod names;
pub mod probe;
pub mod process;
pub mod program;
#[cfg(target_arch = "x86_64")]
pub mod ptrace;
