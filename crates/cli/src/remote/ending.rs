//! How a program ended, in exit codes and in words.

use std::process::ExitCode;
use std::time::Duration;

use sandstorm_client::Client;
use sandstorm_types::{End, LimitName, Limits, SandboxId, Status, duration, exit_code_after};

use crate::complaint::{note, refusal};
use crate::stopped;

/// The limits that a program had, as far as they are known here.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    timeout: Option<Duration>,
    of_sandbox: Option<Limits>,
    /// A terminal has as much time as the server gives to any sandbox, and no flag for it.
    terminal: bool,
}

impl Bounds {
    /// Asks the server for the limits of the sandbox if one of them says how the program ended. `timeout`: the time that
    /// the caller gave the program instead.
    pub(super) async fn of(
        client: &Client,
        sandbox: SandboxId,
        end: &End,
        timeout: Option<Duration>,
    ) -> Self {
        let known = end.status == Status::Timeout && timeout.is_some();
        let limited = matches!(end.status, Status::Timeout | Status::Cpu | Status::Memory | Status::Output);
        if end.limits_hit.is_empty() && (known || !limited) {
            return Self { timeout, ..Self::default() };
        }
        // The end is told in any case; without an answer it is told without a figure.
        let found = client.sandbox(sandbox).await.ok();
        let limits = found.and_then(|mut found| found.more.remove("limits"));
        let of_sandbox = limits.and_then(|limits| serde_json::from_value(limits).ok());
        Self { timeout, of_sandbox, terminal: false }
    }

    /// The same for a program that has a terminal.
    pub(super) async fn of_terminal(client: &Client, sandbox: SandboxId, end: &End) -> Self {
        Self { terminal: true, ..Self::of(client, sandbox, end, None).await }
    }

    fn figure(&self, limit: LimitName) -> Option<String> {
        match (limit, self.timeout) {
            (LimitName::Wall, Some(timeout)) => Some(duration::format(timeout)),
            (LimitName::Wall, None) if self.terminal => None,
            _ => self.of_sandbox.as_ref()?.show(limit),
        }
    }

    /// What raises a limit of a program in a sandbox.
    fn remedy(&self, limit: LimitName) -> &'static str {
        match limit {
            LimitName::Wall if self.terminal => "open another one with `sandbox shell`",
            LimitName::Wall => "raise it with --timeout",
            LimitName::Memory => "raise it with `sandbox create --memory`",
            LimitName::Cpus => "raise it with `sandbox create --cpus`",
            LimitName::Processes => "raise it with `sandbox create --pids`",
            LimitName::Disk => "raise it with `sandbox create --disk`",
            LimitName::CpuTime => "make a sandbox with a larger limits.cpu_time",
            LimitName::OpenFiles => "make a sandbox with a larger limits.open_files",
            LimitName::Inodes => "make a sandbox with a larger limits.inodes",
            LimitName::Output => "make a sandbox with a larger limits.output",
        }
    }
}

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
pub(super) fn conclude(end: &End, bounds: &Bounds) -> anyhow::Result<ExitCode> {
    if let Some(problem) = &end.problem {
        anyhow::bail!("{}", problem.detail);
    }
    let figure = |limit| bounds.figure(limit);
    let remedy = |limit| bounds.remedy(limit);
    let ended = match end.status {
        Status::CompileError => Some("the program does not compile".to_owned()),
        Status::Killed => Some("killed".to_owned()),
        status => stopped::ended(status, &figure, &remedy),
    };
    if let Some(words) = ended {
        note(&words);
    }
    for hit in &end.limits_hit {
        note(&stopped::reached(*hit, &figure, &remedy));
    }
    for denied in &end.denied {
        note(&refusal(denied, |rule| format!("add {rule} with `sandstorm sandbox network`")));
    }
    // Whoever goes by the code alone must not take a part for all there was.
    let success = if is_said_to_be_cut(end) { Status::Output } else { Status::Ok };
    let status = if end.status == Status::Ok { success } else { end.status };
    Ok(ExitCode::from(exit_code_after(status, end.signal, end.exit_code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_callers_or_the_sandboxes() {
        let limits = Limits { output: sandstorm_types::ByteSize::mib(1), ..Limits::default() };
        let given =
            Bounds { timeout: Some(Duration::from_secs(1)), of_sandbox: Some(limits), terminal: false };
        let said = |bounds: &Bounds, status| {
            stopped::ended(status, &|limit| bounds.figure(limit), &|limit| bounds.remedy(limit))
        };
        assert_eq!(
            said(&given, Status::Timeout).unwrap(),
            "ended after its time limit of 1s; raise it with --timeout"
        );
        let usual = Bounds { timeout: None, ..given };
        assert_eq!(
            said(&usual, Status::Timeout).unwrap(),
            "ended after its time limit of 30s; raise it with --timeout"
        );
        assert_eq!(
            said(&usual, Status::Output).unwrap(),
            "ended after writing far more than its output limit of 1MiB; make a sandbox with a larger limits.output"
        );
        assert_eq!(
            said(&Bounds::default(), Status::Memory).unwrap(),
            "ended at its memory limit; raise it with `sandbox create --memory`"
        );
        let terminal = Bounds { terminal: true, ..usual };
        assert_eq!(
            said(&terminal, Status::Timeout).unwrap(),
            "ended after its time limit; open another one with `sandbox shell`"
        );
    }
}
