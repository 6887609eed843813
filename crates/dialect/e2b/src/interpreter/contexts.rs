//! Living interpreters of a sandbox.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use http::StatusCode;
use sandstorm_control::server::{ContextView, ExecWork, NewContext, NewExec};
use sandstorm_types::{ContextId, ErrorKind};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Plain;
use crate::body::{self, SMALL};
use crate::door::Guest;
use crate::paths::{self, HOME};
use crate::sandboxes::create::variables;
use crate::state::Dialect;

/// Languages whose interpreters live on between executions.
pub(super) const KEPT: [&str; 2] = ["python", "javascript"];
/// Runs first in every Python: charts and tables become data that clients can use.
const PRELUDE: &str = include_str!("prelude.py");

#[derive(Debug, Deserialize)]
pub(super) struct NewContextBody {
    cwd: Option<String>,
    language: Option<String>,
}

pub(super) async fn list(
    State(dialect): State<Dialect>,
    Extension(guest): Extension<Guest>,
) -> Result<Json<Vec<Value>>, Plain> {
    // There always is one for Python.
    dialect.default_context(&guest, "python").await?;
    let contexts = dialect.control.contexts(&guest.caller, guest.sandbox).await?;
    Ok(Json(contexts.iter().map(shown).collect()))
}

pub(super) async fn create(
    State(dialect): State<Dialect>,
    Extension(guest): Extension<Guest>,
    content: Body,
) -> Result<Json<Value>, Plain> {
    let mut room = dialect.control.body_room(&guest.caller);
    let asked: NewContextBody = body::read(content, SMALL, &mut room).await?;
    let language = language_named(asked.language.as_deref().unwrap_or("python"));
    let Some(language) = KEPT.into_iter().find(|kept| *kept == language) else {
        let message =
            format!("contexts are for {}: other code runs on its own each time", KEPT.join(" and "));
        return Err(Plain(StatusCode::BAD_REQUEST, message));
    };
    // So that the oldest one is the default, whoever looks for it later.
    dialect.default_context(&guest, language).await?;
    let made = dialect.new_context(&guest, language, asked.cwd.as_deref().unwrap_or(HOME)).await?;
    Ok(Json(shown(&made)))
}

pub(super) async fn restart(
    State(dialect): State<Dialect>,
    Extension(guest): Extension<Guest>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Plain> {
    let context = context_id(&id)?;
    let restarted = dialect.control.restart_context(&guest.caller, guest.sandbox, context).await;
    let view = restarted.map_err(|error| missing_or(&id, error))?;
    dialect.prepare(&guest, &view).await;
    *dialect.defaults.turn(context).await = 0;
    Ok(Json(Value::Null))
}

pub(super) async fn remove(
    State(dialect): State<Dialect>,
    Extension(guest): Extension<Guest>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Plain> {
    let context = context_id(&id)?;
    let looked = dialect.control.context(&guest.caller, guest.sandbox, context).await;
    looked.map_err(|error| missing_or(&id, error))?;
    dialect.control.delete_context(&guest.caller, guest.sandbox, context).await?;
    dialect.defaults.forget(context);
    Ok(Json(Value::Null))
}

fn shown(view: &ContextView) -> Value {
    json!({"id": view.id, "language": view.language, "cwd": view.cwd})
}

/// A language as we call it.
pub(super) fn language_named(name: &str) -> String {
    match name.to_ascii_lowercase().as_str() {
        "js" => "javascript".to_owned(),
        "ts" => "typescript".to_owned(),
        "python3" | "py" => "python".to_owned(),
        other => other.to_owned(),
    }
}

pub(super) fn context_id(text: &str) -> Result<ContextId, Plain> {
    text.parse().map_err(|_| missing(text))
}

pub(super) fn missing(id: &str) -> Plain {
    let shown: String = id.chars().take(64).collect();
    Plain(StatusCode::NOT_FOUND, format!("Context {shown} not found"))
}

pub(super) fn missing_or(id: &str, error: sandstorm_provider::Error) -> Plain {
    if error.kind() == ErrorKind::NotFound { missing(id) } else { error.into() }
}

impl Dialect {
    /// The context of a language that is used where none is named: the first one, made when there is none.
    pub(super) async fn default_context(
        &self,
        guest: &Guest,
        language: &'static str,
    ) -> Result<ContextId, Plain> {
        let _alone = self.defaults.alone(guest.sandbox).await;
        let known = self.defaults.get(guest.sandbox, language);
        let contexts = self.control.contexts(&guest.caller, guest.sandbox).await?;
        let own = contexts.into_iter().filter(|context| context.language.as_str() == language);
        let found = own.min_by_key(|context| (known != Some(context.id), context.created_at, context.id));
        let id = match found {
            Some(lost) if lost.state == "lost" => {
                let view = self.control.restart_context(&guest.caller, guest.sandbox, lost.id).await?;
                self.prepare(guest, &view).await;
                view.id
            }
            Some(living) => living.id,
            None => self.new_context(guest, language, HOME).await?.id,
        };
        self.defaults.set(guest.sandbox, language, id);
        Ok(id)
    }

    async fn new_context(&self, guest: &Guest, language: &str, cwd: &str) -> Result<ContextView, Plain> {
        let language =
            language.parse().map_err(|_| Plain(StatusCode::BAD_REQUEST, "no such language".to_owned()))?;
        let env = variables([("E2B_SANDBOX_ID".to_owned(), guest.sandbox.bare())])?;
        let new = NewContext { language, cwd: Some(paths::resolve(cwd)?), env };
        let view = self.control.create_context(&guest.caller, guest.sandbox, new).await?;
        self.prepare(guest, &view).await;
        Ok(view)
    }

    /// Teaches an interpreter what this dialect shows. Without it code runs as well.
    async fn prepare(&self, guest: &Guest, view: &ContextView) {
        if view.language.as_str() != "python" {
            return;
        }
        match self
            .control
            .exec_to_end(&guest.caller, guest.sandbox, self.cell(view.id, PRELUDE.to_owned()))
            .await
        {
            Ok(result) if result.success => {}
            Ok(result) => tracing::warn!(error = ?result.error, "an interpreter could not be prepared"),
            Err(error) => tracing::warn!(%error, "an interpreter could not be prepared"),
        }
    }

    pub(super) fn cell(&self, context: ContextId, code: String) -> NewExec {
        NewExec {
            timeout: Some(self.settings.longest_lifetime),
            ..NewExec::of(ExecWork::Cell { context, code })
        }
    }
}
