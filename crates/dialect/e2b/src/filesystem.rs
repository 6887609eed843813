//! `filesystem.Filesystem`: files looked at, moved, removed and watched.

mod changes;
mod entry;
mod operations;
pub(crate) mod watchers;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use http::HeaderMap;

use crate::door::Guest;
use crate::rpc;
use crate::state::Dialect;

pub(crate) use entry::written;

pub(crate) async fn call(
    State(dialect): State<Dialect>,
    Extension(guest): Extension<Guest>,
    Path(method): Path<String>,
    headers: HeaderMap,
    content: Body,
) -> Response {
    match method.as_str() {
        "Stat" | "MakeDir" | "Move" | "ListDir" | "Remove" => {
            let done = dialect.file_operation(&guest, &method, &headers, content);
            rpc::answer(rpc::in_time(&headers, done).await)
        }
        "CreateWatcher" | "GetWatcherEvents" | "RemoveWatcher" => {
            let done = dialect.watcher_operation(&guest, &method, &headers, content);
            rpc::answer(rpc::in_time(&headers, done).await)
        }
        "WatchDir" => {
            let answer = dialect.watch_stream(&guest, &headers, content).await;
            answer.unwrap_or_else(|error| rpc::failed_stream(&error))
        }
        _ => rpc::no_method(&method),
    }
}
