//! The code interpreter on port 49999: code in living interpreters, results line by line.

mod contexts;
pub(crate) mod defaults;
mod execute;
mod lines;
mod output;
mod printing;
mod variables;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::StatusCode;
use sandstorm_provider::Error;

use crate::refusal::Refusal;
use crate::state::Dialect;

pub(crate) fn router(dialect: &Dialect) -> Router {
    Router::new()
        .route("/health", get(async || "\"OK\""))
        .route("/execute", post(execute::execute))
        .route("/contexts", get(contexts::list).post(contexts::create))
        .route("/contexts/{id}", axum::routing::delete(contexts::remove))
        .route("/contexts/{id}/restart", post(contexts::restart))
        .fallback(async || Plain(StatusCode::NOT_FOUND, "there is no such route".to_owned()))
        .with_state(dialect.clone())
}

/// A refusal in plain text, as this server of E2B's writes them.
#[derive(Debug)]
pub(crate) struct Plain(StatusCode, String);

impl IntoResponse for Plain {
    fn into_response(self) -> Response {
        (self.0, self.1).into_response()
    }
}

impl From<Error> for Plain {
    fn from(error: Error) -> Self {
        Refusal::from(error).into()
    }
}

impl From<Refusal> for Plain {
    fn from(refused: Refusal) -> Self {
        Self(refused.status(), refused.message().to_owned())
    }
}
