//! Sandboxes found, kept alive, paused, resumed and ended.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::StatusCode;
use sandstorm_control::server::{Caller, SandboxView};
use sandstorm_types::{Phase, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::view::is_paused;
use crate::body::{self, SMALL};
use crate::refusal::Refusal;
use crate::state::Dialect;

/// Seconds that one gets who says nothing, by route.
const CONNECT: i64 = 300;
const RESUME: i64 = 15;
const REFRESH: i64 = 60;
/// The most that a refresh adds.
const LONGEST_REFRESH: i64 = 3600;
/// How often, and how many times, a sandbox that changes is looked at again.
const LOOK: Duration = Duration::from_millis(200);
const LOOKS: usize = 50;

#[derive(Debug, Deserialize)]
pub(crate) struct TimeoutBody {
    timeout: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RefreshBody {
    duration: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PauseBody {
    memory: Option<bool>,
}

pub(crate) async fn get(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let view = dialect.living(&caller, &id).await?;
    Ok(Json(dialect.detail(&view)))
}

pub(crate) async fn kill(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    let view = dialect.living(&caller, &id).await?;
    dialect.control.delete_sandbox(&caller, view.id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Its life ends so many seconds from now, sooner or later than it would have.
pub(crate) async fn timeout(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Body,
) -> Result<StatusCode, Refusal> {
    let asked: TimeoutBody = body::read(body, SMALL).await?;
    let span = dialect.lifetime(asked.timeout.ok_or_else(|| Refusal::invalid("timeout is missing"))?)?;
    let view = dialect.living(&caller, &id).await?;
    dialect.control.extend_sandbox(&caller, view.id, span).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Keeps it alive, as older clients do it; nothing is ever taken away.
pub(crate) async fn refresh(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Body,
) -> Result<StatusCode, Refusal> {
    let asked: RefreshBody = body::read(body, SMALL).await?;
    let span = dialect.lifetime(asked.duration.unwrap_or(REFRESH).min(LONGEST_REFRESH))?;
    let view = dialect.living(&caller, &id).await?;
    dialect.lengthen(&caller, &view, span).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn pause(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Body,
) -> Result<StatusCode, Refusal> {
    let asked: PauseBody = body::read(body, SMALL).await?;
    if asked.memory == Some(false) {
        return Err(Refusal::invalid("this server pauses with memory: memory cannot be false"));
    }
    let view = dialect.living(&caller, &id).await?;
    if is_paused(&view) {
        let message = format!("sandbox {} is already paused", view.id.bare());
        return Err(Refusal::new(StatusCode::CONFLICT, message));
    }
    dialect.control.pause_sandbox(&caller, view.id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Wakes one that sleeps and refuses one that does not, as older clients expect.
pub(crate) async fn resume(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Response, Refusal> {
    let asked: TimeoutBody = body::read(body, SMALL).await?;
    let span = dialect.lifetime(asked.timeout.unwrap_or(RESUME))?;
    let view = dialect.living(&caller, &id).await?;
    if !is_paused(&view) {
        let message = format!("sandbox {} is already running", view.id.bare());
        return Err(Refusal::new(StatusCode::CONFLICT, message));
    }
    dialect.connected(&caller, &id, span).await
}

/// Wakes one that sleeps; the life of one that does not is never shortened.
pub(crate) async fn connect(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Response, Refusal> {
    let asked: TimeoutBody = body::read(body, SMALL).await?;
    let span = dialect.lifetime(asked.timeout.unwrap_or(CONNECT))?;
    dialect.connected(&caller, &id, span).await
}

impl Dialect {
    async fn connected(&self, caller: &Caller, id: &str, span: Duration) -> Result<Response, Refusal> {
        for _ in 0..LOOKS {
            let view = self.living(caller, id).await?;
            let status = match view.phase {
                Phase::Ready | Phase::Running => {
                    self.lengthen(caller, &view, span).await?;
                    StatusCode::OK
                }
                Phase::Paused => {
                    self.control.resume_sandbox(caller, view.id).await?;
                    self.control.extend_sandbox(caller, view.id, span).await?;
                    StatusCode::CREATED
                }
                _ => {
                    tokio::time::sleep(LOOK).await;
                    continue;
                }
            };
            return Ok((status, Json(self.access_to(&view))).into_response());
        }
        let message = "The sandbox is still transitioning. Try again in a moment.";
        Err(Refusal::new(StatusCode::CONFLICT, message))
    }

    /// Its life lasts at least so long from now on.
    async fn lengthen(&self, caller: &Caller, view: &SandboxView, span: Duration) -> Result<(), Refusal> {
        let wanted = Timestamp::now().after(span);
        if view.expires_at.is_none_or(|end| end < wanted) {
            self.control.extend_sandbox(caller, view.id, span).await?;
        }
        Ok(())
    }
}
