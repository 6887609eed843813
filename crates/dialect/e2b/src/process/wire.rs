//! Messages of `process.Process`, in the JSON form of their protocol buffers: names in either spelling, numbers or names
//! for enumerations.

use std::collections::BTreeMap;

use sandstorm_provider::{ExecSignal, TtySize};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::rpc::{RpcError, RpcResult};

/// Largest terminal; more is no terminal.
const LARGEST: u32 = 1000;
const KILL: i64 = 9;
const TERMINATE: i64 = 15;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    pub(crate) cmd: String,
    pub(crate) args: Vec<String>,
    pub(crate) envs: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cwd: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Selector {
    Pid(u32),
    Tag(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pty {
    size: Size,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Size {
    cols: u32,
    rows: u32,
}

impl Pty {
    pub(crate) fn size(&self) -> RpcResult<TtySize> {
        let number = |given: u32, usual: u16| match given {
            0 => Ok(usual),
            1..=LARGEST => Ok(u16::try_from(given).unwrap_or(usual)),
            _ => Err(RpcError::invalid("a terminal has at most 1000 columns and rows")),
        };
        Ok(TtySize { rows: number(self.size.rows, 24)?, cols: number(self.size.cols, 80)? })
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct StartRequest {
    pub(crate) process: Option<Config>,
    pub(crate) pty: Option<Pty>,
    pub(crate) tag: Option<String>,
    pub(crate) stdin: Option<bool>,
}

/// Any request that names a program and nothing else.
#[derive(Debug, Deserialize)]
pub(crate) struct Selected {
    pub(crate) process: Option<Selector>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct UpdateRequest {
    pub(crate) process: Option<Selector>,
    pub(crate) pty: Option<Pty>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct SignalRequest {
    pub(crate) process: Option<Selector>,
    #[serde(default)]
    signal: Value,
}

impl SignalRequest {
    pub(crate) fn signal(&self) -> RpcResult<ExecSignal> {
        match (self.signal.as_str(), self.signal.as_i64()) {
            (Some("SIGNAL_SIGKILL"), _) | (_, Some(KILL)) => Ok(ExecSignal::Kill),
            (Some("SIGNAL_SIGTERM"), _) | (_, Some(TERMINATE)) => Ok(ExecSignal::Terminate),
            _ => Err(RpcError::invalid("the signal must be SIGNAL_SIGKILL or SIGNAL_SIGTERM")),
        }
    }
}

/// Bytes for a program, in base64.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Input {
    Stdin(String),
    Pty(String),
}

impl Input {
    pub(crate) fn bytes(&self) -> RpcResult<Vec<u8>> {
        let (Self::Stdin(text) | Self::Pty(text)) = self;
        data_encoding::BASE64
            .decode(text.as_bytes())
            .map_err(|_| RpcError::invalid("the input is not standard base64"))
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct InputRequest {
    pub(crate) process: Option<Selector>,
    pub(crate) input: Option<Input>,
}

/// One message of a stream of input.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InputMessage {
    Start(Selected),
    Data(InputData),
    Keepalive(serde::de::IgnoredAny),
}

#[derive(Debug, Deserialize)]
pub(crate) struct InputData {
    pub(crate) input: Option<Input>,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

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
    }

    #[test]
    fn signals_are_named_or_numbered() {
        for (given, wanted) in [
            (json!("SIGNAL_SIGKILL"), Some(ExecSignal::Kill)),
            (json!(9), Some(ExecSignal::Kill)),
            (json!("SIGNAL_SIGTERM"), Some(ExecSignal::Terminate)),
            (json!(1), None),
            (json!(null), None),
            (json!("SIGKILL"), None),
        ] {
            let request: SignalRequest = from_value(json!({"process": {"pid": 1}, "signal": given})).unwrap();
            assert_eq!(request.signal().ok(), wanted, "{given}");
        }
    }

    #[test]
    fn terminals_have_a_size() {
        let pty =
            |cols, rows| from_value::<Pty>(json!({"size": {"cols": cols, "rows": rows}})).unwrap().size();
        assert_eq!(pty(80, 24).unwrap(), TtySize { rows: 24, cols: 80 });
        assert_eq!(pty(0, 0).unwrap(), TtySize { rows: 24, cols: 80 });
        assert!(pty(1001, 1).is_err() && pty(1, u32::MAX).is_err());
        assert!(Input::Stdin("not base64".into()).bytes().is_err());
    }
}
