//! Guest interpreters in real jails: the launcher, its zygotes and the agent as they are, and this process as the client.
//!
//! Each case is a process of its own without threads, since it forks a launcher. The agent is this very program.

#![expect(clippy::print_stdout, reason = "this is a test's report")]
#![expect(clippy::unwrap_used, reason = "a test that finds nothing where something must be has failed")]

#[path = "guests/host.rs"]
mod host;
#[path = "guests/life.rs"]
mod life;
#[path = "guests/networks.rs"]
mod networks;
#[path = "guests/reused.rs"]
mod reused;
#[path = "guests/walls.rs"]
mod walls;

use std::process::ExitCode;
use std::time::Instant;

use sandstorm_sys::fork::{Forked, exit_now, fork};
use sandstorm_sys::process::{Ending, reap, take_descriptor};

use host::Host;

/// A case and its name.
type Case = (&'static str, fn(&mut Host));

fn main() -> ExitCode {
    if std::env::args().next().as_deref() == Some("sandstorm-agent") {
        let control = take_descriptor(sandstorm_agent::CONTROL_DESCRIPTOR).unwrap();
        let door = take_descriptor(sandstorm_agent::DOOR_DESCRIPTOR).unwrap();
        return sandstorm_agent::serve(control, door).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    if !rustix::process::geteuid().is_root() {
        println!("guests: skipped, only root has zygotes");
        return ExitCode::SUCCESS;
    }
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let (mut passed, mut failed) = (0, 0);
    let cases = walls::CASES.iter().chain(networks::CASES).chain(reused::CASES).chain(life::CASES);
    for (name, case) in cases.filter(|(name, _)| name.contains(&filter)) {
        let began = Instant::now();
        let ok = run(*case);
        println!("{name} ... {} ({:.1} s)", if ok { "ok" } else { "FAILED" }, began.elapsed().as_secs_f64());
        if ok { passed += 1 } else { failed += 1 }
    }
    println!("guests: {passed} passed, {failed} failed");
    if failed == 0 && (passed > 0 || !filter.is_empty()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(case: fn(&mut Host)) -> bool {
    match fork().unwrap() {
        Forked::Parent { pid } => reap(pid).unwrap().ending == Ending::Code(0),
        Forked::Child => {
            let mut host = Host::new();
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&mut host)));
            let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| host.leave()));
            exit_now(if ran.is_ok() && left.is_ok() { 0 } else { 1 })
        }
    }
}
