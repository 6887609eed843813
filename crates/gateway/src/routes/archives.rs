//! Folders of a sandbox as tar archives.

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sandstorm_control::server::Caller;
use sandstorm_provider::{FileOp, FileReply};
use sandstorm_types::{GuestPath, SandboxId};

use super::content::{about, attachment, unexpected};
use crate::app::App;
use crate::body;
use crate::ids::Id;
use crate::problem::ApiResult;
use crate::query::Query;

const TAR: &str = "application/x-tar";

/// A folder as a tar archive with names relative to it.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files/archive", tag = "files", operation_id = "pack_files",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("path" = Option<String>, Query, description = "The folder; the workspace unless given", min_length = 1, max_length = 4096)),
    responses((status = 200, description = "The archive", body = String, content_type = "application/x-tar")))]
pub(crate) async fn pack(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    mut query: Query,
) -> ApiResult<Response> {
    let path = query.read("path")?.unwrap_or_else(GuestPath::workspace);
    query.finish()?;
    let op = FileOp::Pack { path: path.clone() };
    let FileReply::Archive(content) = app.control.files(&caller, sandbox, op).await.map_err(about(&path))?
    else {
        return Err(unexpected());
    };
    let name = format!("{}.tar", path.file_name().unwrap_or("root"));
    let mut response = Response::new(Body::from_stream(content));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(TAR));
    let name = HeaderValue::from_str(&attachment(&name)).expect("only visible ASCII is written here");
    headers.insert(header::CONTENT_DISPOSITION, name);
    Ok(response)
}

/// Unpacks a tar archive below a folder. Names and links that would leave it are refused.
#[utoipa::path(put, path = "/v1/sandboxes/{sandbox}/files/archive", tag = "files", operation_id = "unpack_files",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("path" = Option<String>, Query, description = "The folder; the workspace unless given", min_length = 1, max_length = 4096)),
    request_body(content((String = "application/x-tar"), (String = "application/octet-stream"))),
    responses((status = 204, description = "It is unpacked")))]
pub(crate) async fn unpack(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    mut query: Query,
    headers: HeaderMap,
    content: Body,
) -> ApiResult<StatusCode> {
    let common = [TAR, "application/tar", "application/octet-stream", "application/x-www-form-urlencoded"];
    body::expect_bytes(&headers, &common)?;
    let path = query.read("path")?.unwrap_or_else(GuestPath::workspace);
    query.finish()?;
    let op = FileOp::Unpack { path: path.clone(), archive: body::stream(content) };
    app.control.files(&caller, sandbox, op).await.map_err(about(&path))?;
    Ok(StatusCode::NO_CONTENT)
}
