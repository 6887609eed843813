//! Programs that executions run, and what is told of their end.

use std::time::Duration;

use bytes::Bytes;
use data_encoding::HEXLOWER;
use sandstorm_control::server::{Caller, Control, ExecWork, NewExec};
use sandstorm_provider::{Command, Error, FileOp, ReadRange, Result};
use sandstorm_types::{
    ContextId, ErrorKind, GuestPath, LimitName, ProgramError, RunResult, SandboxId, Status, cli_exit_code,
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::settings::SessionSettings;

/// Most bytes of a report that a program of ours leaves in the sandbox.
const MOST_REPORT: usize = 16 * 1024 * 1024;

/// What came of an execution, as clients see it.
#[derive(Debug, Serialize)]
pub(crate) struct Executed {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) returncode: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_variables: Option<Map<String, Value>>,
    /// Limits that ended it or that it touched; absent when there is none to tell of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) limits_hit: Vec<LimitName>,
    /// Whether there was more output than was kept; absent when there was not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) truncated: bool,
}

impl From<&RunResult> for Executed {
    fn from(result: &RunResult) -> Self {
        let mut limits_hit = result.limits_hit.clone();
        limits_hit.extend(limit_of(result.status).filter(|limit| !result.limits_hit.contains(limit)));
        Self {
            stdout: text(result.stdout_bytes()),
            stderr: with_exception(result),
            returncode: returncode(result),
            output_variables: None,
            limits_hit,
            truncated: result.truncated.stdout || result.truncated.stderr,
        }
    }
}

/// Output that is not UTF-8 is shown as well as it can be: the API has no other form for it.
pub(crate) fn text(bytes: Option<Vec<u8>>) -> String {
    let bytes = bytes.unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Standard error. An exception of a cell is told apart from it; a script would have printed it there.
fn with_exception(result: &RunResult) -> String {
    let mut stderr = text(result.stderr_bytes());
    let Some(error) = &result.error else { return stderr };
    let mut say = |line: &str| {
        stderr.push_str(line);
        stderr.push('\n');
    };
    match exit_of(error) {
        Some(Exit::Code(_)) => {}
        Some(Exit::Words(words)) => say(words),
        None if error.traceback.is_empty() => say(&format!("{}: {}", error.name, error.value)),
        None => error.traceback.iter().for_each(|line| say(line)),
    }
    stderr
}

/// The exit code, 128 and the number of a signal, 124 for time and 137 for memory and output. A cell has no exit code:
/// it is 0, what it gave to `sys.exit`, or 1.
fn returncode(result: &RunResult) -> i32 {
    match result.error.as_ref().and_then(exit_of) {
        Some(Exit::Code(code)) => code,
        Some(Exit::Words(_)) => 1,
        None => cli_exit_code(result).into(),
    }
}

/// What a cell gave to `sys.exit`.
enum Exit<'a> {
    Code(i32),
    /// Printed, and a failure.
    Words(&'a str),
}

fn exit_of(error: &ProgramError) -> Option<Exit<'_>> {
    if error.name != "SystemExit" {
        return None;
    }
    Some(match (error.value.as_str(), error.value.parse::<i64>()) {
        ("" | "None", _) => Exit::Code(0),
        // As a process would: the lowest eight bits.
        (_, Ok(code)) => Exit::Code(i32::from(code.to_le_bytes()[0])),
        (words, Err(_)) => Exit::Words(words),
    })
}

fn limit_of(status: Status) -> Option<LimitName> {
    match status {
        Status::Timeout => Some(LimitName::Wall),
        Status::Cpu => Some(LimitName::CpuTime),
        Status::Memory => Some(LimitName::Memory),
        Status::Output => Some(LimitName::Output),
        Status::Ok | Status::Error | Status::CompileError | Status::Killed => None,
    }
}

/// A program whose processes are each held to the limits of the settings, so that one that wants too much fails alone.
/// Processor time ends with SIGXCPU, which can be told from other ends (152), and a second later with SIGKILL; an
/// allocation past the memory fails.
pub(crate) fn bounded(settings: &SessionSettings, argv: Vec<String>) -> Command {
    if !settings.process_limits {
        return Command::Program(argv);
    }
    let mut line = format!("ulimit -d {} && ", settings.memory.as_u64() / 1024);
    if let Some(limit) = settings.cpu_time {
        let seconds = limit.as_secs().saturating_add(u64::from(limit.subsec_nanos() > 0)).max(1);
        line.push_str(&format!("ulimit -S -t {seconds} && ulimit -H -t {} && ", seconds.saturating_add(1)));
    }
    line.push_str("exec \"$@\"");
    let mut bounded = vec![settings.shell.clone(), "-c".to_owned(), line, settings.shell.clone()];
    bounded.extend(argv);
    Command::Program(bounded)
}

/// The same limit of memory for an interpreter, as a cell of it. Its processor time is not limited: it lives on.
pub(crate) fn bounding_cell(settings: &SessionSettings) -> Option<String> {
    let bytes = settings.memory.as_u64();
    settings.process_limits.then(|| {
        format!("(lambda r: r.setrlimit(r.RLIMIT_DATA, ({bytes}, {bytes})))(__import__('resource'))")
    })
}

/// A word that a shell takes as it is.
pub(crate) fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

pub(crate) fn exec_of(command: Command, timeout: Duration, stdin: Option<Bytes>) -> NewExec {
    exec(ExecWork::Command(command), timeout, stdin)
}

pub(crate) fn cell_of(context: ContextId, code: String, timeout: Duration) -> NewExec {
    exec(ExecWork::Cell { context, code }, timeout, None)
}

fn exec(work: ExecWork, timeout: Duration, stdin: Option<Bytes>) -> NewExec {
    NewExec { stdin, timeout: Some(timeout), ..NewExec::of(work) }
}

/// Runs to the end. Dropping the future ends the program.
pub(crate) async fn finished(
    control: &Control,
    caller: &Caller,
    sandbox: SandboxId,
    new: NewExec,
) -> Result<RunResult> {
    control.exec_to_end(caller, sandbox, new).await
}

/// A place in the sandbox that nobody uses yet, for what one of our own programs has to tell.
pub(crate) fn report_place() -> Result<GuestPath> {
    Ok(format!("/tmp/.sandstorm-{}.json", random_word()?).parse().expect("a plain absolute path"))
}

/// 16 hexadecimal digits that nobody can guess.
pub(crate) fn random_word() -> Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::new(ErrorKind::Internal, "there is no randomness").with_source(error))?;
    Ok(HEXLOWER.encode(&bytes))
}

/// What a program left at `place`. `None`: nothing that can be read as an object. The user's code may have written it:
/// nothing but its own result depends on that.
pub(crate) async fn report(
    control: &Control,
    caller: &Caller,
    sandbox: SandboxId,
    place: &GuestPath,
) -> Result<Option<Map<String, Value>>> {
    let range = ReadRange { offset: 0, length: Some(MOST_REPORT as u64 + 1) };
    let read = match control.read_file(caller, sandbox, place, range).await {
        Ok((_, content)) => content.collect(MOST_REPORT).await,
        Err(error) => Err(error),
    };
    match read {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        // Not there, too long, or something that is no file.
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::InvalidRequest | ErrorKind::FileSystem => Ok(None),
            _ => Err(error),
        },
    }
}

/// Removes a report. It lies in the sandbox's own temporary folder; if user code made that impossible, it stays there.
pub(crate) async fn discard(control: &Control, caller: &Caller, sandbox: SandboxId, place: &GuestPath) {
    let removal = FileOp::Remove { path: place.clone(), recursive: true };
    match control.files(caller, sandbox, removal).await {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => tracing::debug!(%error, "a report stays in its sandbox"),
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::ByteSize;

    use super::*;

    #[test]
    fn a_cell_exits_as_a_process_would() {
        let exit = |name: &str, value: &str| {
            let error =
                ProgramError { name: name.to_owned(), value: value.to_owned(), traceback: Vec::new() };
            match exit_of(&error) {
                Some(Exit::Code(code)) => code.to_string(),
                Some(Exit::Words(words)) => words.to_owned(),
                None => "no exit".to_owned(),
            }
        };
        for (value, wanted) in
            [("", "0"), ("None", "0"), ("3", "3"), ("256", "0"), ("-1", "255"), ("bad luck", "bad luck")]
        {
            assert_eq!(exit("SystemExit", value), wanted, "{value}");
        }
        assert_eq!(exit("ValueError", "3"), "no exit");
    }

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    }

    #[test]
    fn limits_are_set_before_the_program() {
        let settings = SessionSettings {
            cpu_time: Some(Duration::from_millis(1500)),
            memory: ByteSize::mib(1),
            ..SessionSettings::default()
        };
        let argv = vec!["python3".to_owned(), "a b.py".to_owned()];
        let Command::Program(words) = bounded(&settings, argv.clone()) else { panic!("a program") };
        assert_eq!(words[2], "ulimit -d 1024 && ulimit -S -t 2 && ulimit -H -t 3 && exec \"$@\"");
        assert_eq!(words[4..], argv);
        let Command::Program(words) = bounded(&SessionSettings { cpu_time: None, ..settings }, argv.clone())
        else {
            panic!("a program")
        };
        assert_eq!(words[2], "ulimit -d 1024 && exec \"$@\"");
        let free = SessionSettings { process_limits: false, ..SessionSettings::default() };
        assert_eq!(bounded(&free, argv.clone()), Command::Program(argv));
        assert_eq!(bounding_cell(&free), None);
    }
}
