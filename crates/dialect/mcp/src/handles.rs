//! Handles as arguments: text that names a sandbox, a context, an exec or a path, and what is wrong with it if it does not.

use std::str::FromStr;

use sandstorm_types::{ContextId, ExecId, GuestPath, LanguageName, SandboxId};

use crate::refusal::Refusal;

pub(crate) fn sandbox(text: &str) -> Result<SandboxId, Refusal> {
    read(text, "sandbox_id", "sbx_…", "sandbox_create or run_code gives one, sandbox_list shows them.")
}

pub(crate) fn context(text: &str) -> Result<ContextId, Refusal> {
    read(text, "context_id", "ctx_…", "run_code gives one.")
}

pub(crate) fn exec(text: &str) -> Result<ExecId, Refusal> {
    read(text, "exec_id", "exec_…", "sandbox_exec with background gives one.")
}

fn read<T: FromStr>(text: &str, name: &str, form: &str, next: &str) -> Result<T, Refusal> {
    text.trim().parse().map_err(|_| {
        Refusal::argument(format!("`{name}` has to be a handle such as `{form}`, not {text:?}"))
            .with_next(next)
    })
}

pub(crate) fn path(text: &str) -> Result<GuestPath, Refusal> {
    text.parse().map_err(|error| Refusal::argument(format!("`path` {text:?}: {error}")))
}

/// A folder; the workspace where none is named.
pub(crate) fn folder(text: &str) -> Result<GuestPath, Refusal> {
    if text.is_empty() { Ok(GuestPath::workspace()) } else { path(text) }
}

pub(crate) fn language(text: &str) -> Result<LanguageName, Refusal> {
    text.parse().map_err(|error: sandstorm_types::LanguageNameError| Refusal::argument(error.to_string()))
}
