//! Lists of sandboxes.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use data_encoding::BASE64URL_NOPAD;
use http::{HeaderMap, HeaderValue, Uri};
use sandstorm_control::server::{Caller, SandboxQuery, SandboxView};
use sandstorm_e2b_wire::NEXT_TOKEN;
use sandstorm_types::{Phase, SandboxId, Timestamp};
use serde_json::Value;

use super::labels;
use super::view::{is_paused, listed, template_of};
use crate::query::Query;
use crate::refusal::Refusal;
use crate::state::Dialect;

/// Most rows of a page.
const PAGE: usize = 100;
/// Rows that are read at once, and most of all; a tenant's quota of sandboxes is far below.
const READ: u32 = 1000;
const MOST: usize = 20_000;

/// In which order, by when they were made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Newest,
    Oldest,
}

/// The last row of a page.
type Place = (Timestamp, SandboxId);

/// Those that run, all at once, as older clients ask for them.
pub(crate) async fn running(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Json<Vec<Value>>, Refusal> {
    let query = Query::of(&uri);
    let views = dialect.matching(&caller, &query).await?;
    Ok(Json(views.iter().filter(|view| !is_paused(view)).map(listed).collect()))
}

pub(crate) async fn page(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let query = Query::of(&uri);
    let order = match query.get("order") {
        None | Some("" | "desc") => Order::Newest,
        Some("asc") => Order::Oldest,
        Some(_) => return Err(Refusal::invalid("order must be asc or desc")),
    };
    let limit = match query.number("limit")? {
        None => PAGE,
        Some(limit @ 1..=100) => usize::try_from(limit).unwrap_or(PAGE),
        Some(_) => return Err(Refusal::invalid("limit must be between 1 and 100")),
    };
    let after = query.get("nextToken").filter(|text| !text.is_empty()).map(place).transpose()?;
    let mut views = dialect.matching(&caller, &query).await?;
    let running = views.iter().filter(|view| !is_paused(view)).count();
    views.sort_by_key(|view| (view.created_at, view.id));
    if order == Order::Newest {
        views.reverse();
    }
    if let Some(after) = after {
        views.retain(|view| match order {
            Order::Newest => (view.created_at, view.id) < after,
            Order::Oldest => (view.created_at, view.id) > after,
        });
    }
    let more = views.len() > limit;
    views.truncate(limit);
    let mut headers = HeaderMap::new();
    headers.insert("x-total-running", running.into());
    if let Some(last) = views.last().filter(|_| more) {
        let token = token((last.created_at, last.id));
        headers.insert(NEXT_TOKEN, HeaderValue::from_str(&token).expect("base64 is header text"));
    }
    Ok((headers, Json(views.iter().map(listed).collect::<Vec<_>>())).into_response())
}

impl Dialect {
    /// All of the caller's that the filters let through.
    async fn matching(&self, caller: &Caller, query: &Query) -> Result<Vec<SandboxView>, Refusal> {
        let wanted = query.get("metadata").map(labels::filter).transpose()?.unwrap_or_default();
        // What no label can be, no sandbox has.
        let Ok(labels) = wanted.try_into() else { return Ok(Vec::new()) };
        let phases = phases(query.get("state").unwrap_or_default())?;
        let started_after = query.get("startedAfter").map(moment).transpose()?;
        let template = query.get("template").filter(|name| !name.is_empty());
        let mut asked = SandboxQuery { phases, labels, limit: Some(READ), ..SandboxQuery::default() };
        let mut views = Vec::new();
        loop {
            let page = self.control.sandboxes(caller, asked.clone()).await?;
            views.extend(page.items);
            asked.cursor = page.next_cursor;
            if asked.cursor.is_none() || views.len() >= MOST {
                break;
            }
        }
        views.retain(|view| {
            view.phase != Phase::Terminating
                && started_after.is_none_or(|after| view.created_at >= after)
                && template.is_none_or(|name| template_of(view) == name)
        });
        Ok(views)
    }
}

fn phases(states: &str) -> Result<Vec<Phase>, Refusal> {
    let mut phases = Vec::new();
    for state in states.split(',').filter(|state| !state.is_empty()) {
        phases.extend(match state {
            "running" => &[Phase::Ready, Phase::Running, Phase::Creating, Phase::Resuming][..],
            "paused" => &[Phase::Paused, Phase::Pausing],
            _ => return Err(Refusal::invalid("state must be running or paused")),
        });
    }
    Ok(phases)
}

/// A moment in RFC 3339, with `Z` or `+00:00`, to any part of a second.
fn moment(text: &str) -> Result<Timestamp, Refusal> {
    let wrong = || Refusal::invalid("startedAfter must be a moment in RFC 3339, UTC");
    let (date, rest) = text.split_at_checked(19).ok_or_else(wrong)?;
    let zone = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    if !matches!(zone, "Z" | "z" | "+00:00" | " 00:00") {
        return Err(wrong());
    }
    let fraction: String = rest.chars().skip(1).take_while(char::is_ascii_digit).take(3).collect();
    format!("{date}.{fraction:0<3}Z").parse().map_err(|_| wrong())
}

fn token((at, id): Place) -> String {
    BASE64URL_NOPAD.encode(format!("{}__{}", at.millis(), id.bare()).as_bytes())
}

fn place(text: &str) -> Result<Place, Refusal> {
    let read = || {
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).ok()?;
        let (at, id) = str::from_utf8(&bytes).ok()?.split_once("__")?;
        Some((Timestamp::from_millis(at.parse().ok()?), SandboxId::from_bare(id).ok()?))
    };
    read().ok_or_else(|| Refusal::invalid("nextToken is not one of this list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_were_written() {
        let last = (Timestamp::from_millis(5), SandboxId::from_bits(9));
        assert_eq!(place(&token(last)).unwrap(), last);
        for bad in ["", "x", "MTIz", "!!", &"A".repeat(1000)] {
            assert!(place(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn moments_have_any_fraction_and_are_utc() {
        for (text, millis) in [
            ("1970-01-01T00:00:01Z", 1000),
            ("1970-01-01T00:00:01.5Z", 1500),
            ("1970-01-01T00:00:01.123456+00:00", 1123),
            ("1970-01-01T00:00:01 00:00", 1000),
        ] {
            assert_eq!(moment(text).unwrap().millis(), millis, "{text}");
        }
        for bad in
            ["", "yesterday", "1970-01-01T00:00:01+02:00", "1970-01-01T00:00:01", "1970-13-01T00:00:01Z"]
        {
            assert!(moment(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn states_are_two() {
        assert!(phases("").unwrap().is_empty());
        assert_eq!(phases("paused").unwrap(), [Phase::Paused, Phase::Pausing]);
        assert_eq!(phases("running,paused").unwrap().len(), 6);
        assert!(phases("killed").is_err());
    }
}
