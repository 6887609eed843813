//! Writing files: one as the body itself, or several as the parts of a form.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::extract::multipart::Field;
use axum::extract::{FromRequest, Multipart, Request, State};
use axum::{BoxError, Extension, Json};
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use http::{HeaderMap, StatusCode, header};
use sandstorm_provider::{ByteStream, Error, Metadata, WriteOptions};
use sandstorm_types::{ErrorKind, GuestPath};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::compression;
use super::download::{about, pieces, user};
use super::metadata;
use crate::door::Guest;
use crate::filesystem::written;
use crate::query::Query;
use crate::refusal::Refusal;
use crate::state::Dialect;

/// Pieces of a part that may wait to be written.
const WAITING: usize = 8;
/// How long nothing may come of a body.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Most files of one form.
const MOST: usize = 1000;

pub(super) async fn upload(
    State(dialect): State<Dialect>,
    Extension(guest): Extension<Guest>,
    request: Request,
) -> Result<Json<Vec<Value>>, Refusal> {
    let query = Query::of(request.uri());
    let guest = guest.acting_as(user(&query)?);
    let metadata = metadata::of(request.headers())?;
    let request = request.map(|body| Body::from_stream(steady(body.into_data_stream())));
    let path = query.get("path").filter(|path| !path.is_empty());
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "multipart/form-data" => dialect.write_parts(&guest, path, &metadata, request).await,
        "application/octet-stream" => {
            let path = path.ok_or_else(|| Refusal::invalid("path is missing"))?;
            let (parts, body) = request.into_parts();
            let content = unpacked(&parts.headers, body)?;
            let file = dialect.write(&guest, &guest.resolve(path)?, &metadata, content).await?;
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

/// A body whose sender may pause for a while and not for ever: its SDKs leave this to the server.
fn steady<E: Into<BoxError>>(
    body: impl Stream<Item = Result<Bytes, E>> + Send,
) -> impl Stream<Item = Result<Bytes, BoxError>> + Send {
    stream::unfold(Some(Box::pin(body)), |body| async move {
        let mut body = body?;
        match tokio::time::timeout(LONGEST_PAUSE, body.next()).await {
            Ok(piece) => Some((piece?.map_err(Into::into), Some(body))),
            Err(_) => Some((Err("the sender paused for too long".into()), None)),
        }
    })
}

impl Dialect {
    async fn write(
        &self,
        guest: &Guest,
        path: &GuestPath,
        metadata: &Metadata,
        content: ByteStream,
    ) -> Result<Value, Refusal> {
        let options = WriteOptions { metadata: metadata.clone() };
        let write = self.control.write_file_with(&guest.caller, guest.sandbox, path, options, content);
        Ok(written(&write.await.map_err(|error| about(path, error))?, metadata))
    }

    /// Parts called `file`: each under the path that the address names, or else under its own file name.
    async fn write_parts(
        &self,
        guest: &Guest,
        path: Option<&str>,
        metadata: &Metadata,
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
            let place = guest.resolve(name)?;
            if !seen.insert(place.clone()) {
                return Err(Refusal::invalid(format!("two files are to be written to '{place}'")));
            }
            if seen.len() > MOST {
                return Err(Refusal::invalid(format!("a form has at most {MOST} files")));
            }
            files.push(self.write_part(guest, &place, metadata, field).await?);
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
        metadata: &Metadata,
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
        let ((), file) = tokio::join!(reading, self.write(guest, path, metadata, content));
        file
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_may_pause_but_not_for_ever() {
        let minute = |seconds: u64| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok::<_, BoxError>(Bytes::from_static(b"x"))
        };
        let slow = stream::iter([50, 50, 70]).then(minute);
        let told: Vec<_> = steady(slow).map(|piece| piece.is_ok()).collect().await;
        assert_eq!(told, [true, true, false]);
    }
}
