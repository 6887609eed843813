//! Guest interpreters in real jails: the launcher, its zygotes and the agent as they are, and this process as the client.
//!
//! Each case is a process of its own without threads, since it forks a launcher. The agent is this very program.

#![expect(clippy::unwrap_used, reason = "a test that finds nothing where something must be has failed")]
#![expect(clippy::disallowed_methods, reason = "the tests look at a jail with programs of the host")]

#[path = "guests/disks.rs"]
mod disks;
#[path = "guests/host.rs"]
mod host;
#[path = "guests/inherited.rs"]
mod inherited;
#[path = "guests/life.rs"]
mod life;
#[path = "guests/molds.rs"]
mod molds;
#[path = "guests/nested.rs"]
mod nested;
#[path = "guests/networks.rs"]
mod networks;
#[path = "guests/reused.rs"]
mod reused;
#[path = "guests/walls.rs"]
mod walls;

use std::process::ExitCode;

use host::Case;

fn main() -> ExitCode {
    // As with every other test: the long ones are run when they are asked for.
    let words: Vec<String> = std::env::args().collect();
    let asked = |word: &str| words.iter().any(|said| said == word);
    let cases = walls::CASES.iter().chain(networks::CASES).chain(reused::CASES).chain(life::CASES);
    let cases = cases
        .chain(molds::CASES)
        .chain(inherited::CASES)
        .chain(disks::CASES)
        .chain(nested::CASES)
        .filter(|_| !asked("--ignored"));
    let long = molds::LONG_CASES.iter().filter(|_| asked("--ignored") || asked("--include-ignored"));
    host::report("guests", cases.chain(long))
}
