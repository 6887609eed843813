//! Telling a person what went wrong: what happened, to what, and what to do.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use sandstorm_types::ErrorKind;

/// Bad usage, as the table of exit codes has it.
const USAGE: u8 = 2;
/// Sandstorm itself failed.
const FAILED: u8 = 125;

/// A mistake in what was typed or given.
#[derive(Debug)]
pub(crate) struct Misuse(pub(crate) String);

impl std::fmt::Display for Misuse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// An error for a mistake of the caller's.
pub(crate) fn misuse(message: impl Into<String>) -> anyhow::Error {
    Misuse(message.into()).into()
}

/// Prints an error with its causes and says what to exit with.
pub(crate) fn tell(error: &anyhow::Error) -> ExitCode {
    let mut text = String::new();
    for (place, cause) in error.chain().enumerate() {
        let cause = cause.to_string();
        // A cause that its parent already quotes adds nothing.
        if place > 0 && text.contains(&cause) {
            continue;
        }
        if place > 0 {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    let mut stderr = std::io::stderr().lock();
    let label = if paints(&stderr) { "\u{1b}[1;31merror:\u{1b}[0m" } else { "error:" };
    let _ = writeln!(stderr, "{label} {}", safe(&text));
    ExitCode::from(code(error))
}

fn code(error: &anyhow::Error) -> u8 {
    let usage = error.chain().any(|cause| {
        cause.is::<Misuse>()
            || cause.is::<sandstorm_config::ConfigError>()
            || cause.downcast_ref::<sandstorm_provider::Error>().is_some_and(|e| e.kind() == ErrorKind::InvalidRequest)
    });
    if usage { USAGE } else { FAILED }
}

/// Whether colours are wanted on this stream.
pub(crate) fn paints(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && sandstorm_config::Environment::of_process().get("NO_COLOR").is_none()
}

/// Text that cannot move the cursor or repaint the terminal, whoever wrote it.
pub(crate) fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}
