//! Sandboxes found, kept alive, paused, resumed and ended.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use sandstorm_control::server::{Caller, SandboxView};
use sandstorm_types::{Phase, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::Meant;
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
    memory: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RefreshBody {
    duration: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PauseBody {
    memory: Option<bool>,
}

pub(crate) async fn get(meant: Meant) -> Result<Json<Value>, Refusal> {
    let view = meant.living().await?;
    Ok(Json(meant.dialect.detail(&meant.caller, &view, &meant.here)?))
}

pub(crate) async fn kill(meant: Meant) -> Result<StatusCode, Refusal> {
    let view = meant.living().await?;
    meant.dialect.control.delete_sandbox(&meant.caller, view.id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Its life ends so many seconds from now, sooner or later than it would have. None left is its end at once.
pub(crate) async fn timeout(meant: Meant, body: Body) -> Result<StatusCode, Refusal> {
    let mut room = meant.body_room();
    let asked: TimeoutBody = body::read(body, SMALL, &mut room).await?;
    let seconds = asked.timeout.ok_or_else(|| Refusal::invalid("timeout is missing"))?;
    if seconds <= 0 {
        let view = meant.living().await?;
        meant.dialect.control.expire_sandbox(&meant.caller, view.id).await?;
        return Ok(StatusCode::NO_CONTENT);
    }
    let (view, span) = meant.living_for(seconds).await?;
    meant.dialect.control.extend_sandbox(&meant.caller, view.id, span).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Keeps it alive, as older clients do it; nothing is ever taken away.
pub(crate) async fn refresh(meant: Meant, body: Body) -> Result<StatusCode, Refusal> {
    let mut room = meant.body_room();
    let asked: RefreshBody = body::read(body, SMALL, &mut room).await?;
    let (view, span) = meant.living_for(asked.duration.unwrap_or(REFRESH).min(LONGEST_REFRESH)).await?;
    meant.dialect.lengthen(&meant.caller, &view, span).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn pause(meant: Meant, body: Body) -> Result<StatusCode, Refusal> {
    let mut room = meant.body_room();
    let asked: PauseBody = body::read(body, SMALL, &mut room).await?;
    let view = meant.living().await?;
    if is_paused(&view) {
        return Err(is_already(&view, "paused"));
    }
    let control = &meant.dialect.control;
    match asked.memory {
        Some(false) => control.pause_sandbox_files(&meant.caller, view.id).await?,
        _ => control.pause_sandbox(&meant.caller, view.id).await?,
    };
    Ok(StatusCode::NO_CONTENT)
}

/// Wakes one that sleeps and refuses one that does not, as older clients expect.
pub(crate) async fn resume(meant: Meant, body: Body) -> Result<Response, Refusal> {
    let mut room = meant.body_room();
    let asked: TimeoutBody = body::read(body, SMALL, &mut room).await?;
    let (view, span) = meant.living_for(asked.timeout.unwrap_or(RESUME)).await?;
    if !is_paused(&view) {
        return Err(is_already(&view, "running"));
    }
    meant.connected(span, asked.memory).await
}

/// Wakes one that sleeps; the life of one that does not is never shortened.
pub(crate) async fn connect(meant: Meant, body: Body) -> Result<Response, Refusal> {
    let mut room = meant.body_room();
    let asked: TimeoutBody = body::read(body, SMALL, &mut room).await?;
    let span = meant.dialect.lifetime(asked.timeout.unwrap_or(CONNECT))?;
    meant.connected(span, asked.memory).await
}

fn is_already(view: &SandboxView, state: &str) -> Refusal {
    Refusal::new(StatusCode::CONFLICT, format!("sandbox {} is already {state}", view.id.bare()))
}

impl Meant {
    /// It, if it has not ended, and a span of life in seconds that it may have.
    async fn living_for(&self, seconds: i64) -> Result<(SandboxView, Duration), Refusal> {
        let span = self.dialect.lifetime(seconds)?;
        Ok((self.living().await?, span))
    }

    async fn connected(&self, span: Duration, memory: Option<bool>) -> Result<Response, Refusal> {
        let Self { dialect, caller, here, .. } = self;
        for _ in 0..LOOKS {
            let view = self.living().await?;
            let status = match view.phase {
                Phase::Ready | Phase::Running => {
                    dialect.lengthen(caller, &view, span).await?;
                    StatusCode::OK
                }
                Phase::Paused if memory == Some(false) => {
                    let message = "a sandbox is not rebooted when it is resumed (memory: false): pause it with its files only";
                    return Err(Refusal::invalid(message));
                }
                Phase::Paused => {
                    dialect.control.resume_sandbox(caller, view.id).await?;
                    dialect.control.extend_sandbox(caller, view.id, span).await?;
                    StatusCode::CREATED
                }
                _ => {
                    tokio::time::sleep(LOOK).await;
                    continue;
                }
            };
            return Ok((status, Json(dialect.access_to(caller, &view, here)?)).into_response());
        }
        let message = "The sandbox is still transitioning. Try again in a moment.";
        Err(Refusal::new(StatusCode::CONFLICT, message))
    }
}

impl Dialect {
    /// Its life lasts at least so long from now on.
    async fn lengthen(&self, caller: &Caller, view: &SandboxView, span: Duration) -> Result<(), Refusal> {
        let wanted = Timestamp::now().after(span);
        if view.expires_at.is_none_or(|end| end < wanted) {
            self.control.extend_sandbox(caller, view.id, span).await?;
        }
        Ok(())
    }
}
