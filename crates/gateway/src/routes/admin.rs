//! Keys, tenants and the audit log, for operators.

use std::time::Duration;

use axum::Json as Answer;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use sandstorm_control::server::Caller;
use sandstorm_types::TenantId;

use crate::app::App;
use crate::ids::Id;
use crate::json::Json;
use crate::problem::ApiResult;
use crate::query::Query;
use crate::wire::{
    AuditList, CreateKey, CreateTenant, CreatedKey, KeyBody, KeyList, RotateKey, TenantBody, TenantList,
};

/// Makes a key; its secret is shown this once.
#[utoipa::path(post, path = "/v1/admin/keys", tag = "admin", operation_id = "create_key", request_body = CreateKey,
    responses((status = 201, description = "The key", body = CreatedKey)))]
pub(crate) async fn create_key(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Json<CreateKey>,
) -> ApiResult<Response> {
    let (view, key) = app.control.create_key(&caller, body.value.into_new()?).await?;
    Ok((StatusCode::CREATED, Answer(CreatedKey { key, about: view.into() })).into_response())
}

/// Keys, without their secrets.
#[utoipa::path(get, path = "/v1/admin/keys", tag = "admin", operation_id = "list_keys",
    params(("tenant" = Option<String>, Query, description = "Only this tenant's", pattern = "^ten_[a-z2-7]{26}$")),
    responses((status = 200, description = "Keys", body = KeyList)))]
pub(crate) async fn list_keys(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    mut query: Query,
) -> ApiResult<Answer<KeyList>> {
    let tenant = query.read::<TenantId>("tenant")?;
    query.finish()?;
    let keys = app.control.keys(&caller, tenant).await?;
    Ok(Answer(KeyList { items: keys.into_iter().map(KeyBody::from).collect() }))
}

/// Ends a key; open streams of it end within a second.
#[utoipa::path(delete, path = "/v1/admin/keys/{key}", tag = "admin", operation_id = "revoke_key",
    params(("key" = String, Path, description = "Public id of the key")),
    responses((status = 200, description = "The key", body = KeyBody)))]
pub(crate) async fn revoke_key(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<String>,
) -> ApiResult<Answer<KeyBody>> {
    Ok(Answer(app.control.revoke_key(&caller, &id).await?.into()))
}

/// A new secret for the same name and scopes; the old one stays good for `overlap`.
#[utoipa::path(post, path = "/v1/admin/keys/{key}/rotate", tag = "admin", operation_id = "rotate_key",
    params(("key" = String, Path, description = "Public id of the key")), request_body = RotateKey,
    responses((status = 201, description = "The new key", body = CreatedKey)))]
pub(crate) async fn rotate_key(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Id(id): Id<String>,
    body: Json<RotateKey>,
) -> ApiResult<Response> {
    let overlap = body.value.overlap.unwrap_or(Duration::ZERO);
    let (view, key) = app.control.rotate_key(&caller, &id, overlap).await?;
    Ok((StatusCode::CREATED, Answer(CreatedKey { key, about: view.into() })).into_response())
}

/// Makes a tenant.
#[utoipa::path(post, path = "/v1/admin/tenants", tag = "admin", operation_id = "create_tenant",
    request_body = CreateTenant, responses((status = 201, description = "The tenant", body = TenantBody)))]
pub(crate) async fn create_tenant(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Json<CreateTenant>,
) -> ApiResult<Response> {
    let tenant = app.control.create_tenant(&caller, body.value.into_new()?).await?;
    Ok((StatusCode::CREATED, Answer(TenantBody::from(tenant))).into_response())
}

/// Tenants.
#[utoipa::path(get, path = "/v1/admin/tenants", tag = "admin", operation_id = "list_tenants",
    responses((status = 200, description = "Tenants", body = TenantList)))]
pub(crate) async fn list_tenants(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
) -> ApiResult<Answer<TenantList>> {
    let tenants = app.control.tenants(&caller).await?;
    Ok(Answer(TenantList { items: tenants.into_iter().map(TenantBody::from).collect() }))
}

/// Acts of principals, oldest first.
#[utoipa::path(get, path = "/v1/admin/audit", tag = "admin", operation_id = "audit",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant's", pattern = "^ten_[a-z2-7]{26}$"),
        ("after" = Option<u64>, Query, description = "Only records with a higher number"),
        ("limit" = Option<u32>, Query, description = "At most so many", minimum = 1, maximum = 1000)),
    responses((status = 200, description = "Records", body = AuditList)))]
pub(crate) async fn audit(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    mut query: Query,
) -> ApiResult<Answer<AuditList>> {
    let tenant = query.read::<TenantId>("tenant")?;
    let after = query.number("after", 0, i64::MAX as u64)?.unwrap_or(0);
    let limit = query.number("limit", 1, 1000)?.unwrap_or(100) as u32;
    query.finish()?;
    let rows = app.control.audit(&caller, tenant, after, limit).await?;
    Ok(Answer(AuditList { items: rows.into_iter().map(Into::into).collect() }))
}
