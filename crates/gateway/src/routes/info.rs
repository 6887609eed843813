//! The server about itself and its caller.

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use sandstorm_control::server::Caller;

use crate::app::App;
use crate::auth;
use crate::problem::ApiResult;
use crate::query::Query;
use crate::wire::{HealthBody, LanguageList, LimitsBody, MeBody, VersionBody};

/// Whether the process answers.
#[utoipa::path(get, path = "/healthz", tag = "server", operation_id = "healthz",
    responses((status = 200, description = "It does", body = HealthBody)))]
pub(crate) async fn healthz() -> Json<HealthBody> {
    Json(HealthBody { status: "ok" })
}

/// Whether work is taken.
#[utoipa::path(get, path = "/readyz", tag = "server", operation_id = "readyz", responses(
    (status = 200, description = "It is", body = HealthBody),
    (status = 503, description = "Not now", body = HealthBody)))]
pub(crate) async fn readyz(State(app): State<App>) -> Response {
    let readiness = app.control.readiness().await;
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let reason = readiness.reason.unwrap_or(if readiness.ready { "ok" } else { "not ready" });
    (status, Json(HealthBody { status: reason })).into_response()
}

/// Numbers for Prometheus, none of them by tenant.
#[utoipa::path(get, path = "/metrics", tag = "server", operation_id = "prometheus",
    responses((status = 200, description = "Prometheus text", body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(State(app): State<App>) -> Response {
    let format = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, format)], (app.metrics)()).into_response()
}

/// Versions of server and API, and what this server can do.
#[utoipa::path(get, path = "/v1/version", tag = "server", operation_id = "version",
    responses((status = 200, description = "Versions", body = VersionBody)))]
pub(crate) async fn version(State(app): State<App>, query: Query) -> ApiResult<Json<VersionBody>> {
    query.finish()?;
    let capabilities = app.control.capabilities().into();
    Ok(Json(VersionBody { name: "sandstorm", version: env!("CARGO_PKG_VERSION"), api: "v1", capabilities }))
}

/// Languages, and which of them this server can run.
#[utoipa::path(get, path = "/v1/languages", tag = "server", operation_id = "languages",
    responses((status = 200, description = "Languages", body = LanguageList)))]
pub(crate) async fn languages(State(app): State<App>, query: Query) -> ApiResult<Json<LanguageList>> {
    query.finish()?;
    Ok(Json(LanguageList { languages: (app.languages)() }))
}

/// Limits that requests get and may ask for.
#[utoipa::path(get, path = "/v1/limits", tag = "server", operation_id = "limits",
    responses((status = 200, description = "Limits", body = LimitsBody)))]
pub(crate) async fn limits(State(app): State<App>, query: Query) -> ApiResult<Json<LimitsBody>> {
    query.finish()?;
    let settings = &app.settings;
    Ok(Json(LimitsBody {
        default: settings.limits,
        ceiling: settings.ceiling,
        lifetime_max: settings.longest_lifetime,
        json_bytes: settings.json_limit,
    }))
}

/// Who the key says that the caller is.
#[utoipa::path(get, path = "/v1/me", tag = "server", operation_id = "me",
    responses((status = 200, description = "The caller", body = MeBody)))]
pub(crate) async fn me(Extension(caller): Extension<Caller>, query: Query) -> ApiResult<Json<MeBody>> {
    query.finish()?;
    let scopes = auth::scopes(&caller).into_iter().map(Into::into).collect();
    Ok(Json(MeBody { tenant: caller.tenant(), key: caller.key_id().to_owned(), scopes }))
}
