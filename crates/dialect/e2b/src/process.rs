//! `process.Process`: programs started, listened to, fed and signalled.

pub(crate) mod events;
mod input;
pub(crate) mod known;
mod start;
mod wire;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;
use sandstorm_e2b_wire::process::{Selected, Selector, SignalRequest, UpdateRequest};
use sandstorm_provider::ExecSignal;
use serde_json::{Value, json};

use crate::door::Guest;
use crate::rpc::{self, Code, RpcError, RpcResult};
use crate::state::Dialect;
use known::Known;

/// The one call whose request is a stream.
pub(crate) const STREAM_INPUT: &str = "/process.Process/StreamInput";

pub(crate) async fn call(
    State(dialect): State<Dialect>,
    Extension(guest): Extension<Guest>,
    Path(method): Path<String>,
    headers: HeaderMap,
    content: Body,
) -> Response {
    let stream = |result: RpcResult<Response>| result.unwrap_or_else(|error| rpc::failed_stream(&error));
    match method.as_str() {
        "Start" => stream(dialect.start(&guest, &headers, content).await),
        "Connect" => stream(dialect.connect(&guest, &headers, content).await),
        "StreamInput" => dialect.stream_input(&guest, &headers, content).await,
        "List" => rpc::answer(rpc::in_time(&headers, dialect.list(&guest)).await),
        "Update" | "SendInput" | "SendSignal" | "CloseStdin" => {
            let steered = dialect.steer(&guest, &method, &headers, content);
            rpc::answer(rpc::in_time(&headers, steered).await)
        }
        _ => rpc::no_method(&method),
    }
}

impl Dialect {
    async fn steer(
        &self,
        guest: &Guest,
        method: &str,
        headers: &HeaderMap,
        content: Body,
    ) -> RpcResult<Value> {
        let mut room = self.control.body_room(&guest.caller);
        match method {
            "Update" => {
                let asked: UpdateRequest = rpc::message(headers, content, &mut room).await?;
                let known = self.running(guest, asked.process.as_ref()).await?;
                if let Some(pty) = asked.pty {
                    self.signal(guest, &known, ExecSignal::Resize(wire::size(pty)?)).await?;
                }
            }
            "SendInput" => {
                let asked = rpc::message(headers, content, &mut room).await?;
                self.send_input(guest, asked).await?;
            }
            "SendSignal" => {
                let asked: SignalRequest = rpc::message(headers, content, &mut room).await?;
                let known = self.running(guest, asked.process.as_ref()).await?;
                let signal = wire::signal(asked.signal);
                self.signal(guest, &known, signal).await?;
                if signal == ExecSignal::Kill {
                    // Nothing survives that, and who kills it once more is told that it is gone.
                    self.processes.ended(guest.sandbox, known.exec);
                }
            }
            _ => {
                let asked: Selected = rpc::message(headers, content, &mut room).await?;
                let known = self.running(guest, asked.process.as_ref()).await?;
                self.signal(guest, &known, ExecSignal::CloseStdin).await?;
            }
        }
        Ok(json!({}))
    }

    async fn signal(&self, guest: &Guest, known: &Known, signal: ExecSignal) -> RpcResult<()> {
        Ok(self.control.signal(&guest.caller, guest.sandbox, known.exec, signal).await?)
    }

    /// Programs that run, those of the interpreter left out.
    async fn list(&self, guest: &Guest) -> RpcResult<Value> {
        let execs = self.control.execs(&guest.caller, guest.sandbox, true).await?;
        let shown = execs.into_iter().filter(|exec| exec.context.is_none()).map(|exec| {
            let pid = known::pid_of(exec.id);
            match self.processes.get(guest.sandbox, pid) {
                Some(known) => json!({"config": known.config, "pid": pid, "tag": known.tag}),
                // Started by an earlier server: what it was is known in words only.
                None => json!({"config": {"cmd": exec.title, "args": [], "envs": {}}, "pid": pid}),
            }
        });
        let processes: Vec<Value> = shown.map(without_nulls).collect();
        Ok(json!({"processes": processes}))
    }

    /// The program that is meant, if it runs.
    async fn running(&self, guest: &Guest, selector: Option<&Selector>) -> RpcResult<Known> {
        let known = self.meant(guest, selector).await?;
        // It may have ended while nobody listened.
        let view = self.control.exec_view(&guest.caller, guest.sandbox, known.exec).await?;
        if known.has_ended() || view.status.is_some() {
            self.processes.ended(guest.sandbox, known.exec);
            return Err(not_found(known::pid_of(known.exec)));
        }
        Ok(known)
    }

    /// The program that is meant; one that ended is known for a while.
    async fn meant(&self, guest: &Guest, selector: Option<&Selector>) -> RpcResult<Known> {
        let selector = selector.ok_or_else(|| RpcError::invalid("process is missing"))?;
        match selector {
            Selector::Pid(pid) => {
                if let Some(known) = self.processes.get(guest.sandbox, *pid) {
                    return Ok(known);
                }
                let execs = self.control.execs(&guest.caller, guest.sandbox, true).await?;
                let exec = execs.into_iter().find(|exec| known::pid_of(exec.id) == *pid);
                let exec = exec.filter(|exec| exec.context.is_none()).ok_or_else(|| not_found(*pid))?;
                Ok(self.processes.adopt(guest.sandbox, &exec))
            }
            Selector::Tag(tag) => {
                let known = self.processes.tagged(guest.sandbox, tag);
                let shown: String = tag.chars().take(64).collect();
                known.ok_or_else(|| {
                    RpcError::new(Code::NotFound, format!("process with tag {shown} not found"))
                })
            }
        }
    }
}

fn not_found(pid: u32) -> RpcError {
    RpcError::new(Code::NotFound, format!("process with pid {pid} not found"))
}

/// Fields that are unset are absent in these messages.
fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(fields) = &mut value {
        fields.retain(|_, field| !field.is_null());
    }
    value
}
