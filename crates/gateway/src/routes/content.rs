//! One file of a sandbox: read in whole or in part, written, removed.

use axum::Json as Answer;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sandstorm_control::server::Caller;
use sandstorm_provider::{ByteStream, Error, FileInfo, FileOp, FileReply, ReadRange};
use sandstorm_types::{ErrorKind, GuestPath, SandboxId};

use crate::app::App;
use crate::body;
use crate::ids::Id;
use crate::problem::{ApiError, ApiResult};
use crate::query::Query;
use crate::range::{self, Part, Wanted};
use crate::wire::{WrittenBody, octal};

/// Content of a file, or with `Range` a part of it.
#[utoipa::path(get, path = "/v1/sandboxes/{sandbox}/files", tag = "files", operation_id = "read_file",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("path" = String, Query, description = "Path, relative to the workspace unless absolute", min_length = 1, max_length = 4096),
        ("Range" = Option<String>, Header, description = "One range of bytes")),
    responses(
        (status = 200, description = "The content", body = String, content_type = "application/octet-stream"),
        (status = 206, description = "The part", body = String, content_type = "application/octet-stream"),
        (status = 304, description = "Unchanged since `If-None-Match`")))]
pub(crate) async fn read(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    mut query: Query,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let path = query.path("path")?;
    query.finish()?;
    let open =
        async |range| app.control.read_file(&caller, sandbox, &path, range).await.map_err(about(&path));
    let mut wanted = range::wanted(&headers);
    // What is there decides whether the range counts and where it ends, unless it is the whole file.
    if wanted != Wanted::All {
        let (info, _) = open(ReadRange { offset: 0, length: Some(0) }).await?;
        if !range::range_counts(&headers, &range::etag(&info)) {
            wanted = Wanted::All;
        }
        if let Some(part) = wanted.of(info.size.as_u64()).filter(|_| wanted != Wanted::All) {
            let (now, content) = open(ReadRange { offset: part.first, length: Some(part.length) }).await?;
            if range::etag(&now) == range::etag(&info) {
                return Ok(partial(&info, part, content));
            }
            // It changed in between: the parts of two versions must not be mixed.
            wanted = Wanted::All;
        }
        if wanted != Wanted::All {
            return Err(unsatisfiable(&info));
        }
    }
    let (info, content) = open(ReadRange::default()).await?;
    let etag = range::etag(&info);
    if range::unchanged(&headers, &etag) {
        let mut response = StatusCode::NOT_MODIFIED.into_response();
        describe(response.headers_mut(), &info);
        return Ok(response);
    }
    let mut response = Response::new(Body::from_stream(content));
    describe(response.headers_mut(), &info);
    response.headers_mut().insert(header::CONTENT_LENGTH, info.size.as_u64().into());
    Ok(response)
}

fn partial(info: &FileInfo, part: Part, content: ByteStream) -> Response {
    let mut response = Response::new(Body::from_stream(content));
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    describe(response.headers_mut(), info);
    let (last, size) = (part.first + part.length - 1, info.size.as_u64());
    let range = format!("bytes {}-{last}/{size}", part.first);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_RANGE, HeaderValue::from_str(&range).expect("numbers are header text"));
    headers.insert(header::CONTENT_LENGTH, part.length.into());
    response
}

fn unsatisfiable(info: &FileInfo) -> ApiError {
    let range = format!("bytes */{}", info.size.as_u64());
    let range = HeaderValue::from_str(&range).expect("numbers are header text");
    ApiError::field("Range", "the file has nothing there")
        .status(StatusCode::RANGE_NOT_SATISFIABLE)
        .header(header::CONTENT_RANGE, range)
}

/// Whether a file is there and how large it is.
#[utoipa::path(head, path = "/v1/sandboxes/{sandbox}/files", tag = "files", operation_id = "head_file",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("path" = String, Query, description = "Path, relative to the workspace unless absolute", min_length = 1, max_length = 4096)),
    responses((status = 200, description = "It is there")))]
pub(crate) async fn head(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    mut query: Query,
) -> ApiResult<Response> {
    let path = query.path("path")?;
    query.finish()?;
    let nothing = ReadRange { offset: 0, length: Some(0) };
    let (info, _) = app.control.read_file(&caller, sandbox, &path, nothing).await.map_err(about(&path))?;
    let mut response = Response::new(Body::empty());
    describe(response.headers_mut(), &info);
    response.headers_mut().insert(header::CONTENT_LENGTH, info.size.as_u64().into());
    Ok(response)
}

/// Headers of a download. What is in a sandbox is hostile to the browser that fetches it: it is saved, not shown, under
/// a type that nothing runs.
fn describe(headers: &mut HeaderMap, info: &FileInfo) {
    let text = |text: String| HeaderValue::from_str(&text).expect("only visible ASCII is written here");
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_DISPOSITION, text(attachment(info.path.file_name().unwrap_or("file"))));
    headers.insert(header::ETAG, text(range::etag(info)));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
}

/// `Content-Disposition` by RFC 6266: a plain name for old clients, and the exact one percent-encoded.
pub(crate) fn attachment(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let plain: String = name.chars().map(safe).collect();
    let mut exact = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            exact.push(char::from(byte));
        } else {
            exact.push_str(&format!("%{byte:02X}"));
        }
    }
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{exact}")
}

/// Writes a file, whole or not at all; folders above it are made.
#[utoipa::path(put, path = "/v1/sandboxes/{sandbox}/files", tag = "files", operation_id = "write_file",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("path" = String, Query, description = "Path, relative to the workspace unless absolute", min_length = 1, max_length = 4096),
        ("mode" = Option<String>, Query, description = "Permission bits in octal", pattern = "^0?[0-7]{3}$")),
    request_body(content = String, content_type = "application/octet-stream"),
    responses((status = 200, description = "It is written", body = WrittenBody)))]
pub(crate) async fn write(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    mut query: Query,
    headers: HeaderMap,
    content: Body,
) -> ApiResult<Answer<WrittenBody>> {
    body::expect_bytes(&headers, &[])?;
    let path = query.path("path")?;
    let mode = query.text("mode")?.map(|text| octal("mode", &text)).transpose()?;
    query.finish()?;
    let content = body::stream(content);
    let written = app.control.write_file(&caller, sandbox, &path, content).await.map_err(about(&path))?;
    if let Some(mode) = mode {
        let set = FileOp::SetMode { path: path.clone(), mode };
        app.control.files(&caller, sandbox, set).await.map_err(about(&path))?;
    }
    Ok(Answer(WrittenBody { path: written.path, size: written.size }))
}

/// Removes a file, a link or a folder.
#[utoipa::path(delete, path = "/v1/sandboxes/{sandbox}/files", tag = "files", operation_id = "remove_file",
    params(
        ("sandbox" = String, Path, description = "Id of the sandbox", pattern = "^sbx_[a-z2-7]{26}$"),
        ("path" = String, Query, description = "Path, relative to the workspace unless absolute", min_length = 1, max_length = 4096),
        ("recursive" = Option<bool>, Query, description = "Also a folder that holds something")),
    responses((status = 204, description = "It is gone")))]
pub(crate) async fn remove(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(sandbox): Id<SandboxId>,
    mut query: Query,
) -> ApiResult<StatusCode> {
    let path = query.path("path")?;
    let recursive = query.flag("recursive")?;
    query.finish()?;
    let remove = FileOp::Remove { path: path.clone(), recursive };
    app.control.files(&caller, sandbox, remove).await.map_err(about(&path))?;
    Ok(StatusCode::NO_CONTENT)
}

/// What is at a path, or `None` when nothing is; an absent sandbox is an error all the same.
pub(crate) async fn stat(
    app: &App,
    caller: &Caller,
    sandbox: SandboxId,
    path: &GuestPath,
) -> ApiResult<Option<FileInfo>> {
    match app.control.files(caller, sandbox, FileOp::Stat { path: path.clone() }).await {
        Ok(FileReply::Info(info)) => Ok(Some(info)),
        Ok(_) => Err(unexpected()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            app.control.sandbox(caller, sandbox).await?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// A reply that does not fit its question: the provider's mistake.
pub(crate) fn unexpected() -> ApiError {
    ApiError::new(ErrorKind::Provider, "the provider gave an answer to another question")
}

/// Says which file is missing, where it is the file and not the sandbox: providers name the path.
pub(crate) fn about(path: &GuestPath) -> impl Fn(Error) -> ApiError {
    let path = path.clone();
    move |error| {
        let file = error.kind() == ErrorKind::NotFound && error.to_string().contains(path.as_str());
        let refused = ApiError::from(error);
        if file { refused.detail(format!("there is no file {path}")) } else { refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_the_header() {
        for (name, wanted) in [
            ("a.txt", "attachment; filename=\"a.txt\"; filename*=UTF-8''a.txt"),
            ("a\"b\r\nX: y", "attachment; filename=\"a_b__X__y\"; filename*=UTF-8''a%22b%0D%0AX%3A%20y"),
            ("é😀", "attachment; filename=\"__\"; filename*=UTF-8''%C3%A9%F0%9F%98%80"),
            ("\u{202e}gpj", "attachment; filename=\"_gpj\"; filename*=UTF-8''%E2%80%AEgpj"),
            ("a;b%c", "attachment; filename=\"a_b_c\"; filename*=UTF-8''a%3Bb%25c"),
        ] {
            assert_eq!(attachment(name), wanted, "{name:?}");
            assert!(HeaderValue::from_str(&attachment(name)).is_ok());
        }
    }
}
