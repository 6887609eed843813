//! Files to look at.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use sandstorm_control::server::Caller;
use sandstorm_provider::ReadRange;

use crate::file_types;
use crate::paths::file_place;
use crate::refusal::Refusal;
use crate::request::{QueryFields, Target};
use crate::router::Dialect;
use crate::routes::files::{attachment, content};

/// `sid` must be there and was never checked: who may see a session is decided by the key.
pub(crate) async fn preview(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    target: Target,
    QueryFields(mut query): QueryFields,
) -> Result<Response, Refusal> {
    query.text("sid");
    query.done()?;
    let path = file_place(&target.path)?;
    let Some(mime) = file_types::preview(path.as_str()) else {
        let detail = "html txt md json xml csv png jpg jpeg gif bmp webp svg ico can be looked at";
        return Err(Refusal::sandbox(StatusCode::BAD_REQUEST, "File type not supported", detail));
    };
    let view = dialect.sessions.open(&caller, &target.session).await?;
    let (_, content) = content(&dialect, &caller, view.id, &path, ReadRange::default()).await?;
    Ok(attachment(&path, mime, content))
}
