//! The zygote: a warm interpreter that only forks.
//!
//! It is a child of the launcher, root on the host with the few rights that it takes to enter a jail, in mount, network,
//! ipc and uts namespaces of its own, on a read-only root with the same trees as a jail and without `/proc`. It runs code
//! of the host's `/usr`, the program embedded here and the beginning of scripts that are embedded too, and takes orders on
//! descriptor 3 alone. A fork of it, a *guest*, enters a jail and puts up the walls that a program of the agent has around it;
//! nothing of a user's comes near before.
//!
//! Here is how one is started and what is said to it. When to start, whom to ask and when to end it is the launcher's
//! matter.

pub(crate) mod messages;
mod process;
mod root;

pub(crate) use process::{Started, check, start};

/// What the interpreter runs: one program in several files.
const PROGRAM: &str = concat!(
    include_str!("zygote/python/kernel.py"),
    include_str!("zygote/python/zygote.py"),
    include_str!("zygote/python/guest.py"),
    include_str!("zygote/python/program.py"),
    include_str!("zygote/python/warm.py"),
);

/// Where the program is in the zygote's root, and what it has been told to begin ahead.
const HOME: &str = "/zygote";

/// Memory that a zygote may use, its imports included.
pub(crate) const MEMORY: u64 = 1 << 30;
