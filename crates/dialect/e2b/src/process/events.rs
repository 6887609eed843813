//! What happens to a program, as messages.

use data_encoding::BASE64;
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use sandstorm_e2b_wire::process::{Data, End as Told, EventMessage};
use sandstorm_e2b_wire::signal;
use sandstorm_types::{ByteSize, ChunkData, End, Event, EventBody, Phase, Status};
use serde::Serialize;
use serde_json::Value;

use super::known::{self, Known};
use crate::door::Guest;
use crate::rpc::{Code, RpcError, RpcResult};
use crate::state::Dialect;

const KILLED: i32 = 9;

/// The messages of a program: its number first, then what it writes, then its end. With `most`, output of so many bytes ends
/// them with an error: nothing that it writes behind those is kept.
pub(crate) fn messages(
    dialect: &Dialect,
    guest: &Guest,
    known: &Known,
    events: BoxStream<'static, Event>,
    most: Option<ByteSize>,
) -> impl Stream<Item = RpcResult<Value>> + Send + use<> {
    let (dialect, guest, known) = (dialect.clone(), guest.clone(), known.clone());
    let start = value(&EventMessage::start(known::pid_of(known.exec)));
    let mut passed = 0;
    let rest = events.filter_map(move |event| {
        if let EventBody::Stdout(chunk) | EventBody::Stderr(chunk) = &event.body {
            passed += chunk.data.as_bytes().len() as u64;
        }
        let lost = most.filter(|most| passed >= most.as_u64());
        let (dialect, guest, known) = (dialect.clone(), guest.clone(), known.clone());
        async move {
            dialect.processes.heard(guest.sandbox, known.exec, event.seq);
            match event.body {
                EventBody::Stdout(_) | EventBody::Stderr(_) if lost.is_some() => Some(Err(too_much(lost))),
                EventBody::Stdout(chunk) if known.tty => Some(Ok(data(Data::Pty, &chunk.data))),
                EventBody::Stdout(chunk) => Some(Ok(data(Data::Stdout, &chunk.data))),
                EventBody::Stderr(chunk) => Some(Ok(data(Data::Stderr, &chunk.data))),
                EventBody::End(end) => {
                    dialect.processes.ended(guest.sandbox, known.exec);
                    Some(dialect.end(&guest, &end).await)
                }
                EventBody::Start { .. } | EventBody::Result(_) | EventBody::Error(_) => None,
            }
        }
    });
    stream::iter([Ok(start)]).chain(rest)
}

fn too_much(most: Option<ByteSize>) -> RpcError {
    let most = most.unwrap_or_default();
    let message = format!("the program wrote {most} of output, and more is not kept: what it says is lost");
    RpcError::new(Code::ResourceExhausted, message)
}

fn data(kind: fn(String) -> Data, bytes: &ChunkData) -> Value {
    value(&EventMessage::data(kind(BASE64.encode(bytes.as_bytes()))))
}

/// Texts and numbers are always JSON.
pub(super) fn value(message: &impl Serialize) -> Value {
    serde_json::to_value(message).unwrap_or(Value::Null)
}

impl Dialect {
    async fn end(&self, guest: &Guest, end: &End) -> RpcResult<Value> {
        if end.status == Status::Timeout {
            return Err(RpcError::new(Code::DeadlineExceeded, "the time of the program is over"));
        }
        if end.problem.is_some() || end.status == Status::Killed || end.signal == Some(KILLED) {
            let view = self.control.sandbox(&guest.caller, guest.sandbox).await;
            // A pause that keeps no memory ends its programs too.
            let lives = view.is_ok_and(|view| matches!(view.phase, Phase::Ready | Phase::Running));
            if !lives {
                return Err(RpcError::sandbox_gone());
            }
        }
        match &end.problem {
            Some(problem) => Err(RpcError::new(Code::Internal, problem.detail.clone())),
            None => Ok(value(&EventMessage::end(told(end)))),
        }
    }
}

/// How a program ended, in the words of Go's `os.ProcessState`, which clients show.
fn told(end: &End) -> Told {
    let why = match end.status {
        Status::Memory => " (the sandbox's memory was used up)",
        Status::Cpu => " (the sandbox's processor time was used up)",
        Status::Output => " (there was more output than is allowed)",
        _ => "",
    };
    match (end.signal, end.exit_code) {
        (None, Some(code)) if why.is_empty() => {
            let status = format!("exit status {code}");
            let error = (code != 0).then(|| status.clone());
            Told { exit_code: code, exited: true, status, error }
        }
        (number, _) => {
            let status = format!("signal: {}{why}", signal::name_of(number.unwrap_or(9)));
            Told { exit_code: -1, exited: false, error: Some(status.clone()), status }
        }
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::{Metrics, PerStream};
    use serde_json::json;

    use super::*;

    fn end(status: Status, exit_code: Option<i32>, signal: Option<i32>) -> Value {
        value(&told(&End {
            status,
            success: status == Status::Ok,
            exit_code,
            signal,
            limits_hit: Vec::new(),
            denied: Vec::new(),
            metrics: Metrics::default(),
            problem: None,
            truncated: PerStream::default(),
        }))
    }

    #[test]
    fn ends_are_told_as_envd_does() {
        let good = json!({"exitCode": 0, "exited": true, "status": "exit status 0"});
        assert_eq!(end(Status::Ok, Some(0), None), good);
        let bad = json!({"exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3"});
        assert_eq!(end(Status::Error, Some(3), None), bad);
        let killed =
            json!({"exitCode": -1, "exited": false, "status": "signal: killed", "error": "signal: killed"});
        assert_eq!(end(Status::Error, None, Some(9)), killed);
        assert_eq!(end(Status::Killed, None, None), killed);
        assert_eq!(end(Status::Error, None, Some(15))["status"], "signal: terminated");
        assert!(end(Status::Memory, None, Some(9))["status"].as_str().unwrap().contains("memory"));
        assert_eq!(end(Status::Memory, Some(0), None)["exitCode"], -1);
    }
}
