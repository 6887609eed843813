//! Templates: those of the operator's list, and saved sandboxes. None can be built here.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use sandstorm_types::ErrorKind;
use serde_json::{Value, json};

use super::Meant;
use super::view::ENVD_VERSION;
use crate::refusal::Refusal;
use crate::state::Dialect;

pub(crate) async fn list(State(dialect): State<Dialect>) -> Json<Vec<Value>> {
    Json(dialect.settings.templates.keys().map(|name| dialect.template_view(name)).collect())
}

pub(crate) async fn get(
    State(dialect): State<Dialect>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Refusal> {
    match dialect.settings.templates.contains_key(&name) {
        true => Ok(Json(dialect.template_view(&name))),
        false => Err(missing(&name)),
    }
}

pub(crate) async fn alias(
    State(dialect): State<Dialect>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Refusal> {
    match dialect.settings.templates.contains_key(&name) {
        true => Ok(Json(json!({"templateID": name, "public": true}))),
        false => Err(missing(&name)),
    }
}

/// Saved sandboxes can be removed, the operator's templates cannot.
pub(crate) async fn delete(meant: Meant) -> Result<StatusCode, Refusal> {
    if meant.dialect.settings.templates.contains_key(&meant.id) {
        return Err(missing(&meant.id));
    }
    let saved = meant.dialect.saved(&meant.caller, &meant.id).await?;
    match meant.dialect.control.delete_snapshot(&meant.caller, saved.id).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(missing(&meant.id)),
        removed => Ok(removed.map(|()| StatusCode::NO_CONTENT)?),
    }
}

pub(crate) async fn build() -> Refusal {
    Refusal::invalid("templates are not built by this server: its operator lists them in the configuration")
}

/// Lines of a sandbox's log; programs' output goes to who started them.
pub(crate) async fn logs(meant: Meant) -> Result<Json<Value>, Refusal> {
    meant.living().await?;
    Ok(Json(json!({"logs": [], "logEntries": []})))
}

/// For addresses that this API does not have.
pub(crate) async fn nothing() -> Refusal {
    Refusal::new(StatusCode::NOT_FOUND, "there is no such route")
}

pub(crate) fn missing(name: &str) -> Refusal {
    let shown: String = name.chars().take(128).collect();
    Refusal::not_found(format!("template '{shown}' not found"))
}

impl Dialect {
    fn template_view(&self, name: &str) -> Value {
        let limits = &self.settings.limits;
        json!({
            "templateID": name,
            "buildID": "00000000-0000-0000-0000-000000000000",
            "cpuCount": limits.cpus.map_or(1, |cpus| cpus.milli().div_ceil(1000)),
            "memoryMB": limits.memory.map_or(512, |memory| memory.as_u64() >> 20),
            "diskSizeMB": limits.disk.map_or(512, |disk| disk.as_u64() >> 20),
            "public": true,
            "aliases": [name],
            "names": [name],
            "createdAt": "1970-01-01T00:00:00Z",
            "updatedAt": "1970-01-01T00:00:00Z",
            "createdBy": null,
            "lastSpawnedAt": null,
            "spawnCount": 0,
            "buildCount": 0,
            "envdVersion": ENVD_VERSION,
            "buildStatus": "ready",
        })
    }
}
