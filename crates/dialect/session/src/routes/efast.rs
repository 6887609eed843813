//! The route to a vendor's document store, which is not offered.

use axum::Extension;
use http::StatusCode;
use sandstorm_control::server::Caller;
use serde_json::Value;

use crate::refusal::Refusal;
use crate::request::{BodyFields, Target};

/// Looks at the request as ever, so that a client learns first what is wrong with it, and then says no.
pub(crate) async fn download(
    Extension(_caller): Extension<Caller>,
    _target: Target,
    BodyFields(mut body, _room): BodyFields,
) -> Refusal {
    let params = body.objects("file_params");
    if let Err(refusal) = body.done() {
        return refusal;
    }
    if params.is_empty() {
        return Refusal::bad_request("No file parameters provided");
    }
    let without = params.iter().position(|file| !file.get("docid").is_some_and(Value::is_string));
    if let Some(place) = without {
        return Refusal::bad_request(format!("Missing docid in file_params[{place}]"));
    }
    Refusal::sandbox(
        StatusCode::NOT_IMPLEMENTED,
        "Downloads from efast are not offered",
        "this server has no connection to that document store; upload the files instead",
    )
}
