//! `/files`: content of files, down and up.

mod compression;
mod download;
mod metadata;
mod ranges;
mod upload;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::response::Response;
use axum::routing::get;

use crate::state::Dialect;

pub(crate) const PATH: &str = "/files";

/// For requests whose sandbox is known.
pub(crate) fn routes() -> Router<Dialect> {
    // Files may be as large as the sandbox's disk, which is looked at while they stream.
    Router::new().route(PATH, get(download::download).post(upload::upload)).layer(DefaultBodyLimit::disable())
}

/// For addresses that name no sandbox: a signature tells which.
pub(crate) fn open_router(dialect: &Dialect) -> Router<Dialect> {
    let entered = Router::new()
        .route(PATH, get(download::download).post(upload::upload))
        .layer(DefaultBodyLimit::disable())
        .layer(axum::middleware::from_fn_with_state(dialect.clone(), find));
    entered.with_state(dialect.clone())
}

async fn find(
    State(dialect): State<Dialect>,
    request: Request<Body>,
    next: axum::middleware::Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    match dialect.admit_to_files(&parts).await {
        Ok(guest) => {
            let caller = guest.caller.clone();
            parts.extensions.insert(guest);
            let mut response = next.run(Request::from_parts(parts, body)).await;
            response.extensions_mut().insert(caller);
            response
        }
        Err(refused) => refused,
    }
}
