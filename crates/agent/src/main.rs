//! PID 1 of a sandbox. Started by the launcher from a sealed memory file, with the control socket at descriptor 3.

use std::os::fd::OwnedFd;
use std::process::ExitCode;

fn main() -> ExitCode {
    match sandstorm_sys::process::take_descriptor(sandstorm_agent::CONTROL_DESCRIPTOR).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        // There is nobody to tell: the launcher sees this process end, and the host sees its socket close.
        Err(_) => ExitCode::from(125),
    }
}

fn run(control: OwnedFd) -> std::io::Result<()> {
    sandstorm_agent::serve(control)
}
