//! The description of the API, in OpenAPI's form.

use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;

const DOCUMENT: &str = include_str!("api.json");

pub(crate) async fn document() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], DOCUMENT)
}
