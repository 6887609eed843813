//! The API's own description, and pages to read and try it, served from this binary alone.

use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::extract::RawPathParams;
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderValue, header};
use utoipa_swagger_ui::Config;

use crate::openapi;
use crate::problem::{ApiError, ApiResult};

/// Scripts and styles come from here and nowhere else; the page may call this server only.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
    img-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

static DOCUMENT: LazyLock<String> = LazyLock::new(openapi::json);

pub(crate) async fn openapi_json() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}

pub(crate) async fn docs() -> Redirect {
    Redirect::permanent("/docs/")
}

pub(crate) async fn docs_file(parameters: RawPathParams) -> ApiResult<Response> {
    let name = parameters.iter().next().map_or("", |(_, name)| name);
    let config = Arc::new(Config::from("/openapi.json").validator_url("none"));
    let file = utoipa_swagger_ui::serve(name, config).ok().flatten();
    let file = file.ok_or_else(|| ApiError::not_found().detail("there is no such page"))?;
    let content_type =
        HeaderValue::from_str(&file.content_type).map_err(|_| ApiError::invalid("the page has no type"))?;
    let packed = file.gzpipped;
    let mut response = Response::new(Body::from(file.bytes.into_owned()));
    let headers = response.headers_mut();
    if packed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(header::CONTENT_TYPE, content_type);
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}
