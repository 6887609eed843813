//! The control plane: sandboxes made, found, changed and ended.

pub(crate) mod create;
pub(crate) mod forks;
pub(crate) mod labels;
pub(crate) mod lifecycle;
pub(crate) mod list;
pub(crate) mod metrics;
pub(crate) mod network;
pub(crate) mod snapshots;
pub(crate) mod templates;
pub(crate) mod view;

use axum::Extension;
use axum::extract::{FromRequestParts, Path};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use sandstorm_control::server::{BodyRoom, Caller, SandboxView};
use sandstorm_types::{Phase, SandboxId};

use crate::address::Here;
use crate::refusal::Refusal;
use crate::state::Dialect;

/// The sandbox that an address names, and who asks for it.
#[derive(Debug)]
pub(crate) struct Meant {
    pub(crate) dialect: Dialect,
    pub(crate) caller: Caller,
    pub(crate) id: String,
    pub(crate) here: Here,
}

impl FromRequestParts<Dialect> for Meant {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, dialect: &Dialect) -> Result<Self, Response> {
        let caller = Extension::from_request_parts(parts, dialect).await;
        let Extension(caller) = caller.map_err(IntoResponse::into_response)?;
        let id = Path::from_request_parts(parts, dialect).await;
        let Path(id) = id.map_err(IntoResponse::into_response)?;
        let here = Here::of(dialect, parts);
        Ok(Self { dialect: dialect.clone(), caller, id, here })
    }
}

impl Meant {
    /// Room for the body of the request.
    pub(crate) fn body_room(&self) -> BodyRoom {
        self.dialect.control.body_room(&self.caller)
    }

    /// It, if it has not ended.
    pub(crate) async fn living(&self) -> Result<SandboxView, Refusal> {
        self.dialect.living(&self.caller, &self.id).await
    }
}

/// The id in an address. Older clients put `-` and another id behind it.
pub(crate) fn sandbox_id(text: &str) -> Result<SandboxId, Refusal> {
    let own = text.split('-').next().unwrap_or_default();
    if own.is_empty() || !own.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
        return Err(Refusal::invalid("Invalid sandbox ID"));
    }
    SandboxId::from_bare(own).map_err(|_| Refusal::no_sandbox(own))
}

impl Dialect {
    /// A sandbox of the caller that has not ended.
    pub(crate) async fn living(&self, caller: &Caller, text: &str) -> Result<SandboxView, Refusal> {
        let id = sandbox_id(text)?;
        let view = match self.control.sandbox(caller, id).await {
            Ok(view) => view,
            Err(error) if error.kind() == sandstorm_types::ErrorKind::NotFound => {
                return Err(Refusal::no_sandbox(&id.bare()));
            }
            Err(error) => return Err(error.into()),
        };
        match view.phase {
            Phase::Terminated | Phase::Failed | Phase::Terminating => Err(Refusal::no_sandbox(&id.bare())),
            _ => Ok(view),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_one_form_and_bad_ones_are_told_apart() {
        let id = SandboxId::from_bits(7);
        assert_eq!(sandbox_id(&id.bare()).unwrap(), id);
        assert_eq!(sandbox_id(&format!("{}-00000000", id.bare())).unwrap(), id);
        for (text, status) in [("", 400), ("A", 400), ("a/b", 400), ("..", 400), ("abc", 404), ("i1x9", 404)]
        {
            assert_eq!(sandbox_id(text).unwrap_err().status(), status, "{text}");
        }
    }
}
