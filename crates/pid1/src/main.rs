//! The mold of all PID 1s: built as a small static program, carried by the engine, executed once by each launcher from a
//! sealed memory file. Everything that it does is in `sandstorm_jail::mold`.

use std::process::ExitCode;

fn main() -> ExitCode {
    sandstorm_jail::mold::main()
}
