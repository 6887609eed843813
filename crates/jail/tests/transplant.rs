//! Copying live interpreters, with real ones in namespaces of their own. Needs root.

#![cfg(target_arch = "x86_64")]
#![expect(clippy::print_stderr, reason = "a skipped test says why")]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
#![expect(clippy::disallowed_methods, reason = "the tests start a zygote of their own")]

#[path = "transplant/zygote.rs"]
mod zygote;

#[path = "transplant/carried.rs"]
mod carried;
#[path = "transplant/disturbed.rs"]
mod disturbed;
#[path = "transplant/refused.rs"]
mod refused;

/// Says why and gives up when these tests cannot run here.
fn root() -> bool {
    let is_root = rustix::process::getuid().is_root();
    if !is_root {
        eprintln!("skipped: only root may copy guests");
    }
    is_root
}
