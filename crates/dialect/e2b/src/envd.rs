//! What E2B's agent inside a sandbox answers on port 49983, apart from its files.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http::StatusCode;
use serde_json::{Value, json};

use crate::door::Guest;
use crate::refusal::Refusal;
use crate::sandboxes::metrics;
use crate::state::Dialect;
use crate::{files, filesystem, process};

pub(crate) fn router(dialect: &Dialect) -> Router {
    Router::new()
        .route("/health", get(async || StatusCode::NO_CONTENT))
        .route("/metrics", get(usage))
        .route("/envs", get(variables))
        .route("/process.Process/{method}", post(process::call))
        .route("/filesystem.Filesystem/{method}", post(filesystem::call))
        .merge(files::routes())
        .fallback(async || Refusal::not_found("there is no such route").into_response())
        .with_state(dialect.clone())
}

async fn variables(
    State(dialect): State<Dialect>,
    Extension(guest): Extension<Guest>,
) -> Result<Json<BTreeMap<String, String>>, Refusal> {
    let view = dialect.control.sandbox(&guest.caller, guest.sandbox).await?;
    Ok(Json(view.spec.env.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
}

/// A reading of now.
async fn usage(
    State(dialect): State<Dialect>,
    Extension(guest): Extension<Guest>,
) -> Result<Json<Value>, Refusal> {
    let view = dialect.control.sandbox(&guest.caller, guest.sandbox).await?;
    let now = dialect.control.sandbox_usage(&guest.caller, guest.sandbox).await?;
    let last = metrics::metrics(&view, &[now]).pop().unwrap_or_else(|| json!({}));
    let number = |name: &str| last[name].as_u64().unwrap_or(0);
    let limits = &view.spec.limits;
    Ok(Json(json!({
        "ts": number("timestampUnix"),
        "cpu_count": limits.cpus.milli().div_ceil(1000),
        "cpu_used_pct": last["cpuUsedPct"].as_f64().unwrap_or(0.0),
        "mem_total": limits.memory.as_u64(),
        "mem_used": number("memUsed"),
        "mem_cache": 0,
        "mem_total_mib": limits.memory.as_u64() >> 20,
        "mem_used_mib": number("memUsed") >> 20,
        "disk_used": number("diskUsed"),
        "disk_total": limits.disk.as_u64(),
    })))
}
