//! Writing files: one as the body itself, or several as the parts of a form.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::extract::multipart::Field;
use axum::extract::{FromRequest, Multipart, Request, State};
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode, header};
use sandstorm_provider::{ByteStream, Error};
use sandstorm_types::{ErrorKind, GuestPath};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::compression;
use super::download::{about, check_user, pieces};
use crate::door::Guest;
use crate::filesystem::written;
use crate::paths;
use crate::query::Query;
use crate::refusal::Refusal;
use crate::state::Dialect;

/// Pieces of a part that may wait to be written.
const WAITING: usize = 8;
/// Most files of one form.
const MOST: usize = 1000;

pub(super) async fn upload(
    State(dialect): State<Dialect>,
    Extension(guest): Extension<Guest>,
    request: Request,
) -> Result<Json<Vec<Value>>, Refusal> {
    let query = Query::of(request.uri());
    check_user(&query)?;
    if request.headers().keys().any(|name| name.as_str().starts_with("x-metadata-")) {
        return Err(Refusal::invalid("metadata of files is not kept by this server"));
    }
    let path = query.get("path").filter(|path| !path.is_empty());
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "multipart/form-data" => dialect.write_parts(&guest, path, request).await,
        "application/octet-stream" => {
            let path = path.ok_or_else(|| Refusal::invalid("path is missing"))?;
            let (parts, body) = request.into_parts();
            let content = unpacked(&parts.headers, body)?;
            let file = dialect.write(&guest, &paths::resolve(path)?, content).await?;
            Ok(Json(vec![file]))
        }
        _ => {
            let message = "files are sent as multipart/form-data or application/octet-stream";
            Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
        }
    }
}

fn unpacked(headers: &HeaderMap, body: Body) -> Result<ByteStream, Refusal> {
    match headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap_or_default()) {
        None | Some("" | "identity") => Ok(pieces(body)),
        Some("gzip") => Ok(ByteStream::new(compression::unpacked(pieces(body)))),
        Some(_) => Err(Refusal::invalid("Content-Encoding must be gzip or identity")),
    }
}

impl Dialect {
    async fn write(&self, guest: &Guest, path: &GuestPath, content: ByteStream) -> Result<Value, Refusal> {
        let file = self.control.write_file(&guest.caller, guest.sandbox, path, content).await;
        Ok(written(&file.map_err(|error| about(path, error))?))
    }

    /// Parts called `file`: each under the path that the address names, or else under its own file name.
    async fn write_parts(
        &self,
        guest: &Guest,
        path: Option<&str>,
        request: Request,
    ) -> Result<Json<Vec<Value>>, Refusal> {
        let broken = |why: String| Refusal::invalid(format!("the form cannot be read: {why}"));
        let mut form = Multipart::from_request(request, &()).await.map_err(|e| broken(e.body_text()))?;
        let mut seen = BTreeSet::new();
        let mut files = Vec::new();
        while let Some(field) = form.next_field().await.map_err(|e| broken(e.body_text()))? {
            if field.name() != Some("file") {
                continue;
            }
            let name = path.or(field.file_name()).unwrap_or_default();
            if name.is_empty() {
                return Err(Refusal::invalid("a file has neither a path nor a name"));
            }
            let place = paths::resolve(name)?;
            if !seen.insert(place.clone()) {
                return Err(Refusal::invalid(format!("two files are to be written to '{place}'")));
            }
            if seen.len() > MOST {
                return Err(Refusal::invalid(format!("a form has at most {MOST} files")));
            }
            files.push(self.write_part(guest, &place, field).await?);
        }
        match files.is_empty() {
            true => Err(Refusal::invalid("the form has no part called file")),
            false => Ok(Json(files)),
        }
    }

    /// The part is read while the file is written: neither is held in memory as a whole.
    async fn write_part(
        &self,
        guest: &Guest,
        path: &GuestPath,
        mut field: Field<'_>,
    ) -> Result<Value, Refusal> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let content = ByteStream::new(ReceiverStream::new(receiver));
        let reading = async move {
            loop {
                let piece = match field.chunk().await {
                    Ok(Some(piece)) => Ok(piece),
                    Ok(None) => return,
                    Err(error) => {
                        Err(Error::new(ErrorKind::InvalidRequest, "the form broke off").with_source(error))
                    }
                };
                let last = piece.is_err();
                if sender.send(piece).await.is_err() || last {
                    return;
                }
            }
        };
        let ((), file) = tokio::join!(reading, self.write(guest, path, content));
        file
    }
}
