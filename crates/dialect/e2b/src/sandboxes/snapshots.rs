//! Saved sandboxes. To E2B they are templates: one is started from by its id or name, and removed as a template is.

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use sandstorm_control::server::{Caller, NewSnapshot, SnapshotQuery, SnapshotView};
use sandstorm_e2b_wire::NEXT_TOKEN;
use sandstorm_types::{ErrorKind, SandboxId, SnapshotId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Meant;
use super::create::untagged;
use super::templates::missing;
use crate::body::{self, SMALL};
use crate::query::Query;
use crate::refusal::Refusal;
use crate::state::Dialect;

#[derive(Debug, Deserialize)]
struct SnapshotBody {
    name: Option<String>,
    memory: Option<bool>,
}

/// Saves the files of a sandbox, which goes on.
pub(crate) async fn create(meant: Meant, body: Body) -> Result<impl IntoResponse, Refusal> {
    let mut room = meant.body_room();
    let SnapshotBody { name, memory } = body::read(body, SMALL, &mut room).await?;
    if memory == Some(true) {
        return Err(Refusal::invalid("this server saves files only: memory cannot be true"));
    }
    let name = name.filter(|name| !name.is_empty()).map(|name| meant.dialect.new_name(&name)).transpose()?;
    let view = meant.living().await?;
    let saved = meant.dialect.control.create_snapshot(&meant.caller, view.id, NewSnapshot { name }).await;
    let saved = saved.map_err(|error| Refusal::from(error).hard())?;
    Ok((StatusCode::CREATED, Json(shown(&saved))))
}

pub(crate) async fn list(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let query = Query::of(&uri);
    let limit = match query.number("limit")? {
        None => 100,
        Some(limit @ 1..=100) => u32::try_from(limit).unwrap_or(100),
        Some(_) => return Err(Refusal::invalid("limit must be between 1 and 100")),
    };
    let given = |name: &str| query.get(name).filter(|value| !value.is_empty());
    let none = || Ok(Json(Vec::<Value>::new()).into_response());
    let sandbox = match given("sandboxID").map(|id| id.split('-').next().unwrap_or_default()) {
        None => None,
        Some(id) => match SandboxId::from_bare(id) {
            Ok(id) => Some(id),
            // What is no id of ours, nobody saved.
            Err(_) => return none(),
        },
    };
    let name = match given("name") {
        None => None,
        Some(name) => match untagged(name) {
            Some(name) => Some(name.to_owned()),
            None => return none(),
        },
    };
    let cursor = given("nextToken").map(str::to_owned);
    let asked = SnapshotQuery { sandbox, name, limit: Some(limit), cursor, ..SnapshotQuery::default() };
    let page = dialect.control.snapshots(&caller, asked).await?;
    let mut headers = HeaderMap::new();
    if let Some(next) = page.next_cursor.and_then(|next| HeaderValue::from_str(&next).ok()) {
        headers.insert(NEXT_TOKEN, next);
    }
    Ok((headers, Json(page.items.iter().map(shown).collect::<Vec<_>>())).into_response())
}

/// What clients are shown of one. Its id does not change when another one gets its name.
fn shown(view: &SnapshotView) -> Value {
    json!({"snapshotID": view.id.to_string(), "names": view.name.iter().collect::<Vec<_>>()})
}

impl Dialect {
    /// The one that a template's id or name means.
    pub(crate) async fn saved(&self, caller: &Caller, asked: &str) -> Result<SnapshotView, Refusal> {
        let name = untagged(asked).ok_or_else(|| missing(asked))?;
        let found = match name.parse::<SnapshotId>() {
            Ok(id) => self.control.snapshot(caller, id).await,
            Err(_) => {
                let query =
                    SnapshotQuery { name: Some(name.to_owned()), limit: Some(1), ..SnapshotQuery::default() };
                let page = self.control.snapshots(caller, query).await?;
                return page.items.into_iter().next().ok_or_else(|| missing(asked));
            }
        };
        match found {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(missing(asked)),
            found => Ok(found?),
        }
    }

    /// A name for a new one. Those of templates would never be found.
    fn new_name(&self, asked: &str) -> Result<String, Refusal> {
        let name = untagged(asked).ok_or_else(|| Refusal::invalid("snapshots here have no tags"))?;
        if self.settings.templates.contains_key(name) || name.parse::<SnapshotId>().is_ok() {
            return Err(Refusal::invalid(format!("'{name}' is the name of a template")));
        }
        Ok(name.to_owned())
    }
}
