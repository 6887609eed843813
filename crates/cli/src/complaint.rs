//! Telling a person what went wrong: what happened, to what, and what to do.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use sandstorm_types::{Denied, ErrorKind};

/// Bad usage, as the table of exit codes has it.
const USAGE: u8 = 2;
/// Sandstorm itself failed.
const FAILED: u8 = 125;

/// Cancelled before there was a result.
const CANCELLED: u8 = 137;
/// What a shell says of a program that SIGPIPE ended.
const BROKEN_PIPE: u8 = 141;

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
    if nobody_reads(error) {
        return ExitCode::from(BROKEN_PIPE);
    }
    if kind(error) == Some(ErrorKind::Cancelled) {
        note("cancelled");
        return ExitCode::from(CANCELLED);
    }
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
    // Whoever runs the server finds the rest in its log under this name.
    if let Some(id) = of_server(error).and_then(sandstorm_client::Error::request_id) {
        text.push_str(&format!(" (request {id})"));
    }
    let mut stderr = std::io::stderr().lock();
    let label = if paints(&stderr) { "\u{1b}[1;31merror:\u{1b}[0m" } else { "error:" };
    let _ = writeln!(stderr, "{label} {}", safe(&text));
    ExitCode::from(code(error))
}

/// Our output goes to somebody who has seen enough (`sandstorm … | head`): no news, and no error of ours.
fn nobody_reads(error: &anyhow::Error) -> bool {
    let broken = |e: &std::io::Error| e.kind() == std::io::ErrorKind::BrokenPipe;
    error.downcast_ref::<std::io::Error>().is_some_and(broken)
        || error
            .downcast_ref::<serde_json::Error>()
            .is_some_and(|e| e.io_error_kind() == Some(std::io::ErrorKind::BrokenPipe))
}

fn code(error: &anyhow::Error) -> u8 {
    let usage =
        error.chain().any(|cause| cause.is::<Misuse>() || cause.is::<sandstorm_config::ConfigError>());
    let wrong = usage || kind(error) == Some(ErrorKind::InvalidRequest) || names_what_is_absent(error);
    if wrong { USAGE } else { FAILED }
}

/// Whether the server knows nothing under a name that the caller gave: a file, a sandbox, a run. A proxy that answers 404
/// for the server knows nothing of names, and a stream that breaks off has begun.
fn names_what_is_absent(error: &anyhow::Error) -> bool {
    let refusal = of_server(error).and_then(sandstorm_client::Error::refusal);
    refusal.is_some_and(|refusal| refusal.coded && refusal.kind == ErrorKind::NotFound)
}

/// The family of a failure that came from a provider or a server.
fn kind(error: &anyhow::Error) -> Option<ErrorKind> {
    let of_provider = error.chain().find_map(|cause| cause.downcast_ref::<sandstorm_provider::Error>());
    of_provider.map(|e| e.kind()).or_else(|| of_server(error).map(sandstorm_client::Error::kind))
}

fn of_server(error: &anyhow::Error) -> Option<&sandstorm_client::Error> {
    error.chain().find_map(|cause| cause.downcast_ref::<sandstorm_client::Error>())
}

/// Says something that is no error, on the error stream.
pub(crate) fn note(message: &str) {
    let mut stderr = std::io::stderr().lock();
    let label = if paints(&stderr) { "\u{1b}[1;33msandstorm:\u{1b}[0m" } else { "sandstorm:" };
    let _ = writeln!(stderr, "{label} {}", safe(message));
}

/// What a program could not reach on the network, and what helps, where a rule does.
pub(crate) fn refusal(denied: &Denied, allow: impl FnOnce(&str) -> String) -> String {
    let times = if denied.count > 1 { format!(" ({} times)", denied.count) } else { String::new() };
    let help = denied.rule().map(|rule| format!("; to allow it, {}", allow(&rule))).unwrap_or_default();
    format!("network: {}{times}{help}", denied.sentence())
}

/// Says what is odd and stops nothing, on the error stream.
pub(crate) fn warn(message: &str) {
    let _ = writeln!(std::io::stderr().lock(), "warning: {}", safe(message));
}

/// Whether colours are wanted on this stream.
pub(crate) fn paints(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && sandstorm_config::Environment::of_process().get("NO_COLOR").is_none()
}

/// Text that cannot move the cursor or repaint the terminal, whoever wrote it.
pub(crate) fn safe(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}
