//! How a program ended, in exit codes and in words.

use std::process::ExitCode;

use sandstorm_types::{End, Status, exit_code_after};

use crate::complaint::{note, refusal};

/// Says what is missing of a program's output; whether anything is.
pub(super) fn is_said_to_be_cut(end: &End) -> bool {
    let missing = match (end.truncated.stdout, end.truncated.stderr) {
        (false, false) => return false,
        (true, true) => "output and errors were cut",
        (true, false) => "output was cut",
        (false, true) => "errors were cut",
    };
    note(&format!("{missing}: the program wrote more than was kept"));
    true
}

/// What is exited with when only a part of what was asked for could be shown.
pub(super) fn cut_code() -> ExitCode {
    ExitCode::from(exit_code_after(Status::Output, None, None))
}

/// Says why a program ended when its output does not, and gives what to exit with.
pub(super) fn conclude(end: &End) -> anyhow::Result<ExitCode> {
    if let Some(problem) = &end.problem {
        anyhow::bail!("{}", problem.detail);
    }
    let ended = match end.status {
        Status::Ok | Status::Error => None,
        Status::CompileError => Some("the program does not compile"),
        Status::Timeout => Some("ended after its time limit"),
        Status::Cpu => Some("ended after its processor time limit"),
        Status::Memory => Some("ended at its memory limit"),
        Status::Output => Some("ended after writing far more than its output limit"),
        Status::Killed => Some("killed"),
    };
    if let Some(words) = ended {
        note(words);
    }
    for hit in &end.limits_hit {
        note(&format!("the {hit} limit was reached"));
    }
    for denied in &end.denied {
        note(&refusal(denied, |rule| format!("add {rule} with `sandstorm sandbox network`")));
    }
    // Whoever goes by the code alone must not take a part for all there was.
    let success = if is_said_to_be_cut(end) { Status::Output } else { Status::Ok };
    let status = if end.status == Status::Ok { success } else { end.status };
    Ok(ExitCode::from(exit_code_after(status, end.signal, end.exit_code)))
}
