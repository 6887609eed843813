//! Living interpreters.

use std::time::Duration;

use sandstorm_control::server::{ContextView, ExecWork, NewContext, NewExec};
use sandstorm_types::{ContextId, EnvMap, GuestPath, LanguageName, SandboxId, Timestamp, duration};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::shapes::{LanguageText, PathText, Span};
use crate::json::Wire;

/// An interpreter to start.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateContext {
    #[schema(value_type = LanguageText)]
    language: LanguageName,
    #[serde(default)]
    #[schema(value_type = Option<PathText>)]
    cwd: Option<GuestPath>,
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, String>)]
    env: EnvMap,
}

impl Wire for CreateContext {
    const LARGE: bool = true;
}

impl From<CreateContext> for NewContext {
    fn from(wanted: CreateContext) -> Self {
        Self { language: wanted.language, cwd: wanted.cwd, env: wanted.env }
    }
}

/// A piece of code for an interpreter.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Execute {
    #[schema(example = "x = 1\nx + 1")]
    code: String,
    #[serde(default, with = "duration::optional_seconds")]
    #[schema(value_type = Option<Span>)]
    timeout: Option<Duration>,
}

impl Wire for Execute {
    const LARGE: bool = true;
}

impl Execute {
    pub(crate) fn in_context(self, context: ContextId) -> NewExec {
        NewExec {
            timeout: self.timeout.filter(|timeout| !timeout.is_zero()),
            ..NewExec::of(ExecWork::Cell { context, code: self.code })
        }
    }
}

/// A living interpreter: variables stay between pieces of code.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Context)]
pub(crate) struct ContextBody {
    #[schema(value_type = String, pattern = "^ctx_[a-z2-7]{26}$")]
    id: ContextId,
    #[schema(value_type = String, pattern = "^sbx_[a-z2-7]{26}$")]
    sandbox: SandboxId,
    #[schema(value_type = String)]
    language: LanguageName,
    #[schema(value_type = String)]
    cwd: GuestPath,
    /// `idle`, `busy`, or `lost` when its interpreter ended.
    #[schema(value_type = ContextState)]
    state: &'static str,
    /// Pieces of code that ran since it started.
    execution_count: u64,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

#[expect(dead_code, reason = "only its schema is used")]
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
enum ContextState {
    Idle,
    Busy,
    Lost,
}

/// Interpreters of a sandbox.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContextList {
    pub(crate) items: Vec<ContextBody>,
}

impl From<ContextView> for ContextBody {
    fn from(view: ContextView) -> Self {
        Self {
            id: view.id,
            sandbox: view.sandbox,
            language: view.language,
            cwd: view.cwd,
            state: view.state,
            execution_count: view.execution_count,
            created_at: view.created_at,
        }
    }
}
