//! Where things lie inside a sandbox, for whoever makes the sandbox that a plan runs in.

/// The user's files, and the working folder of every plan.
pub const WORKSPACE: &str = "/workspace";

/// What a compile leaves for the run. It lies outside the user's files; it exists and is empty before a compile, and
/// is all that is carried from the compile's sandbox to the run's, besides the user's files.
pub const BUILD: &str = "/tmp/build";

/// Files of ours that a plan asks for ([`crate::Plan::files`]) lie here.
pub const SUPPORT: &str = "/tmp/support";

/// Where a compiler with [`crate::CompilePlan::warm`] keeps what the next compile can use. It exists before a compile,
/// empty or with what an earlier one of the same tenant and toolchain left.
pub const WARM: &str = "/tmp/warm";
