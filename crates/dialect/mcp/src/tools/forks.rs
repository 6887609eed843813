//! `sandbox_fork`: a living sandbox goes on in copies.

use sandstorm_control::server::NewFork;
use sandstorm_types::ContextId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sandboxes::Sandbox;
use super::{Hints, Tool};
use crate::answer::Answer;
use crate::call::Call;
use crate::handles;
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Fork;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    /// The sandbox to copy.
    sandbox_id: String,
    /// How many copies.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 100))]
    count: u32,
    /// Leave out what cannot be carried over and name it, instead of refusing.
    #[serde(default)]
    allow_partial: bool,
}

fn one() -> u32 {
    1
}

/// The copies.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Forked {
    copies: Vec<Copy>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Copy {
    sandbox: Sandbox,
    contexts: Vec<CopiedContext>,
    /// What the source has and the copy has not.
    not_carried: Vec<String>,
}

/// A living interpreter that goes on in the copy.
#[derive(Debug, Serialize, JsonSchema)]
struct CopiedContext {
    source_context_id: String,
    context_id: String,
}

impl Tool for Fork {
    const NAME: &'static str = "sandbox_fork";
    const TITLE: &'static str = "Copy a living sandbox";
    const DESCRIPTION: &'static str = "Copies a living sandbox with its files and its Python variables into new sandboxes that go on by \
        themselves: to try several ways from one state. Refused where something cannot be carried over, such as threads.";
    const HINTS: Hints = Hints::ADDS;
    type Input = Input;
    type Output = Forked;

    async fn call(call: Call, input: Input) -> Result<Answer<Forked>, Refusal> {
        let sandbox = handles::sandbox(&input.sandbox_id)?;
        let new = NewFork { count: input.count, allow_partial: input.allow_partial, ..NewFork::default() };
        let forking = Box::pin(call.control().fork_sandbox(&call.caller, sandbox, new));
        let mut copies = Vec::new();
        for made in call.wait("copying", forking).await? {
            let fork = made?;
            let context = |(from, to): &(ContextId, ContextId)| CopiedContext {
                source_context_id: from.to_string(),
                context_id: to.to_string(),
            };
            copies.push(Copy {
                sandbox: Sandbox::from(&fork.sandbox),
                contexts: fork.contexts.iter().map(context).collect(),
                not_carried: fork
                    .not_carried
                    .iter()
                    .map(|left| format!("{}: {}", left.what, left.why))
                    .collect(),
            });
        }
        let lines: Vec<String> = copies.iter().map(describe).collect();
        Ok(Answer::new(Forked { copies }, lines.join("\n")))
    }
}

fn describe(copy: &Copy) -> String {
    let mut line = format!("{} goes on as {}", copy.sandbox.sandbox_id, copy.sandbox.state);
    for context in &copy.contexts {
        line.push_str(&format!("; {} is {} there", context.source_context_id, context.context_id));
    }
    if !copy.not_carried.is_empty() {
        line.push_str(&format!("; left out: {}", copy.not_carried.join(", ")));
    }
    line
}
