//! Handlers: code with a function `handler(event)` or `handler(event, context)`, run once in a sandbox of its own.

use std::time::Duration;

use axum::extract::State;
use axum::{Extension, Json};
use bytes::Bytes;
use sandstorm_control::server::{Caller, NewSandbox};
use sandstorm_control::unindented;
use sandstorm_provider::Command;
use sandstorm_types::{ErrorKind, LimitsPatch, OnEnd, RunResult, Status};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::program::{exec_of, finished, report, report_place, text};
use crate::refusal::HandlerRefusal;
use crate::request::BodyFields;
use crate::router::Dialect;
use crate::session::{USUAL_SIZE, surroundings};
use crate::throwaway::{GRACE, Throwaway};

const PROGRAM: &str = include_str!("../programs/handler.py");
const LONGEST: f64 = 3600.0;

#[derive(Debug, Serialize)]
pub(crate) struct Handled {
    stdout: String,
    stderr: String,
    result: Value,
    metrics: Metrics,
}

#[derive(Debug, Serialize)]
struct Metrics {
    duration_ms: f64,
    memory_peak_mb: f64,
    cpu_time_ms: f64,
    timeout_seconds: f64,
}

pub(crate) async fn execute(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    BodyFields(mut body, _room): BodyFields,
) -> Result<Json<Handled>, HandlerRefusal> {
    let (code, event, context) = (body.text("handler_code"), body.object("event"), body.object("context"));
    body.done()?;
    if !code.contains("handler") {
        return Err(HandlerRefusal::parameter("handler_code must define a function `handler`"));
    }
    let code = unindented("python", &code).into_owned();
    let timeout = timeout(&event, dialect.sessions.settings.timeout)?;
    let place =
        Throwaway::make(&dialect.sessions.control, &caller, wanted(&dialect, timeout)?, &dialect.tasks)
            .await?;
    let handled = run(&dialect, &caller, &place, Call { code, event, context, timeout }).await;
    place.end().await;
    handled.map(Json)
}

/// How long a handler may take: `__timeout` of its event in seconds, which nothing and less mean the usual time.
fn timeout(event: &Map<String, Value>, usual: Duration) -> Result<Duration, HandlerRefusal> {
    let asked = match event.get("__timeout") {
        None | Some(Value::Null) => return Ok(usual),
        Some(Value::Number(seconds)) => seconds.as_f64(),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(_) => None,
    };
    match asked {
        Some(seconds) if seconds <= 0.0 => Ok(usual),
        Some(seconds) if seconds.is_finite() => Ok(Duration::from_secs_f64(seconds.min(LONGEST))),
        _ => Err(HandlerRefusal::parameter("__timeout must be a number of seconds")),
    }
}

fn wanted(dialect: &Dialect, timeout: Duration) -> Result<NewSandbox, HandlerRefusal> {
    let limits = dialect.sessions.limits(USUAL_SIZE)?;
    Ok(NewSandbox {
        limits: LimitsPatch { wall: Some(timeout), cpu_time: dialect.sessions.settings.cpu_time, ..limits },
        env: surroundings(),
        network: dialect.sessions.network(),
        lifetime: Some(timeout + GRACE),
        on_end: Some(OnEnd::Delete),
        contexts: true,
        ..NewSandbox::default()
    })
}

#[derive(Debug)]
struct Call {
    code: String,
    event: Map<String, Value>,
    context: Map<String, Value>,
    timeout: Duration,
}

async fn run(
    dialect: &Dialect,
    caller: &Caller,
    sandbox: &Throwaway,
    call: Call,
) -> Result<Handled, HandlerRefusal> {
    let (control, settings) = (&dialect.sessions.control, &dialect.sessions.settings);
    let place = report_place()?;
    let Call { code, event, context, timeout } = call;
    let stdin = json!({
        "code": code,
        "event": event,
        "context": context,
        "timeout": timeout.as_secs_f64(),
        "report": place.as_str(),
    });
    let command = Command::Program(vec![settings.python.clone(), "-c".to_owned(), PROGRAM.to_owned()]);
    let exec = exec_of(command, timeout, Some(Bytes::from(stdin.to_string())));
    let result = match finished(control, caller, sandbox.id(), exec).await {
        Ok(result) => result,
        // There is nothing in this command that the client chose.
        Err(error) if error.kind() == ErrorKind::InvalidRequest => {
            return Err(HandlerRefusal::no_python(error.message()));
        }
        Err(error) => return Err(error.into()),
    };
    judge(&result, timeout)?;
    let report = report(control, caller, sandbox.id(), &place).await?;
    let value = value(report, &result)?;
    Ok(Handled {
        stdout: text(result.stdout_bytes()),
        stderr: text(result.stderr_bytes()),
        result: value,
        metrics: Metrics {
            duration_ms: result.metrics.exec_ms,
            memory_peak_mb: result.metrics.peak_memory_bytes as f64 / f64::from(1 << 20),
            cpu_time_ms: result.metrics.cpu_ms,
            timeout_seconds: timeout.as_secs_f64(),
        },
    })
}

/// A handler that a limit ended has no result.
fn judge(result: &RunResult, timeout: Duration) -> Result<(), HandlerRefusal> {
    let limit = match result.status {
        Status::Ok | Status::Error | Status::CompileError => return Ok(()),
        Status::Timeout => return Err(HandlerRefusal::timeout(timeout)),
        Status::Cpu => "processor time",
        Status::Memory => "memory",
        Status::Output => "output",
        Status::Killed => return Err(HandlerRefusal::exception("the handler was ended")),
    };
    Err(HandlerRefusal::exception(format!("the handler was ended at its limit of {limit}")))
}

/// What the handler returned, from the report of the program that called it.
fn value(report: Option<Map<String, Value>>, result: &RunResult) -> Result<Value, HandlerRefusal> {
    let Some(mut report) = report else {
        let how = match (result.signal, result.exit_code) {
            (Some(signal), _) => format!("signal {signal}"),
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => "no exit code".to_owned(),
        };
        let stderr = text(result.stderr_bytes());
        return Err(HandlerRefusal::exception(format!(
            "the process ended before the handler did: {how}\n{stderr}"
        )));
    };
    match report.get("outcome").and_then(Value::as_str) {
        Some("ok") => Ok(report.remove("result").unwrap_or(Value::Null)),
        _ => {
            let error = report.get("error").and_then(Value::as_str);
            Err(HandlerRefusal::exception(error.unwrap_or("the handler left no result")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_asked_for_in_the_event() {
        let usual = Duration::from_secs(300);
        let of = |value: Value| {
            let event = Map::from_iter([("__timeout".to_owned(), value)]);
            timeout(&event, usual).ok().map(|timeout| timeout.as_secs_f64())
        };
        assert_eq!(timeout(&Map::new(), usual).ok(), Some(usual));
        assert_eq!(of(json!(2)), Some(2.0));
        assert_eq!(of(json!(0.5)), Some(0.5));
        assert_eq!(of(json!("7")), Some(7.0));
        assert_eq!(of(json!(0)), Some(300.0));
        assert_eq!(of(json!(-1)), Some(300.0));
        assert_eq!(of(json!(1e300)), Some(3600.0));
        assert_eq!(of(json!("NaN")), None);
        assert_eq!(of(json!("inf")), None);
        assert_eq!(of(json!([])), None);
    }
}
