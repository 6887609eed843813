//! Words for a limit that ended a program or refused it something: which, how large it is, and what raises it.

use sandstorm_types::{LimitName, Status};

/// How large a limit is, where that is known.
type Figure<'a> = &'a dyn Fn(LimitName) -> Option<String>;
/// What the caller does to raise a limit.
type Remedy<'a> = &'a dyn Fn(LimitName) -> &'static str;

/// Says which limit ended a program; `None` when no limit did.
pub(crate) fn ended(status: Status, figure: Figure<'_>, remedy: Remedy<'_>) -> Option<String> {
    let (words, limit) = match status {
        Status::Ok | Status::Error | Status::CompileError | Status::Killed => return None,
        Status::Timeout => ("ended after its time limit", LimitName::Wall),
        Status::Cpu => ("ended after its processor time limit", LimitName::CpuTime),
        Status::Memory => ("ended at its memory limit", LimitName::Memory),
        Status::Output => ("ended after writing far more than its output limit", LimitName::Output),
    };
    Some(format!("{words}{}; {}", of(figure(limit)), remedy(limit)))
}

/// Says which limit a program ran into.
pub(crate) fn reached(limit: LimitName, figure: Figure<'_>, remedy: Remedy<'_>) -> String {
    format!("the {limit} limit{} was reached; {}", of(figure(limit)), remedy(limit))
}

fn of(figure: Option<String>) -> String {
    figure.map(|figure| format!(" of {figure}")).unwrap_or_default()
}

/// The flag of `sandstorm run` that raises a limit.
pub(crate) fn flag_of_run(limit: LimitName) -> &'static str {
    match limit {
        LimitName::Wall => "raise it with --timeout",
        LimitName::CpuTime => "raise it with --cpu-time",
        LimitName::Cpus => "raise it with --cpus",
        LimitName::Memory => "raise it with --memory",
        LimitName::Processes => "raise it with --pids",
        LimitName::OpenFiles => "raise it with --open-files",
        LimitName::Disk => "raise it with --disk",
        LimitName::Inodes => "raise it with --inodes",
        LimitName::Output => "raise it with --output",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_its_figure_and_its_flag() {
        let figure = |limit: LimitName| (limit != LimitName::Memory).then(|| "1s".to_owned());
        let said = |status| ended(status, &figure, &flag_of_run);
        assert_eq!(
            said(Status::Timeout).as_deref(),
            Some("ended after its time limit of 1s; raise it with --timeout")
        );
        assert_eq!(
            said(Status::Cpu).as_deref(),
            Some("ended after its processor time limit of 1s; raise it with --cpu-time")
        );
        assert_eq!(
            said(Status::Memory).as_deref(),
            Some("ended at its memory limit; raise it with --memory")
        );
        for status in [Status::Ok, Status::Error, Status::CompileError, Status::Killed] {
            assert_eq!(said(status), None);
        }
        assert_eq!(
            reached(LimitName::Disk, &figure, &flag_of_run),
            "the disk limit of 1s was reached; raise it with --disk"
        );
    }
}
