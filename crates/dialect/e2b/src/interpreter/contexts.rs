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

/// Languages that have a context from the start, as clients of E2B know it.
const FROM_THE_START: [&str; 2] = ["python", "javascript"];
/// Runs first in every Python: charts and tables become data that clients can use.
const PRELUDE: &str = include_str!("prelude.py");
/// Runs first in every Java: variables are properties, which a program can be given while it runs.
const JAVA_PRELUDE: &str = "System.getenv().forEach((name, value) -> { \
    if (System.getProperty(name) == null) System.setProperty(name, value); });";

#[derive(Debug, Deserialize)]
pub(super) struct NewContextBody {
    cwd: Option<String>,
    language: Option<String>,
}

pub(super) async fn list(
    State(dialect): State<Dialect>,
    Extension(guest): Extension<Guest>,
) -> Result<Json<Vec<Value>>, Plain> {
    let mut first = Vec::new();
    for language in FROM_THE_START {
        match dialect.default_context(&guest, language).await {
            Ok(context) => first.push(context),
            // A machine may lack a runtime; the contexts of the others are there.
            Err(refused) if language != "python" => {
                tracing::debug!(?refused, language, "no context from the start")
            }
            Err(refused) => return Err(refused),
        }
    }
    let mut contexts = dialect.control.contexts(&guest.caller, guest.sandbox).await?;
    // Those are older than what a client made, wherever they were made only now.
    contexts.sort_by_key(|context| (!first.contains(&context.id), context.created_at, context.id));
    Ok(Json(contexts.iter().map(shown).collect()))
}

pub(super) async fn create(
    State(dialect): State<Dialect>,
    Extension(guest): Extension<Guest>,
    content: Body,
) -> Result<Json<Value>, Plain> {
    let mut room = dialect.control.body_room(&guest.caller);
    let asked: NewContextBody = body::read(content, SMALL, &mut room).await?;
    let wanted = asked.language.as_deref().unwrap_or("python");
    let Some(language) = dialect.language_of_contexts(&guest, wanted).await? else {
        let shown: String = wanted.chars().take(64).collect();
        let message = format!("there are no contexts of {shown} here: its code runs on its own each time");
        return Err(Plain(StatusCode::BAD_REQUEST, message));
    };
    // So that the oldest one is the default, whoever looks for it later.
    dialect.default_context(&guest, &language).await?;
    let made = dialect.new_context(&guest, &language, asked.cwd.as_deref().unwrap_or(HOME)).await?;
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
    pub(super) async fn default_context(&self, guest: &Guest, language: &str) -> Result<ContextId, Plain> {
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

    /// The proper name of a language whose interpreters live on between executions in this sandbox.
    pub(super) async fn language_of_contexts(
        &self,
        guest: &Guest,
        name: &str,
    ) -> Result<Option<String>, Plain> {
        let Ok(name) = name.trim().to_lowercase().parse() else { return Ok(None) };
        let found = self.control.language_of_contexts(&guest.caller, guest.sandbox, &name).await?;
        Ok(found.map(|language| language.to_string()))
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
        let prelude = match view.language.as_str() {
            "python" => PRELUDE,
            "java" => JAVA_PRELUDE,
            _ => return,
        };
        let cell = self.cell(view.id, prelude.to_owned());
        match self.control.exec_to_end(&guest.caller, guest.sandbox, cell).await {
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
