//! What an execution gives, as lines of JSON.

use sandstorm_types::{End, ProgramError, RichResult, Status, Timestamp};
use serde_json::{Map, Value, json};

/// The number of an execution that has no interpreter before it.
pub(super) const ALONE: u64 = 1;

/// Fields of a result by MIME type; other types go under `extra`.
const FIELDS: [(&str, &str); 13] = [
    ("text/plain", "text"),
    ("text/html", "html"),
    ("text/markdown", "markdown"),
    ("image/svg+xml", "svg"),
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("application/pdf", "pdf"),
    ("text/latex", "latex"),
    ("application/json", "json"),
    ("application/javascript", "javascript"),
    ("application/vnd.sandstorm.data+json", "data"),
    ("application/vnd.sandstorm.chart+json", "chart"),
    ("e2b/chart", "chart"),
];

pub(super) fn printed(stream: &str, bytes: &[u8]) -> Value {
    let text = String::from_utf8_lossy(bytes);
    json!({"type": stream, "text": text, "timestamp": Timestamp::now()})
}

pub(super) fn result(result: RichResult) -> Value {
    let mut line = Map::new();
    let mut extra = Map::new();
    for (mime, value) in result.data {
        match FIELDS.iter().find(|(known, _)| *known == mime) {
            Some((_, "text")) => {
                line.insert("text".to_owned(), unquoted(value));
            }
            Some((_, field)) => {
                line.insert((*field).to_owned(), value);
            }
            None => {
                extra.insert(mime, value);
            }
        }
    }
    if !extra.is_empty() {
        line.insert("extra".to_owned(), extra.into());
    }
    line.insert("type".to_owned(), "result".into());
    line.insert("is_main_result".to_owned(), result.main.into());
    line.into()
}

/// A text's own quotes are left out, as E2B's server does it.
fn unquoted(value: Value) -> Value {
    let Value::String(text) = &value else { return value };
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inner.into();
        }
    }
    value
}

pub(super) fn error(error: &ProgramError) -> Value {
    json!({
        "type": "error",
        "name": error.name,
        "value": error.value,
        "traceback": error.traceback.join("\n"),
    })
}

/// The error of an execution that ended badly without one of its own.
pub(super) fn unsaid(end: &End) -> Option<Value> {
    let (name, value) = match (end.status, &end.problem) {
        (_, Some(problem)) => ("UnexpectedEndOfExecution", problem.detail.clone()),
        (Status::Ok, None) => return None,
        (Status::Timeout, None) => ("TimeoutError", "the time of the execution is over".to_owned()),
        (Status::Memory, None) => ("MemoryError", "the memory of the sandbox is used up".to_owned()),
        (Status::Error | Status::CompileError, None) => match (end.exit_code, end.signal) {
            (Some(code), None) => ("ExitError", format!("exit status {code}")),
            (_, signal) => ("ExitError", format!("signal {}", signal.unwrap_or(9))),
        },
        (_, None) => ("UnexpectedEndOfExecution", "the execution was ended".to_owned()),
    };
    Some(json!({"type": "error", "name": name, "value": value, "traceback": ""}))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn types_become_fields() {
        let data = BTreeMap::from([
            ("text/plain".to_owned(), json!("'hi'")),
            ("image/png".to_owned(), json!("aGk=")),
            ("application/vnd.sandstorm.chart+json".to_owned(), json!({"type": "line"})),
            ("x/y".to_owned(), json!("z")),
        ]);
        let line = result(RichResult { data, metadata: BTreeMap::new(), main: true });
        assert_eq!((&line["text"], &line["png"]), (&json!("hi"), &json!("aGk=")));
        assert_eq!((&line["chart"]["type"], &line["extra"]["x/y"]), (&json!("line"), &json!("z")));
        assert_eq!((&line["type"], &line["is_main_result"]), (&json!("result"), &json!(true)));
        for (given, wanted) in [("'", "'"), ("''", ""), ("\"a'", "\"a'"), ("1", "1")] {
            assert_eq!(unquoted(json!(given)), json!(wanted));
        }
    }
}
