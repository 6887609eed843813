//! Files of a session: listed, made, downloaded.

use std::time::UNIX_EPOCH;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use sandstorm_control::server::Caller;
use sandstorm_provider::{ByteStream, Error, FileInfo, FileKind, FileOp, FileReply, ReadRange, Result};
use sandstorm_types::{ErrorKind, GuestPath, SandboxId};
use serde::Serialize;

use crate::answer::Answer;
use crate::paths::{file_place, place, shown};
use crate::refusal::Refusal;
use crate::request::{BodyFields, QueryFields, Target};
use crate::router::Dialect;
use crate::{file_types, program};

/// Most entries of a list; `truncated` says that there were more.
const MOST_ENTRIES: usize = 10_000;
/// As deep as a path can be.
const ALL_LEVELS: u32 = 2048;
/// What executions leave of their output; not shown in lists.
pub(crate) const LOGS: [&str; 2] = ["stdout.log", "stderr.log"];

/// A file in a list.
#[derive(Debug, Serialize)]
pub(crate) struct Listed {
    filename: String,
    size: u64,
    #[serde(rename = "type")]
    kind: String,
    /// Seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    modified_at: Option<f64>,
}

impl Listed {
    fn new(file: &FileInfo) -> Self {
        let filename = shown(&file.path).to_owned();
        let kind = file_types::listed(&filename).to_owned();
        Self { filename, size: file.size.as_u64(), kind, modified_at: None }
    }

    pub(crate) fn with_time(file: &FileInfo) -> Self {
        let since = file.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { modified_at: Some(since.as_secs_f64()), ..Self::new(file) }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct FileList {
    files: Vec<Listed>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

pub(crate) async fn list(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    target: Target,
    QueryFields(mut query): QueryFields,
) -> Result<Answer<FileList>, Refusal> {
    let depth = if query.flag("recursive") { ALL_LEVELS } else { 1 };
    query.done()?;
    let folder = place(&target.path)?;
    let view = dialect.sessions.open(&caller, &target.session).await?;
    let (entries, truncated) =
        entries(&dialect, &caller, view.id, folder, depth).await.map_err(Refusal::of_file)?;
    let is_log = |file: &FileInfo| file.path.file_name().is_some_and(|name| LOGS.contains(&name));
    let files = entries.iter().filter(|file| !is_log(file)).map(Listed::new).collect();
    Ok(Answer(FileList { files, truncated }))
}

/// The files below a folder, without folders and links, and whether there were more.
pub(crate) async fn entries(
    dialect: &Dialect,
    caller: &Caller,
    sandbox: SandboxId,
    path: GuestPath,
    depth: u32,
) -> Result<(Vec<FileInfo>, bool)> {
    let list = FileOp::List { path, depth, limit: MOST_ENTRIES };
    match dialect.sessions.control.files(caller, sandbox, list).await? {
        FileReply::List { mut entries, more } => {
            entries.retain(|entry| entry.kind == FileKind::File);
            Ok((entries, more))
        }
        _ => Err(Error::new(ErrorKind::Internal, "a list was asked for and something else came")),
    }
}

/// A file that was written.
#[derive(Debug, Serialize)]
pub(crate) struct Written {
    pub(crate) filename: String,
    pub(crate) size: u64,
}

pub(crate) async fn create(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    target: Target,
    BodyFields(mut body, _room): BodyFields,
) -> Result<Answer<Written>, Refusal> {
    let (content, filename) = (body.text("content"), body.text("filename"));
    let mode = body.whole("mode", 0..=0o777, 0o644);
    body.done()?;
    let path = file_place(&filename)?;
    let view = dialect.sessions.open(&caller, &target.session).await?;
    let control = &dialect.sessions.control;
    let content = ByteStream::from(Bytes::from(content));
    let written = control.write_file(&caller, view.id, &path, content).await?;
    // The range of the field ends far below.
    let mode = u32::try_from(mode).unwrap_or(0o644);
    // No permissions at all would be of no use to anybody: as ever, that means the usual ones.
    let mode = if mode == 0 { 0o644 } else { mode };
    control.files(&caller, view.id, FileOp::SetMode { path, mode }).await?;
    Ok(Answer(Written { filename, size: written.size }))
}

pub(crate) async fn download(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    target: Target,
) -> Result<Response, Refusal> {
    let path = file_place(&target.path)?;
    let view = dialect.sessions.open(&caller, &target.session).await?;
    let (_, content) = content(&dialect, &caller, view.id, &path, ReadRange::default()).await?;
    Ok(attachment(&path, "application/octet-stream", content))
}

/// The content of what must be a file.
pub(crate) async fn content(
    dialect: &Dialect,
    caller: &Caller,
    sandbox: SandboxId,
    path: &GuestPath,
    range: ReadRange,
) -> Result<(FileInfo, ByteStream), Refusal> {
    let control = &dialect.sessions.control;
    let not_a_file = || Refusal::bad_request("Not a file");
    match control.read_file(caller, sandbox, path, range).await {
        Ok((info, _)) if matches!(info.kind, FileKind::Directory | FileKind::Other) => Err(not_a_file()),
        Ok(found) => Ok(found),
        Err(error) if error.kind() == ErrorKind::FileSystem => {
            // Providers say in their own words that a folder cannot be read.
            match control.files(caller, sandbox, FileOp::Stat { path: path.clone() }).await {
                Ok(FileReply::Info(info)) if info.kind != FileKind::File => Err(not_a_file()),
                _ => Err(error.into()),
            }
        }
        Err(error) => Err(Refusal::of_file(error)),
    }
}

/// A file for the client to keep. Whatever it holds, no browser runs it in the server's name.
pub(crate) fn attachment(path: &GuestPath, mime: &'static str, content: ByteStream) -> Response {
    let name = path.file_name().unwrap_or("file");
    let headers = [
        (CONTENT_TYPE, mime.to_owned()),
        (CONTENT_DISPOSITION, disposition(name)),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (http::header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'".to_owned()),
    ];
    (headers, Body::from_stream(content)).into_response()
}

/// The name of an attachment: as it is where it is plain, else in percent signs.
fn disposition(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    if name.bytes().all(|byte| plain(byte) || byte == b' ') {
        return format!("attachment; filename=\"{name}\"");
    }
    let encoded: String = name
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    format!("attachment; filename*=utf-8''{encoded}")
}

/// Leaves the output of an execution in the session. A session that has no room for it goes without: the client has it.
pub(crate) async fn leave_logs(
    dialect: &Dialect,
    caller: &Caller,
    sandbox: SandboxId,
    done: &program::Executed,
) {
    let leave = async |name: &str, text: &str| {
        let path = GuestPath::workspace().join(name).expect("a plain name");
        let content = ByteStream::from(Bytes::copy_from_slice(text.as_bytes()));
        if let Err(error) = dialect.sessions.control.write_file(caller, sandbox, &path, content).await {
            tracing::debug!(%sandbox, name, %error, "output of an execution was not left in its session");
        }
    };
    tokio::join!(leave(LOGS[0], &done.stdout), leave(LOGS[1], &done.stderr));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_their_header() {
        assert_eq!(disposition("a b.txt"), "attachment; filename=\"a b.txt\"");
        assert_eq!(disposition("a\"\r\nX: 1"), "attachment; filename*=utf-8''a%22%0D%0AX%3A%201");
        assert_eq!(disposition("ü.txt"), "attachment; filename*=utf-8''%C3%BC.txt");
    }
}
