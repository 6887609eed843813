//! What tenants use and what it costs.

use axum::Json;
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};
use sandstorm_control::server::{Caller, CostQuery, GroupBy};
use sandstorm_types::{TenantId, Timestamp};

use super::original;
use crate::app::App;
use crate::front::AsOriginal;
use crate::problem::{ApiError, ApiResult};
use crate::query::Query;
use crate::wire::{CostsBody, UsageBody};

/// Where the next page of a table begins.
const NEXT: &str = "x-next-cursor";

/// What the caller's tenant uses and may use, and what it cost.
///
/// With `Accept: text/csv` or `format=csv` the answer is the table of costs; the header `X-Next-Cursor` tells where the next
/// page begins. With `start` or `end`, the words of the first Sandstorm's SDK, the answer is the summary that it reads.
#[utoipa::path(get, path = "/v1/usage", tag = "server", operation_id = "usage",
    params(
        ("from" = Option<String>, Query, description = "What began from here: a time or a day. The first of the month unless given", pattern = "^[0-9]{4}-[0-9]{2}-[0-9]{2}(T.*)?$"),
        ("to" = Option<String>, Query, description = "To before here; now unless given", pattern = "^[0-9]{4}-[0-9]{2}-[0-9]{2}(T.*)?$"),
        ("group_by" = Option<String>, Query, description = "Any of `tenant`, `key`, `provider`, `region`, `kind`, `day`, `hour` and `label:` with a name, separated by commas", example = "provider,label:team"),
        ("format" = Option<String>, Query, description = "`json` or `csv`", pattern = "^(json|csv)$"),
        ("limit" = Option<u32>, Query, description = "At most so many groups", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "From `next_cursor` of an earlier page")),
    responses((status = 200, description = "Usage; or a table by `Accept`", content(
        (UsageBody = "application/json"), (String = "text/csv")))))]
pub(crate) async fn of_tenant(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    as_original: Option<Extension<AsOriginal>>,
    headers: HeaderMap,
    mut query: Query,
) -> ApiResult<Response> {
    if as_original.is_some() || original::asks_usage(&query) {
        return original::usage(&app, &caller, query).await;
    }
    let (wanted, csv) = read(&mut query, &headers)?;
    query.finish()?;
    let costs = CostsBody::from(app.control.costs(&caller, wanted).await?);
    if csv {
        return Ok(table(&costs));
    }
    Ok(Json(UsageBody::new(app.control.usage(&caller).await?, costs)).into_response())
}

/// What all tenants spent, or one.
#[utoipa::path(get, path = "/v1/admin/usage", tag = "admin", operation_id = "all_usage",
    params(
        ("tenant" = Option<String>, Query, description = "Only this tenant's", pattern = "^ten_[a-z2-7]{26}$"),
        ("from" = Option<String>, Query, description = "What began from here: a time or a day. The first of the month unless given", pattern = "^[0-9]{4}-[0-9]{2}-[0-9]{2}(T.*)?$"),
        ("to" = Option<String>, Query, description = "To before here; now unless given", pattern = "^[0-9]{4}-[0-9]{2}-[0-9]{2}(T.*)?$"),
        ("group_by" = Option<String>, Query, description = "Any of `tenant`, `key`, `provider`, `region`, `kind`, `day`, `hour` and `label:` with a name, separated by commas", example = "tenant,provider"),
        ("format" = Option<String>, Query, description = "`json` or `csv`", pattern = "^(json|csv)$"),
        ("limit" = Option<u32>, Query, description = "At most so many groups", minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "From `next_cursor` of an earlier page")),
    responses((status = 200, description = "Costs; or a table by `Accept`", content(
        (CostsBody = "application/json"), (String = "text/csv")))))]
pub(crate) async fn of_all(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    mut query: Query,
) -> ApiResult<Response> {
    let tenant = query.read::<TenantId>("tenant")?;
    let (wanted, csv) = read(&mut query, &headers)?;
    query.finish()?;
    let costs = CostsBody::from(app.control.costs_of_all(&caller, tenant, wanted).await?);
    Ok(if csv { table(&costs) } else { Json(costs).into_response() })
}

/// What is wanted, and whether as a table.
fn read(query: &mut Query, headers: &HeaderMap) -> ApiResult<(CostQuery, bool)> {
    let csv = match query.text("format")?.as_deref() {
        None => wants_csv(headers),
        Some("csv") => true,
        Some("json") => false,
        Some(_) => return Err(ApiError::field("format", "must be json or csv")),
    };
    let mut group_by: Vec<GroupBy> = Vec::new();
    for list in query.all("group_by") {
        for name in list.split(',').filter(|name| !name.is_empty()) {
            let by: GroupBy =
                name.parse().map_err(|error| ApiError::field("group_by", format!("{error}")))?;
            if group_by.contains(&by) {
                return Err(ApiError::field("group_by", "names something twice"));
            }
            group_by.push(by);
        }
    }
    let wanted = CostQuery {
        from: moment(query, "from")?,
        to: moment(query, "to")?,
        group_by,
        limit: query.number("limit", 1, 1000)?.and_then(|limit| u32::try_from(limit).ok()),
        cursor: query.text("cursor")?,
    };
    Ok((wanted, csv))
}

/// A time, or the beginning of a day.
pub(super) fn moment(query: &mut Query, name: &str) -> ApiResult<Option<Timestamp>> {
    let Some(text) = query.text(name)? else { return Ok(None) };
    let whole = if text.len() == 10 { format!("{text}T00:00:00.000Z") } else { text };
    let moment: Timestamp = whole.parse().map_err(|_| {
        ApiError::field(name, "must be a day such as 2026-11-15 or a time such as 2026-11-15T12:03:43.123Z")
    })?;
    Ok(Some(moment))
}

fn wants_csv(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = accepts
        .flat_map(|value| value.split(','))
        .map(|one| one.split(';').next().unwrap_or_default().trim());
    types.any(|one| one.eq_ignore_ascii_case("text/csv"))
}

fn table(costs: &CostsBody) -> Response {
    let form = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8")),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"usage.csv\"")),
    ];
    let mut response = (form, costs.csv()).into_response();
    if let Some(cursor) = costs.next_cursor().and_then(|cursor| HeaderValue::from_str(cursor).ok()) {
        response.headers_mut().insert(NEXT, cursor);
    }
    response
}
