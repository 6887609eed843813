//! Programs and pieces of code in a sandbox.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use sandstorm_control::server::{ExecView, ExecWork, NewExec};
use sandstorm_provider::{Command, ExecSignal, TtySize};
use sandstorm_types::{
    Blob, ByteSize, ContextId, EnvMap, ExecId, GuestPath, LanguageName, SandboxId, Status, Timestamp, User,
    duration,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ResultBody;
use super::shapes::{CommandShape, Content, LanguageText, PathText, Size, Span, StatusName, UserName};
use crate::json::Wire;
use crate::problem::{ApiError, ApiResult};

const MAX_ARGS: usize = 4096;
/// The kernel refuses one argument of more than 128 KiB.
const MAX_ARG: usize = 128 * 1024 - 1;

/// An exec to start: `command`, or `language` with `code`, or `context` with `code`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartExec {
    #[serde(default)]
    #[schema(value_type = Option<CommandShape>)]
    command: Option<CommandText>,
    #[serde(default)]
    #[schema(value_type = Option<LanguageText>)]
    language: Option<LanguageName>,
    #[serde(default)]
    code: Option<String>,
    /// A living interpreter to run the code in.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^ctx_[a-z2-7]{26}$")]
    context: Option<ContextId>,
    /// Arguments of `code`.
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, String>)]
    env: EnvMap,
    #[serde(default)]
    #[schema(value_type = Option<PathText>)]
    cwd: Option<GuestPath>,
    #[serde(default)]
    #[schema(value_type = Option<UserName>)]
    user: Option<User>,
    /// All of the program's input.
    #[serde(default)]
    #[schema(value_type = Option<Content>)]
    stdin: Option<Blob>,
    /// Input will be written later to `…/execs/{exec}/stdin`.
    #[serde(default)]
    stdin_stream: bool,
    #[serde(default)]
    tty: Option<Tty>,
    /// The sandbox's `wall` limit unless given. In the background there is none unless given: the program ends with its
    /// sandbox.
    #[serde(default, with = "duration::optional_seconds")]
    #[schema(value_type = Option<Span>)]
    timeout: Option<Duration>,
    /// Answers at once with the exec, which runs on whoever listens.
    #[serde(default)]
    background: bool,
    /// What becomes of a foreground program whose listener goes away.
    #[serde(default)]
    on_disconnect: OnDisconnect,
    /// The id to give to it, chosen by the client so that it is known whatever becomes of the answer. One that exists
    /// already is a conflict, so that a repeated request starts nothing twice. Not for `context`.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^exec_[a-z2-7]{26}$")]
    id: Option<ExecId>,
    /// Bytes of output that are kept: at most the sandbox's limit, which holds unless given.
    #[serde(default)]
    #[schema(value_type = Option<Size>)]
    output: Option<ByteSize>,
    /// `false`, for a `command` in the background: output has no limit and is not kept for those who attach later. It waits
    /// for its one listener, and stays until that one says what can be forgotten (`…/execs/{exec}/signal`).
    #[serde(default = "yes")]
    #[schema(default = true)]
    replay: bool,
}

fn yes() -> bool {
    true
}

/// A shell line or an argument vector.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum CommandText {
    Line(String),
    Program(Vec<String>),
}

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(try_from = "BTreeMap<String, u16>")]
pub(crate) struct Tty {
    #[schema(minimum = 1, maximum = 1000)]
    pub(crate) rows: u16,
    #[schema(minimum = 1, maximum = 1000)]
    pub(crate) cols: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum OnDisconnect {
    #[default]
    Kill,
    Keep,
}

impl Wire for StartExec {
    const LARGE: bool = true;
}

/// Read as a map, because a struct would take a list of two numbers too.
impl TryFrom<BTreeMap<String, u16>> for Tty {
    type Error = &'static str;

    fn try_from(map: BTreeMap<String, u16>) -> Result<Self, &'static str> {
        match (map.get("rows"), map.get("cols"), map.len()) {
            (Some(&rows), Some(&cols), 2) => Ok(Self { rows, cols }),
            _ => Err("a terminal's size has `rows` and `cols`"),
        }
    }
}

impl Tty {
    pub(crate) fn size(self) -> ApiResult<TtySize> {
        let fine = (1..=1000).contains(&self.rows) && (1..=1000).contains(&self.cols);
        let refused = || ApiError::field("tty", "rows and cols must be from 1 to 1000");
        fine.then_some(TtySize { rows: self.rows, cols: self.cols }).ok_or_else(refused)
    }
}

impl StartExec {
    pub(crate) fn is_background(&self) -> bool {
        self.background
    }

    pub(crate) fn into_new(self) -> ApiResult<NewExec> {
        check_words("args", &self.args)?;
        if self.stdin.is_some() && self.stdin_stream {
            return Err(ApiError::field("stdin", "give either `stdin` or `stdin_stream`"));
        }
        if self.context.is_some() && (self.id.is_some() || self.output.is_some()) {
            return Err(ApiError::field("context", "code in a context has no `id` and no `output`"));
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(ApiError::field("timeout", "must be longer than nothing"));
        }
        let no_args = self.args.is_empty();
        let work = match (self.command, self.language, self.context, self.code) {
            (Some(command), None, None, None) if no_args => ExecWork::Command(command.checked()?),
            (None, Some(language), None, Some(code)) => ExecWork::Code { language, code, args: self.args },
            (None, None, Some(context), Some(code)) if no_args => ExecWork::Cell { context, code },
            _ => {
                let choices =
                    "give `command`, or `language` and `code` (with `args`), or `context` and `code`";
                return Err(ApiError::field("command", choices));
            }
        };
        Ok(NewExec {
            work,
            env: self.env,
            cwd: self.cwd,
            user: self.user,
            tty: self.tty.map(Tty::size).transpose()?,
            stdin: self.stdin.map(|stdin| Bytes::from(stdin.into_bytes())),
            stdin_stream: self.stdin_stream,
            timeout: self.timeout,
            background: self.background,
            keep_on_disconnect: self.on_disconnect == OnDisconnect::Keep,
            id: self.id,
            output: self.output,
            replay: self.replay,
        })
    }
}

impl CommandText {
    fn checked(self) -> ApiResult<Command> {
        match self {
            Self::Line(line) => {
                check_words("command", std::slice::from_ref(&line))?;
                if line.is_empty() {
                    return Err(ApiError::field("command", "is empty"));
                }
                Ok(Command::Shell(line))
            }
            Self::Program(argv) => {
                check_words("command", &argv)?;
                if argv.first().is_none_or(String::is_empty) {
                    return Err(ApiError::field("command", "names no program"));
                }
                Ok(Command::Program(argv))
            }
        }
    }
}

fn check_words(field: &str, words: &[String]) -> ApiResult<()> {
    if words.len() > MAX_ARGS {
        return Err(ApiError::field(field, format!("has more than {MAX_ARGS} words")));
    }
    if words.iter().any(|word| word.contains('\0') || word.len() > MAX_ARG) {
        return Err(ApiError::field(field, "has a word with a NUL character or longer than 128 KiB"));
    }
    Ok(())
}

/// A signal for a program, the new size of its terminal, or what of its events can be forgotten: exactly one of these.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignalRequest {
    #[serde(default)]
    #[schema(value_type = Option<SignalShape>)]
    signal: Option<SignalText>,
    #[serde(default)]
    resize: Option<Tty>,
    /// Events with lower numbers are not needed any more: for programs without `replay`.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 9007199254740991_u64)]
    forget: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum SignalText {
    Number(i32),
    Name(String),
}

/// A name such as `interrupt`, `kill`, `SIGTERM`, or a Linux number.
#[expect(dead_code, reason = "only its schema is used")]
#[derive(ToSchema)]
#[serde(untagged)]
enum SignalShape {
    Number(i32),
    Name(SignalName),
}

#[expect(dead_code, reason = "only its schema is used")]
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
enum SignalName {
    Kill,
    Interrupt,
    Terminate,
    Hangup,
    Quit,
    Usr1,
    Usr2,
    Stop,
    Continue,
}

impl Wire for SignalRequest {}

impl SignalRequest {
    pub(crate) fn signal(self) -> ApiResult<ExecSignal> {
        let unknown = || ApiError::field("signal", "must be a signal's name or its number from 1 to 64");
        let signal = match (self.signal, self.resize, self.forget) {
            (Some(signal), None, None) => signal,
            (None, Some(tty), None) => return Ok(ExecSignal::Resize(tty.size()?)),
            (None, None, Some(before)) => return Ok(ExecSignal::Forget { before }),
            _ => return Err(ApiError::field("signal", "give one of `signal`, `resize` and `forget`")),
        };
        let name = match signal {
            SignalText::Number(number) if (1..=64).contains(&number) => {
                return Ok(ExecSignal::Number(number));
            }
            SignalText::Number(_) => return Err(unknown()),
            SignalText::Name(name) => name.to_ascii_lowercase(),
        };
        Ok(match name.strip_prefix("sig").unwrap_or(&name) {
            "kill" => ExecSignal::Kill,
            "int" | "interrupt" => ExecSignal::Interrupt,
            "term" | "terminate" => ExecSignal::Terminate,
            "hup" | "hangup" => ExecSignal::Number(1),
            "quit" => ExecSignal::Number(3),
            "usr1" => ExecSignal::Number(10),
            "usr2" => ExecSignal::Number(12),
            "cont" | "continue" => ExecSignal::Number(18),
            "stop" => ExecSignal::Number(19),
            _ => return Err(unknown()),
        })
    }
}

/// An exec.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Exec)]
pub(crate) struct ExecBody {
    #[schema(value_type = String, pattern = "^exec_[a-z2-7]{26}$")]
    pub(crate) id: ExecId,
    #[schema(value_type = String, pattern = "^sbx_[a-z2-7]{26}$")]
    sandbox: SandboxId,
    #[schema(value_type = Option<String>)]
    context: Option<ContextId>,
    /// The command line or the language.
    title: String,
    background: bool,
    tty: bool,
    /// Whether its output is kept for those who attach later.
    replay: bool,
    running: bool,
    #[schema(value_type = Option<StatusName>)]
    status: Option<Status>,
    /// Once it ended, while it is kept.
    result: Option<ResultBody>,
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
}

/// Execs, latest first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExecList {
    pub(crate) items: Vec<ExecBody>,
}

impl From<ExecView> for ExecBody {
    fn from(view: ExecView) -> Self {
        Self {
            id: view.id,
            sandbox: view.sandbox,
            context: view.context,
            title: view.title,
            background: view.background,
            tty: view.tty,
            replay: view.replay,
            running: view.ended_at.is_none(),
            status: view.status,
            result: view.result.map(ResultBody::from),
            started_at: view.started_at,
            ended_at: view.ended_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::read;

    fn new(json: &str) -> ApiResult<NewExec> {
        read::<StartExec>(json.as_bytes())?.into_new()
    }

    #[test]
    fn there_are_three_kinds_of_work() {
        let line = new(r#"{"command": "ls | wc"}"#).unwrap().work;
        assert!(matches!(line, ExecWork::Command(Command::Shell(line)) if line == "ls | wc"));
        let argv = new(r#"{"command": ["ls", "-l"], "tty": {"rows": 24, "cols": 80}}"#).unwrap().work;
        assert!(matches!(argv, ExecWork::Command(Command::Program(argv)) if argv.len() == 2));
        let code = new(r#"{"language": "python", "code": "1", "args": ["a"]}"#).unwrap().work;
        assert!(matches!(code, ExecWork::Code { .. }));
        let cell = format!(r#"{{"context": "{}", "code": "1"}}"#, ContextId::from_bits(1));
        assert!(matches!(new(&cell).unwrap().work, ExecWork::Cell { .. }));
        assert!(new(r#"{"command": "x", "on_disconnect": "keep"}"#).unwrap().keep_on_disconnect);
    }

    #[test]
    fn mixtures_and_nonsense_are_refused() {
        for bad in [
            "{}",
            r#"{"code": "1"}"#,
            r#"{"command": "x", "code": "1"}"#,
            r#"{"command": "x", "args": ["a"]}"#,
            r#"{"command": ""}"#,
            r#"{"command": []}"#,
            r#"{"command": ["", "a"]}"#,
            r#"{"command": "a\u0000b"}"#,
            r#"{"command": 1}"#,
            r#"{"command": "x", "stdin": "a", "stdin_stream": true}"#,
            r#"{"command": "x", "tty": {"rows": 0, "cols": 80}}"#,
            r#"{"command": "x", "tty": {"rows": 24, "cols": 65536}}"#,
            r#"{"command": "x", "tty": {"rows": 24, "cols": 80, "x": 1}}"#,
            r#"{"command": "x", "tty": [24, 80]}"#,
            r#"{"command": "x", "timeout": 0}"#,
            r#"{"command": "x", "timeout": -1}"#,
            r#"{"command": "x", "cwd": "../x"}"#,
            r#"{"command": "x", "on_disconnect": "maybe"}"#,
            r#"{"command": "x", "context": "ctx_short", "code": "1"}"#,
        ] {
            assert!(new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn signals_have_names_and_numbers() {
        let signal = |json: &str| read::<SignalRequest>(json.as_bytes()).and_then(SignalRequest::signal);
        assert_eq!(signal(r#"{"signal": "SIGINT"}"#).unwrap(), ExecSignal::Interrupt);
        assert_eq!(signal(r#"{"signal": "kill"}"#).unwrap(), ExecSignal::Kill);
        assert_eq!(signal(r#"{"signal": 12}"#).unwrap(), ExecSignal::Number(12));
        let resize = signal(r#"{"resize": {"rows": 24, "cols": 80}}"#).unwrap();
        assert_eq!(resize, ExecSignal::Resize(TtySize { rows: 24, cols: 80 }));
        assert_eq!(signal(r#"{"forget": 7}"#).unwrap(), ExecSignal::Forget { before: 7 });
        assert!(signal(r#"{"signal": "kill", "forget": 7}"#).is_err());
        assert!(signal(r#"{"forget": -1}"#).is_err());
        assert!(signal(r#"{"signal": "kill", "resize": {"rows": 24, "cols": 80}}"#).is_err());
        assert!(signal(r#"{"resize": {"rows": 0, "cols": 80}}"#).is_err());
        for bad in
            [r#"{"signal": 0}"#, r#"{"signal": 65}"#, r#"{"signal": "sigx"}"#, r#"{"signal": 1.5}"#, "{}"]
        {
            assert!(signal(bad).is_err(), "{bad}");
        }
    }
}
