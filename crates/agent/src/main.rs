//! PID 1 of a sandbox. Started by the launcher from a sealed memory file, with the control socket at descriptor 3 and the
//! door at descriptor 4.

use std::process::ExitCode;

use sandstorm_sys::process::take_descriptor;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // There is nobody to tell: the launcher sees this process end, and the host sees its socket close.
        Err(_) => ExitCode::from(125),
    }
}

fn run() -> std::io::Result<()> {
    let control = take_descriptor(sandstorm_agent::CONTROL_DESCRIPTOR)?;
    let door = take_descriptor(sandstorm_agent::DOOR_DESCRIPTOR)?;
    sandstorm_agent::serve(control, door)
}
