//! How a program ended, in exit codes and in words.

use std::process::ExitCode;

use sandstorm_types::{End, Status, exit_code_after};

use crate::complaint::note;

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
    Ok(ExitCode::from(exit_code_after(end.status, end.signal, end.exit_code)))
}
