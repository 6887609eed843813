//! The mold of all PID 1s: built as a small static program, carried by the engine, executed once by each launcher from a
//! sealed memory file. Everything that it does is in `sandstorm_jail::mold`.
//!
//! With the word `pod` it is the agent of a container that somebody else built: `sandstorm_jail::pod`.

use std::process::ExitCode;

use sandstorm_jail::{mold, pod};

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(word) if word == pod::WORD => pod::main(),
        _ => mold::main(),
    }
}
