//! Where things go.

use axum::Json as Answer;
use axum::extract::{Extension, State};
use sandstorm_control::server::Caller;

use crate::app::App;
use crate::json::Json;
use crate::problem::ApiResult;
use crate::query::Query;
use crate::wire::{ExplainRoute, ExplanationBody, ProviderBody, ProviderList};

/// Where such a sandbox would go, with every provider's verdict. Nothing is made.
#[utoipa::path(post, path = "/v1/route/explain", tag = "routing", operation_id = "explain_route",
    request_body = ExplainRoute,
    responses((status = 200, description = "The decision", body = ExplanationBody)))]
pub(crate) async fn explain(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    body: Json<ExplainRoute>,
) -> ApiResult<Answer<ExplanationBody>> {
    Ok(Answer(app.control.explain(&caller, body.value.into())?.into()))
}

/// Every place where sandboxes can be, with its health at this moment.
#[utoipa::path(get, path = "/v1/providers", tag = "routing", operation_id = "list_providers",
    responses((status = 200, description = "Providers", body = ProviderList)))]
pub(crate) async fn providers(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    query: Query,
) -> ApiResult<Answer<ProviderList>> {
    query.finish()?;
    let providers = app.control.providers(&caller).await?;
    Ok(Answer(ProviderList { providers: providers.into_iter().map(ProviderBody::from).collect() }))
}
