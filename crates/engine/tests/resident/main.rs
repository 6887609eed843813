//! Hosts that are killed while their sandboxes live, and hosts that take those over.
//!
//! Each case is a process of its own, without threads until it has forked what it needs. With `--pool` every host makes
//! sandboxes ahead, with warm interpreters, which must change nothing.

#![expect(clippy::print_stdout, reason = "this is a test's report")]
#![expect(clippy::unwrap_used, reason = "a test that finds nothing where something must be has failed")]

mod disk_space;
mod faults;
mod guests;
mod limits;
mod network;
mod place;
mod pool;
mod takeover;

use std::process::ExitCode;
use std::time::Instant;

use sandstorm_sys::fork::{Forked, exit_now, fork};
use sandstorm_sys::process::{Ending, reap};

use place::Place;

/// A case and its name.
type Case = (&'static str, fn(&Place));

fn main() -> ExitCode {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let ahead = std::env::args().any(|arg| arg == "--pool");
    let cases = takeover::CASES
        .iter()
        .chain(faults::CASES)
        .chain(limits::CASES)
        .chain(network::CASES)
        .chain(guests::CASES)
        .chain(pool::CASES)
        .chain(disk_space::CASES);
    let (mut passed, mut failed) = (0, 0);
    for (name, case) in cases.filter(|(name, _)| name.contains(&filter)) {
        let began = Instant::now();
        let ok = run(*case, ahead);
        let word = if ok { "ok" } else { "FAILED" };
        println!("{name} ... {word} ({:.1} s)", began.elapsed().as_secs_f64());
        if ok { passed += 1 } else { failed += 1 }
    }
    println!("resident: {passed} passed, {failed} failed");
    if failed == 0 && (passed > 0 || !filter.is_empty()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(case: fn(&Place), ahead: bool) -> bool {
    match fork().unwrap() {
        Forked::Parent { pid } => reap(pid).unwrap().ending == Ending::Code(0),
        Forked::Child => {
            let place = Place::new();
            if ahead {
                place.pool.set(Some(pool::POOL));
                place.zygotes.set(true);
            }
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&place)));
            let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| place.clear()));
            drop(place);
            exit_now(if outcome.is_ok() && left.is_ok() { 0 } else { 1 })
        }
    }
}
