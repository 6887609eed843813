//! Copies of living sandboxes, and snapshots, which this server has none of.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use http::StatusCode;
use sandstorm_control::server::{Caller, NewFork};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body::{self, SMALL};
use crate::refusal::Refusal;
use crate::state::Dialect;

const MOST: i64 = 20;
const TIMEOUT: i64 = 15;

#[derive(Debug, Deserialize)]
struct ForkBody {
    timeout: Option<i64>,
    count: Option<i64>,
}

pub(crate) async fn fork(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Body,
) -> Result<impl IntoResponse, Refusal> {
    let asked: ForkBody = body::read(body, SMALL).await?;
    let count = asked.count.unwrap_or(1);
    let count = u32::try_from(count).ok().filter(|_| (1..=MOST).contains(&count));
    let count = count.ok_or_else(|| Refusal::invalid("count must be between 1 and 20"))?;
    let lifetime = Some(dialect.lifetime(asked.timeout.unwrap_or(TIMEOUT))?);
    let view = dialect.living(&caller, &id).await?;
    let new = NewFork { count, lifetime, allow_partial: true, ..NewFork::default() };
    let forks =
        dialect.control.fork_sandbox(&caller, view.id, new).await.map_err(|e| Refusal::from(e).hard())?;
    let told = forks.into_iter().map(|fork| match fork {
        Ok(fork) => json!({"sandbox": dialect.access_to(&fork.sandbox)}),
        Err(error) => {
            let refused = Refusal::from(error);
            json!({"error": {"code": refused.status().as_u16(), "message": refused.message()}})
        }
    });
    Ok((StatusCode::CREATED, Json(told.collect::<Vec<Value>>())))
}

pub(crate) async fn snapshot(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    dialect.living(&caller, &id).await?;
    Err(Refusal::invalid("snapshots are not offered by this server: pause or fork the sandbox instead"))
}

pub(crate) async fn snapshots() -> Json<Value> {
    Json(json!([]))
}
