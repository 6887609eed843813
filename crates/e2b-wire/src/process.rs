//! Messages of `process.Process`.

use std::collections::BTreeMap;

use data_encoding::{BASE64, DecodeError};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::signal::Signal;

/// A program to start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    pub cmd: String,
    pub args: Vec<String>,
    pub envs: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// Which program is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selector {
    Pid(u32),
    Tag(String),
}

/// A terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Pty {
    pub size: Size,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Size {
    pub cols: u32,
    pub rows: u32,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StartRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Config>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pty: Option<Pty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Clients of old say nothing and mean that there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdin: Option<bool>,
}

/// Any request that names a program and nothing else.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Selected {
    pub process: Option<Selector>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct UpdateRequest {
    pub process: Option<Selector>,
    pub pty: Option<Pty>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SignalRequest {
    pub process: Option<Selector>,
    pub signal: Signal,
}

/// Bytes for a program, in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    Stdin(String),
    Pty(String),
}

impl Input {
    pub fn to_program(bytes: &[u8]) -> Self {
        Self::Stdin(BASE64.encode(bytes))
    }

    pub fn to_terminal(bytes: &[u8]) -> Self {
        Self::Pty(BASE64.encode(bytes))
    }

    pub fn bytes(&self) -> Result<Vec<u8>, DecodeError> {
        let (Self::Stdin(text) | Self::Pty(text)) = self;
        BASE64.decode(text.as_bytes())
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InputRequest {
    pub process: Option<Selector>,
    pub input: Option<Input>,
}

/// One message of a stream of input.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputMessage {
    Start(Selected),
    Data(InputData),
    Keepalive(IgnoredAny),
}

#[derive(Debug, Deserialize)]
pub struct InputData {
    pub input: Option<Input>,
}

/// One message about a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventMessage {
    pub event: Event,
}

/// What happened to it. Exactly one is there, or none that this version knows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Data>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Keepalive>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Start {
    pub pid: u32,
}

/// Output in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    Stdout(String),
    Stderr(String),
    Pty(String),
}

/// The end of a program; the code is -1 where a signal ended it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct End {
    #[serde(alias = "exit_code")]
    pub exit_code: i32,
    pub exited: bool,
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Keepalive {}

impl EventMessage {
    pub fn start(pid: u32) -> Self {
        Self { event: Event { start: Some(Start { pid }), ..Event::default() } }
    }

    pub fn data(data: Data) -> Self {
        Self { event: Event { data: Some(data), ..Event::default() } }
    }

    pub fn end(end: End) -> Self {
        Self { event: Event { end: Some(end), ..Event::default() } }
    }

    pub fn keepalive() -> Self {
        Self { event: Event { keepalive: Some(Keepalive {}), ..Event::default() } }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn what_the_sdks_send_is_read() {
        let start: StartRequest = from_value(json!({
            "process": {"cmd": "/bin/bash", "args": ["-l", "-c", "echo hi"], "envs": {"A": "B"}, "cwd": "/tmp"},
            "stdin": false, "unknown": 1,
        }))
        .unwrap();
        assert_eq!(start.process.unwrap().args.len(), 3);
        assert_eq!(start.stdin, Some(false));
        let by_pid: Selected = from_value(json!({"process": {"pid": 7}})).unwrap();
        assert_eq!(by_pid.process, Some(Selector::Pid(7)));
        let by_tag: Selected = from_value(json!({"process": {"tag": "t"}})).unwrap();
        assert_eq!(by_tag.process, Some(Selector::Tag("t".into())));
        let message: InputMessage = from_value(json!({"data": {"input": {"stdin": "aGk="}}})).unwrap();
        let InputMessage::Data(InputData { input: Some(input) }) = message else { panic!("data") };
        assert_eq!(input.bytes().unwrap(), b"hi");
        assert!(Input::Stdin("not base64".into()).bytes().is_err());
    }

    #[test]
    fn events_have_the_form_that_clients_know() {
        assert_eq!(to_value(EventMessage::start(7)).unwrap(), json!({"event": {"start": {"pid": 7}}}));
        let data = EventMessage::data(Data::Stdout("aGkK".to_owned()));
        assert_eq!(to_value(data).unwrap(), json!({"event": {"data": {"stdout": "aGkK"}}}));
        assert_eq!(to_value(EventMessage::keepalive()).unwrap(), json!({"event": {"keepalive": {}}}));
        let left_out: EventMessage = from_value(json!({"event": {"end": {"exited": true}}})).unwrap();
        assert_eq!(left_out.event.end.map(|end| end.exit_code), Some(0));
        let later: EventMessage = from_value(json!({"event": {"invented": {}}})).unwrap();
        assert_eq!(later.event, Event::default());
    }
}
