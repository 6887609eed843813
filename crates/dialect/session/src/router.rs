//! Which path leads where.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use http::StatusCode;
use sandstorm_control::server::Control;
use tokio_util::task::TaskTracker;

use crate::document::document;
use crate::refusal::Refusal;
use crate::routes::{efast, execute, execute_code, files, handler, preview, read, sessions, upload};
use crate::session::Sessions;
use crate::settings::SessionSettings;

/// Most bytes of one upload, with all around the file; the size of its session ends most of them earlier.
const MOST_UPLOAD: usize = 16 << 30;

/// What every route sees.
#[derive(Debug, Clone)]
pub(crate) struct Dialect {
    pub(crate) sessions: Sessions,
    /// Deletions of sandboxes whose client went away.
    pub(crate) tasks: TaskTracker,
}

/// All routes, under `/workspace/se`. Each but `healthy` and `api.json` needs an `Extension<Caller>` on its request.
pub fn router(control: Control, settings: SessionSettings) -> Router {
    let sessions = Sessions { control, settings: Arc::new(settings) };
    let dialect = Dialect { sessions, tasks: TaskTracker::new() };
    let routes = Router::new()
        .route("/api.json", get(document))
        .route("/healthy", get(sessions::healthy))
        .route("/session/{session_id}", post(sessions::create).delete(sessions::delete))
        .route("/status/{session_id}", get(sessions::status))
        .route("/workspaces", get(sessions::list))
        .route("/cleanup-all", post(sessions::clean_up))
        .route("/upload/{session_id}", post(upload::upload).layer(DefaultBodyLimit::max(MOST_UPLOAD)))
        .route("/download/{session_id}/{*path}", get(files::download))
        .route("/create/{session_id}", post(files::create))
        .route("/files/{session_id}", get(files::list))
        .route("/files/{session_id}/", get(files::list))
        .route("/files/{session_id}/{*path}", get(files::list))
        .route("/files/preview/{session_id}/{*path}", get(preview::preview))
        .route("/readfile/{session_id}/{*path}", get(read::read))
        .route("/execute/{session_id}", post(execute::execute))
        .route("/execute_code/{session_id}", post(execute_code::execute_code))
        .route("/download_from_efast/{session_id}", post(efast::download))
        .route("/v2/execute_code", post(handler::execute))
        .fallback(async || Refusal::not_found("Not Found"))
        .method_not_allowed_fallback(async || {
            Refusal::Plain(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed".to_owned())
        })
        .with_state(dialect);
    Router::new().nest("/workspace/se", routes)
}
