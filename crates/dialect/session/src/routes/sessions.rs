//! Sessions themselves: made, looked at, ended.

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::State;
use sandstorm_control::server::{Caller, SandboxView};
use sandstorm_types::{ByteSize, GuestPath, Phase};
use serde::Serialize;

use crate::answer::Answer;
use crate::refusal::Refusal;
use crate::request::{BodyFields, Target};
use crate::router::Dialect;
use crate::routes::files::{self, Listed};
use crate::session::USUAL_SIZE;
use crate::session_id::SessionId;

#[derive(Debug, Serialize)]
pub(crate) struct Done {
    status: &'static str,
}

const SUCCESS: Answer<Done> = Answer(Done { status: "success" });

pub(crate) async fn healthy() -> Answer<Done> {
    SUCCESS
}

#[derive(Debug, Serialize)]
pub(crate) struct Created {
    session_id: String,
}

pub(crate) async fn create(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    target: Target,
    BodyFields(mut body, _room): BodyFields,
) -> Result<Answer<Created>, Refusal> {
    let size: ByteSize = match body.optional_text("size").filter(|text| !text.is_empty()) {
        None => USUAL_SIZE,
        Some(text) => text.parse().unwrap_or_else(|_| {
            body.refuse("size", "Input should be a whole number with K, M or G, such as 100M", "value_error")
        }),
    };
    let persistent = body.flag("persistent");
    body.done()?;
    dialect.sessions.create(&caller, &target.session, size, persistent).await?;
    Ok(Answer(Created { session_id: target.session.to_string() }))
}

pub(crate) async fn delete(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    target: Target,
) -> Result<Answer<Done>, Refusal> {
    dialect.sessions.delete(&caller, &target.session).await?;
    Ok(SUCCESS)
}

#[derive(Debug, Serialize)]
pub(crate) struct Status {
    id: String,
    exists: bool,
    created_at: Option<f64>,
    mount_point: Option<&'static str>,
    is_mounted: bool,
    files: Vec<Listed>,
}

/// Answers also for a session that does not exist, and makes none.
pub(crate) async fn status(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    target: Target,
) -> Result<Answer<Status>, Refusal> {
    let id = target.session.to_string();
    let Some(view) = dialect.sessions.find(&caller, &target.session).await? else {
        let (created_at, mount_point, is_mounted, files) = (None, None, false, Vec::new());
        return Ok(Answer(Status { id, exists: false, created_at, mount_point, is_mounted, files }));
    };
    // Files of a session that sleeps or is just being made cannot be seen, and looking does not wake it.
    let ready = matches!(view.phase, Phase::Ready | Phase::Running);
    let files = match ready {
        true => {
            let (entries, _) = files::entries(&dialect, &caller, view.id, GuestPath::workspace(), 1).await?;
            entries.iter().map(Listed::with_time).collect()
        }
        false => Vec::new(),
    };
    Ok(Answer(Status {
        id,
        exists: true,
        created_at: Some(created_at(&view)),
        mount_point: Some(GuestPath::WORKSPACE),
        is_mounted: ready,
        files,
    }))
}

#[derive(Debug, Serialize)]
pub(crate) struct Workspaces {
    workspaces: BTreeMap<String, Workspace>,
}

#[derive(Debug, Serialize)]
struct Workspace {
    mount_point: &'static str,
    created_at: f64,
}

pub(crate) async fn list(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
) -> Result<Answer<Workspaces>, Refusal> {
    let workspace =
        |view: &SandboxView| Workspace { mount_point: GuestPath::WORKSPACE, created_at: created_at(view) };
    let all = dialect.sessions.all(&caller).await?;
    let workspaces = all.into_iter().map(|(name, view)| (name, workspace(&view))).collect();
    Ok(Answer(Workspaces { workspaces }))
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct CleanedUp {
    total: usize,
    success: usize,
    failed: Vec<String>,
    skipped: Vec<String>,
}

/// Ends every session of the caller's tenant; those in which something runs only by force.
pub(crate) async fn clean_up(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    BodyFields(mut body, _room): BodyFields,
) -> Result<Answer<CleanedUp>, Refusal> {
    let force = body.flag("force");
    body.done()?;
    let all = dialect.sessions.all(&caller).await?;
    let mut done = CleanedUp { total: all.len(), ..CleanedUp::default() };
    for (name, view) in all {
        if view.execs_running > 0 && !force {
            done.skipped.push(format!("{name}: the session is running"));
            continue;
        }
        match SessionId::new(name.clone()) {
            Ok(id) => match dialect.sessions.delete(&caller, &id).await {
                Ok(()) => done.success += 1,
                Err(error) => done.failed.push(format!("{name}: {}", error.message())),
            },
            Err(_) => done.failed.push(format!("{name}: not a name that a session can have")),
        }
    }
    Ok(Answer(done))
}

/// Seconds since 1970.
fn created_at(view: &SandboxView) -> f64 {
    view.created_at.millis() as f64 / 1000.0
}
