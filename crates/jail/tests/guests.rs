//! Guest interpreters in real jails: the launcher, its zygotes and the agent as they are, and this process as the client.
//!
//! Each case is a process of its own without threads, since it forks a launcher. The agent is this very program.

#![expect(clippy::unwrap_used, reason = "a test that finds nothing where something must be has failed")]

#[path = "guests/host.rs"]
mod host;
#[path = "guests/life.rs"]
mod life;
#[path = "guests/molds.rs"]
mod molds;
#[path = "guests/networks.rs"]
mod networks;
#[path = "guests/reused.rs"]
mod reused;
#[path = "guests/walls.rs"]
mod walls;

use std::process::ExitCode;

use host::Case;

fn main() -> ExitCode {
    if std::env::args().any(|word| word == "--ignored") {
        return host::report("guests", molds::LONG_CASES.iter());
    }
    let cases = walls::CASES.iter().chain(networks::CASES).chain(reused::CASES).chain(life::CASES);
    host::report("guests", cases.chain(molds::CASES))
}
