//! The tools that SandboxRunner's users know, with their own names, arguments and metadata.
//!
//! Each answers with one text and `isError`; what SandboxRunner called metadata is the structured content. They work on
//! the same sandboxes as all other tools, so ids look as they do everywhere here.
//!
//! `run_code` is the name of a tool of the core too. With this set on, one entry serves both: a call that names a sandbox and
//! nothing that only the core's knows is SandboxRunner's, every other is the core's. See [`is_core_call`].

mod execs;
mod files;
mod guess;
mod languages;
mod listing;
mod options;
mod program;
mod reading;
mod sandboxes;
mod split;

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ContentBlock, JsonObject};
use sandstorm_provider::Error;
use sandstorm_types::{ErrorKind, Phase, SandboxId};
use serde_json::{Map, Value};

use super::run_code::RunCode as CoreRunCode;
use super::{Entry, run};
use crate::call::Call;
use crate::refusal::Refusal;
use crate::settings::Toolset;

const SET: Toolset = Toolset::SandboxRunner;

/// Seconds that a call may ask for.
const LONGEST: f64 = 300.0;

/// Arguments of `run_code` that only the core's has.
const CORE_ONLY: [&str; 8] = ["context_id", "keep", "packages", "files", "stdin", "args", "env", "timeout_s"];

pub(super) fn entries() -> Vec<Entry> {
    let mut entries = vec![
        Entry::of::<sandboxes::Create>(SET),
        Entry::of::<sandboxes::List>(SET),
        Entry::of::<sandboxes::Terminate>(SET),
        Entry::of::<execs::ExecCommand>(SET),
        run_code(),
        Entry::of::<files::Upload>(SET),
        Entry::of::<reading::Download>(SET),
        Entry::of::<listing::List>(SET),
        Entry::of::<reading::Read>(SET),
        Entry::of::<files::Write>(SET),
    ];
    entries.extend(languages::entries());
    entries
}

/// One entry for both tools of this name: its schemas allow the arguments and answers of either.
fn run_code() -> Entry {
    let (core, own) = (Entry::of::<CoreRunCode>(SET), Entry::of::<execs::RunCode>(SET));
    let mut described = core.described;
    described.description = Some(
        "Runs code in a safe sandbox and answers with what it printed. With `sandbox_id`, and at most `language`, `working_dir` and \
         `timeout` beside it, it is a program of its own in that sandbox, in a language that is guessed where none is named. Without \
         a sandbox, or with any other argument, variables and files are kept as `keep` says and the language is Python unless named."
            .into(),
    );
    described.input_schema = Arc::new(merged(&described.input_schema, &own.described.input_schema));
    if let Some((one, other)) = described.output_schema.take().zip(own.described.output_schema) {
        let mut either = merged(&one, &other);
        // Which of the two answers is not known beforehand, so nothing is promised.
        either.remove("required");
        described.output_schema = Some(Arc::new(either));
    }
    let run_either: super::Run = |call, arguments| {
        Box::pin(async move {
            match is_core_call(&arguments) {
                true => run::<CoreRunCode>(call, arguments).await,
                false => run::<execs::RunCode>(call, arguments).await,
            }
        })
    };
    Entry { described, set: SET, run: run_either }
}

/// Whether a call of `run_code` can only be meant for the core's tool.
fn is_core_call(arguments: &JsonObject) -> bool {
    let names_sandbox = arguments.get("sandbox_id").and_then(Value::as_str).is_some_and(|id| !id.is_empty());
    !names_sandbox || CORE_ONLY.iter().any(|name| arguments.contains_key(*name))
}

/// A schema for objects that fit either of two: all properties, of which those are required that both require.
fn merged(one: &JsonObject, other: &JsonObject) -> JsonObject {
    let mut merged = one.clone();
    for key in ["properties", "$defs"] {
        let Some(more) = other.get(key).and_then(Value::as_object) else { continue };
        if let Value::Object(into) = merged.entry(key).or_insert_with(|| Value::Object(Map::new())) {
            for (name, schema) in more {
                // A default of one is none of the other.
                match into.get_mut(name).and_then(Value::as_object_mut) {
                    Some(both) if both.get("default") != schema.get("default") => {
                        drop(both.remove("default"))
                    }
                    Some(_) => {}
                    None => drop(into.insert(name.clone(), schema.clone())),
                }
            }
        }
    }
    let required =
        |schema: &JsonObject| schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let theirs = required(other);
    let both: Vec<Value> = required(one).into_iter().filter(|name| theirs.contains(name)).collect();
    merged.insert("required".to_owned(), Value::Array(both));
    merged
}

/// `timeout` as these tools take it.
fn timeout(seconds: f64) -> Result<Duration, Refusal> {
    if (1.0..=LONGEST).contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(Refusal::argument(format!("`timeout` has to be from 1 to {LONGEST} seconds, not {seconds}")))
}

/// SandboxRunner's code of what went wrong with a sandbox, and the words for it.
async fn trouble(call: &Call, sandbox: SandboxId, error: Error) -> (&'static str, String) {
    let code = match error.kind() {
        ErrorKind::Timeout => "TIMEOUT",
        ErrorKind::Conflict => "CONTAINER_NOT_RUNNING",
        // A file or folder may be what was not found.
        ErrorKind::NotFound => match call.control().sandbox(&call.caller, sandbox).await {
            Err(_) => "CONTAINER_NOT_FOUND",
            Ok(view) if matches!(view.phase, Phase::Terminating | Phase::Terminated | Phase::Failed) => {
                "CONTAINER_NOT_RUNNING"
            }
            Ok(_) => "EXECUTION_FAILED",
        },
        _ => "EXECUTION_FAILED",
    };
    (code, refusal_text(error.into()))
}

fn refusal_text(refusal: Refusal) -> String {
    let content = refusal.into_result().content;
    content.first().and_then(ContentBlock::as_text).map(|text| text.text.clone()).unwrap_or_default()
}

#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod tests;
