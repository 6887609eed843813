//! Uploads: a form with a file, passed on to the sandbox as it arrives.

use std::pin::pin;
use std::time::Duration;

use axum::Extension;
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{FromRequest, Multipart, Request, State};
use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use sandstorm_control::server::{Caller, WrittenFile};
use sandstorm_provider::{ByteStream, Error, Result};
use sandstorm_types::{ErrorKind, GuestPath, SandboxId};
use tokio::sync::mpsc;

use crate::answer::Answer;
use crate::fields::FieldError;
use crate::paths::file_place;
use crate::refusal::Refusal;
use crate::request::{QueryFields, Target};
use crate::router::Dialect;
use crate::routes::files::Written;

/// Pieces of a file on their way from the connection to the sandbox.
const PIECES: usize = 4;
/// How much of a refused upload is still taken in, and for how long.
const MOST_DISCARDED: usize = 256 << 20;
const LONGEST_DISCARD: Duration = Duration::from_secs(10);

pub(crate) async fn upload(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    target: Target,
    QueryFields(mut query): QueryFields,
    request: Request,
) -> Result<Answer<Written>, Refusal> {
    let named = query.optional_text("filename").filter(|name| !name.is_empty());
    query.done()?;
    let missing = || Refusal::from(FieldError::new(["body", "file"], "Field required", "missing"));
    let mut form = Multipart::from_request(request, &()).await.map_err(|_| missing())?;
    while let Some(field) = form.next_field().await.map_err(broken)? {
        if field.name() != Some("file") {
            continue;
        }
        let filename = named.or_else(|| field.file_name().filter(|name| !name.is_empty()).map(str::to_owned));
        let Some(filename) = filename else {
            return Err(Refusal::bad_request("No filename provided"));
        };
        let path = file_place(&filename)?;
        let view = dialect.sessions.open(&caller, &target.session).await?;
        let written = pass_on(&dialect, &caller, view.id, &path, field).await?;
        return Ok(Answer(Written { filename, size: written.size }));
    }
    Err(missing())
}

/// Reads the field and writes the file side by side; nothing of a form that breaks off stays.
async fn pass_on(
    dialect: &Dialect,
    caller: &Caller,
    sandbox: SandboxId,
    path: &GuestPath,
    mut field: Field<'_>,
) -> Result<WrittenFile, Refusal> {
    let (sender, receiver) = mpsc::channel::<Result<Bytes>>(PIECES);
    let pieces =
        stream::unfold(receiver, async |mut receiver| receiver.recv().await.map(|piece| (piece, receiver)));
    let mut write = pin!(dialect.sessions.control.write_file(caller, sandbox, path, ByteStream::new(pieces)));
    let written = tokio::select! {
        biased;
        written = &mut write => written,
        read = read_into(&mut field, sender) => {
            let written = write.await;
            read.map_err(broken)?;
            written
        }
    };
    if written.is_err() {
        discard(field).await;
    }
    Ok(written?)
}

/// Reads the field to its end, or until nobody wants it any more.
async fn read_into(field: &mut Field<'_>, sender: mpsc::Sender<Result<Bytes>>) -> Result<(), MultipartError> {
    loop {
        match field.chunk().await {
            Ok(Some(piece)) => {
                if sender.send(Ok(piece)).await.is_err() {
                    return Ok(());
                }
            }
            Ok(None) => return Ok(()),
            Err(error) => {
                let told = Error::new(ErrorKind::InvalidRequest, "the upload broke off");
                // Who does not listen any more has failed already, and says so.
                let _ = sender.send(Err(told)).await;
                return Err(error);
            }
        }
    }
}

/// Reads on for a while after a refusal: most clients look for an answer only when they have sent everything.
async fn discard(mut field: Field<'_>) {
    let reading = async {
        let mut room = MOST_DISCARDED;
        while let Ok(Some(piece)) = field.chunk().await {
            match room.checked_sub(piece.len()) {
                Some(left) => room = left,
                None => break,
            }
        }
    };
    // Too slow is as good as too much: the connection is closed then.
    let _ = tokio::time::timeout(LONGEST_DISCARD, reading).await;
}

fn broken(error: MultipartError) -> Refusal {
    match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            Refusal::sandbox(StatusCode::PAYLOAD_TOO_LARGE, "the upload is too large", error.body_text())
        }
        _ => Refusal::bad_request(format!("the form cannot be read: {}", error.body_text())),
    }
}
