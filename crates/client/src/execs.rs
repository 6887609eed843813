//! Programs and pieces of code in a sandbox.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use sandstorm_types::{
    ByteSize, ContextId, EnvMap, ExecId, GuestPath, LanguageName, RunResult, SandboxId, Status, Timestamp,
    User, duration,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::address::with_query;
use crate::call::Call;
use crate::event_stream::EventStream;
use crate::{Client, ExecEvents, Result};

/// How many bytes of input a program has had in all, as the server says it.
const STDIN_OFFSET: &str = "stdin-offset";

/// What to run: a line for the shell, or a program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Command {
    Shell(String),
    Program(Vec<String>),
}

/// Input that is known in advance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum StdinForm {
    Text(String),
    Base64 { base64: String },
}

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TtySize {
    pub rows: u16,
    pub cols: u16,
}

/// An exec to start: either a command, or code in a language.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NewExec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Command>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<LanguageName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    #[serde(skip_serializing_if = "EnvMap::is_empty")]
    pub env: EnvMap,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<GuestPath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<User>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<StdinForm>,
    /// Whether input follows by [`Client::write_stdin`].
    #[serde(skip_serializing_if = "is_false")]
    pub stdin_stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tty: Option<TtySize>,
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "duration::optional_seconds::serialize"
    )]
    pub timeout: Option<Duration>,
    /// A foreground exec that outlives its listener.
    #[serde(rename = "on_disconnect", skip_serializing_if = "is_false", serialize_with = "keep_or_kill")]
    pub keep: bool,
    /// The id to give to it; the server's choice unless given. One that exists already is a conflict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<ExecId>,
    /// Bytes of output that are kept; the sandbox's limit unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<ByteSize>,
    /// A command in the background whose output has no limit, waits for its listener and is not kept beyond what
    /// [`Signal::Forget`] names.
    #[serde(rename = "replay", skip_serializing_if = "is_false", serialize_with = "no_replay")]
    pub passing: bool,
}

impl NewExec {
    pub fn shell(line: impl Into<String>) -> Self {
        Self { command: Some(Command::Shell(line.into())), ..Self::default() }
    }

    pub fn program(argv: Vec<String>) -> Self {
        Self { command: Some(Command::Program(argv)), ..Self::default() }
    }
}

/// An exec that runs on whoever listens.
#[derive(Serialize)]
struct InBackground<'a> {
    #[serde(flatten)]
    new: &'a NewExec,
    background: bool,
}

fn yes() -> bool {
    true
}

fn is_false(value: &bool) -> bool {
    !value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn keep_or_kill<S: serde::Serializer>(keep: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *keep { "keep" } else { "kill" })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn no_replay<S: serde::Serializer>(passing: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(!*passing)
}

/// An exec as its owner sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Exec {
    pub id: ExecId,
    #[serde(default)]
    pub context: Option<ContextId>,
    /// What was asked for, for people.
    #[serde(default)]
    pub title: String,
    #[serde(default)]
    pub background: bool,
    /// Whether its output is kept for those who attach later.
    #[serde(default = "yes")]
    pub replay: bool,
    #[serde(default)]
    pub running: bool,
    /// `None` while it runs, and when the platform failed.
    #[serde(default)]
    pub status: Option<Status>,
    #[serde(default)]
    pub result: Option<RunResult>,
    pub started_at: Timestamp,
    #[serde(default)]
    pub ended_at: Option<Timestamp>,
    /// Whatever else the server tells, as it tells it.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

#[derive(Deserialize)]
struct Execs {
    items: Vec<Exec>,
}

/// A message to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Interrupt,
    Terminate,
    Kill,
    /// A signal by its Linux number.
    Number(i32),
    Resize(TtySize),
    /// Not to the program: its events before this number are not needed any more.
    Forget {
        before: u64,
    },
}

impl Signal {
    fn body(self) -> Value {
        match self {
            Self::Interrupt => serde_json::json!({ "signal": "interrupt" }),
            Self::Terminate => serde_json::json!({ "signal": "terminate" }),
            Self::Kill => serde_json::json!({ "signal": "kill" }),
            Self::Number(number) => serde_json::json!({ "signal": number }),
            Self::Resize(size) => serde_json::json!({ "resize": size }),
            Self::Forget { before } => serde_json::json!({ "forget": before }),
        }
    }
}

impl Client {
    /// Starts in the foreground and streams. Dropping the events ends it, unless it is to be kept.
    pub async fn exec(&self, sandbox: SandboxId, new: &NewExec) -> Result<ExecEvents> {
        let call = Call::post(self.sandbox_url(sandbox, &["exec"])).json(new).events();
        let response = self.send(call).await?;
        Ok(ExecEvents::started(self, sandbox, EventStream::over(self, response), new.keep))
    }

    /// Starts in the background.
    pub async fn start(&self, sandbox: SandboxId, new: &NewExec) -> Result<Exec> {
        let new = InBackground { new, background: true };
        self.ask(Call::post(self.sandbox_url(sandbox, &["exec"])).json(&new).once()).await
    }

    /// Runs to the end and gives the result. Takes as long as the program takes.
    pub async fn finish(&self, sandbox: SandboxId, new: &NewExec) -> Result<RunResult> {
        self.ask(Call::post(self.sandbox_url(sandbox, &["exec"])).json(new).without_deadline()).await
    }

    /// Events after number `after`, all of them with `None`, also of an exec that has ended, while it is kept.
    pub async fn attach(&self, sandbox: SandboxId, exec: ExecId, after: Option<u64>) -> Result<ExecEvents> {
        let events = EventStream::open(self, self.exec_events_url(sandbox, exec), after).await?;
        Ok(ExecEvents::attached(self, sandbox, exec, events))
    }

    pub async fn exec_view(&self, sandbox: SandboxId, exec: ExecId) -> Result<Exec> {
        self.ask(Call::get(self.exec_url(sandbox, exec, &[]))).await
    }

    /// The latest ones first.
    pub async fn execs(&self, sandbox: SandboxId, running_only: bool) -> Result<Vec<Exec>> {
        let url = with_query(
            self.sandbox_url(sandbox, &["execs"]),
            &[("running", running_only.then(|| "true".to_owned()))],
        );
        Ok(self.ask::<Execs>(Call::get(url)).await?.items)
    }

    /// Returns when the sandbox has the bytes; waits while the program does not read.
    pub async fn write_stdin(&self, sandbox: SandboxId, exec: ExecId, bytes: Bytes) -> Result<()> {
        self.write_stdin_at(sandbox, exec, bytes, None).await.map(drop)
    }

    /// The same with the place of the first byte in the program's input: what the program has had already is left out, and
    /// a gap is a conflict. Gives how many bytes it has had in all, if that is counted.
    pub async fn write_stdin_at(
        &self,
        sandbox: SandboxId,
        exec: ExecId,
        bytes: Bytes,
        at: Option<u64>,
    ) -> Result<Option<u64>> {
        let url = self.exec_url(sandbox, exec, &["stdin"]);
        let url = with_query(url, &[("offset", at.map(|at| at.to_string()))]);
        let call = Call::post(url).bytes("application/octet-stream", bytes.into()).without_deadline();
        let response = self.send(call).await?;
        let counted =
            response.headers().get(STDIN_OFFSET).and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(counted)
    }

    /// The program reads the end of its input.
    pub async fn close_stdin(&self, sandbox: SandboxId, exec: ExecId) -> Result<()> {
        let url = with_query(self.exec_url(sandbox, exec, &["stdin"]), &[("close", Some("true".to_owned()))]);
        self.tell(Call::post(url).bytes("application/octet-stream", Vec::new()).repeatable()).await
    }

    pub async fn signal(&self, sandbox: SandboxId, exec: ExecId, signal: Signal) -> Result<()> {
        self.tell(Call::post(self.exec_url(sandbox, exec, &["signal"])).json(&signal.body())).await
    }

    pub async fn kill(&self, sandbox: SandboxId, exec: ExecId) -> Result<()> {
        self.tell(Call::new(Method::DELETE, self.exec_url(sandbox, exec, &[]))).await
    }

    fn exec_url(&self, sandbox: SandboxId, exec: ExecId, rest: &[&str]) -> reqwest::Url {
        let exec = exec.to_string();
        let mut parts = vec!["execs", &exec];
        parts.extend(rest);
        self.sandbox_url(sandbox, &parts)
    }

    pub(crate) fn exec_events_url(&self, sandbox: SandboxId, exec: ExecId) -> reqwest::Url {
        self.exec_url(sandbox, exec, &["events"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_say_what_was_asked_and_no_more() {
        let plain = serde_json::to_value(NewExec::shell("ls | wc")).unwrap();
        assert_eq!(plain, serde_json::json!({ "command": "ls | wc" }));
        let passing = serde_json::to_value(NewExec { passing: true, ..NewExec::shell("x") }).unwrap();
        assert_eq!(passing, serde_json::json!({ "command": "x", "replay": false }));
        let new = NewExec {
            keep: true,
            stdin_stream: true,
            tty: Some(TtySize { rows: 24, cols: 80 }),
            timeout: Some(Duration::from_millis(1500)),
            ..NewExec::program(vec!["cat".to_owned(), "-".to_owned()])
        };
        let expected = serde_json::json!({
            "command": ["cat", "-"], "stdin_stream": true, "tty": { "rows": 24, "cols": 80 }, "timeout": 1.5,
            "on_disconnect": "keep",
        });
        assert_eq!(serde_json::to_value(&new).unwrap(), expected);
        let background = serde_json::to_value(InBackground { new: &new, background: true }).unwrap();
        assert_eq!((&background["background"], &background["timeout"]), (&true.into(), &1.5.into()));
    }
}
