//! Running code.

use std::collections::BTreeMap;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use sandstorm_control::server::{Attached, ExecWork, NewExec};
use sandstorm_types::ContextId;
use serde::Deserialize;

use super::contexts::{context_id, missing_or};
use super::lines;
use super::variables::{self, Held};
use super::{Plain, output};
use crate::body::{self, LARGE};
use crate::door::Guest;
use crate::paths;
use crate::sandboxes::create;
use crate::state::Dialect;

#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    code: String,
    context_id: Option<String>,
    language: Option<String>,
    env_vars: Option<BTreeMap<String, String>>,
}

pub(super) async fn execute(
    State(dialect): State<Dialect>,
    Extension(guest): Extension<Guest>,
    content: Body,
) -> Result<Response, Plain> {
    let mut room = dialect.control.body_room(&guest.caller);
    let asked: Wanted = body::read(content, LARGE, &mut room).await?;
    let context = asked.context_id.as_deref().filter(|id| !id.is_empty());
    let language = asked.language.as_deref().filter(|name| !name.is_empty());
    let env = asked.env_vars.unwrap_or_default();
    // Refused by name before anything begins.
    create::variables(env.clone())?;
    match (context, language) {
        (Some(_), Some(_)) => {
            let message = "Only one of context_id or language can be provided";
            Err(Plain(StatusCode::BAD_REQUEST, message.to_owned()))
        }
        (Some(id), None) => {
            let context = context_id(id)?;
            let view = dialect.control.context(&guest.caller, guest.sandbox, context).await;
            let view = view.map_err(|error| missing_or(id, error))?;
            dialect.in_context(&guest, context, view.language.as_str(), asked.code, env).await
        }
        (None, named) => {
            let named = named.unwrap_or("python");
            match dialect.language_of_contexts(&guest, named).await? {
                Some(language) => {
                    let context = dialect.default_context(&guest, &language).await?;
                    dialect.in_context(&guest, context, &language, asked.code, env).await
                }
                None => {
                    let language = named.trim().to_lowercase();
                    dialect.on_its_own(&guest, &language, asked.code, env).await
                }
            }
        }
    }
}

impl Dialect {
    async fn in_context(
        &self,
        guest: &Guest,
        context: ContextId,
        language: &str,
        code: String,
        env: BTreeMap<String, String>,
    ) -> Result<Response, Plain> {
        let mut turn = self.defaults.turn(context).await;
        *turn += 1;
        let count = *turn;
        let mut held = Held { turn: Some(turn), restore: None };
        if !env.is_empty() {
            let Some((setting, restoring)) = variables::setting(language, &env) else {
                let message = format!("code of {language} takes no variables of its own here");
                return Err(Plain(StatusCode::BAD_REQUEST, message));
            };
            let set = self.cell(context, setting);
            self.control.exec_to_end(&guest.caller, guest.sandbox, set).await?;
            held.restore = Some((self.clone(), guest.clone(), context, restoring));
        }
        let attached = self.control.exec(&guest.caller, guest.sandbox, self.cell(context, code)).await?;
        lines::answer(self, guest, count, attached, held)
    }

    /// Languages without living interpreters: a program of its own each time.
    async fn on_its_own(
        &self,
        guest: &Guest,
        language: &str,
        code: String,
        env: BTreeMap<String, String>,
    ) -> Result<Response, Plain> {
        let language = language.parse().map_err(|_| {
            let shown: String = language.chars().take(64).collect();
            Plain(StatusCode::BAD_REQUEST, format!("there is no language {shown}"))
        })?;
        let env =
            create::variables([("E2B_SANDBOX_ID".to_owned(), guest.sandbox.bare())].into_iter().chain(env))?;
        let new = NewExec {
            env,
            cwd: Some(paths::home()),
            timeout: Some(self.settings.longest_lifetime),
            ..NewExec::of(ExecWork::Code { language, code, args: Vec::new() })
        };
        let attached: Attached = self.control.exec(&guest.caller, guest.sandbox, new).await?;
        lines::answer(self, guest, output::ALONE, attached, Held { turn: None, restore: None })
    }
}
