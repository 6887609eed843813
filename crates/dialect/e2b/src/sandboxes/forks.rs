//! Copies of living sandboxes.

use axum::Json;
use axum::body::Body;
use axum::response::IntoResponse;
use http::StatusCode;
use sandstorm_control::server::NewFork;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Meant;
use crate::body::{self, SMALL};
use crate::refusal::Refusal;

const MOST: i64 = 20;
const TIMEOUT: i64 = 15;

#[derive(Debug, Deserialize)]
struct ForkBody {
    timeout: Option<i64>,
    count: Option<i64>,
}

pub(crate) async fn fork(meant: Meant, body: Body) -> Result<impl IntoResponse, Refusal> {
    let mut room = meant.body_room();
    let asked: ForkBody = body::read(body, SMALL, &mut room).await?;
    let count = asked.count.unwrap_or(1);
    let count = u32::try_from(count).ok().filter(|_| (1..=MOST).contains(&count));
    let count = count.ok_or_else(|| Refusal::invalid("count must be between 1 and 20"))?;
    let lifetime = Some(meant.dialect.lifetime(asked.timeout.unwrap_or(TIMEOUT))?);
    let view = meant.living().await?;
    let Meant { dialect, caller, here, .. } = meant;
    let new = NewFork { count, lifetime, allow_partial: true, ..NewFork::default() };
    let forks =
        dialect.control.fork_sandbox(&caller, view.id, new).await.map_err(|e| Refusal::from(e).hard())?;
    let told = forks.into_iter().map(|fork| {
        let opened =
            fork.map_err(Refusal::from).and_then(|fork| dialect.access_to(&caller, &fork.sandbox, &here));
        opened.map_or_else(
            |refused| json!({"error": {"code": refused.status().as_u16(), "message": refused.message()}}),
            |access| json!({"sandbox": access}),
        )
    });
    Ok((StatusCode::CREATED, Json(told.collect::<Vec<Value>>())))
}
