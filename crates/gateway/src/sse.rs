//! Answers that are streams of events.
//!
//! Every stream counts against its tenant, ends within a second of its key's end, and is dropped with its connection:
//! whoever produces the events notices that and ends what nobody listens to.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{Stream, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use sandstorm_control::server::Caller;
use sandstorm_types::{Event, EventBody};
use serde::Serialize;

use crate::app::App;
use crate::problem::{ApiError, ApiResult};

const KEEP_ALIVE: Duration = Duration::from_secs(15);
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How a stream ends when the server stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ends {
    /// With the work that it tells of.
    Itself,
    /// Never by itself, so at once.
    WithServer,
}

/// Whether the client asks for events.
pub(crate) fn wanted(headers: &HeaderMap) -> bool {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepts
        .flat_map(|value| value.split(','))
        .any(|one| one.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream"))
}

/// The number after which the client wants to go on.
pub(crate) fn last_event_id(headers: &HeaderMap) -> ApiResult<Option<u64>> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    match text.parse::<i64>() {
        Ok(number) if text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Some(number.unsigned_abs())),
        _ => Err(ApiError::field("Last-Event-ID", "must be the id of an event of this stream")),
    }
}

/// The answer. `seat` is the stream's place among its tenant's, taken with [`Control::open_stream`] before the work
/// began, so that nothing starts that nobody could hear.
pub(crate) fn answer(
    app: &App,
    caller: &Caller,
    seat: impl Send + 'static,
    ends: Ends,
    events: impl Stream<Item = SseEvent> + Send + 'static,
) -> Response {
    let revoked = app.control.clone().revoked(caller.clone());
    let closing = app.settings.closing.clone();
    let over = async move {
        let closed = async {
            match ends {
                Ends::Itself => std::future::pending().await,
                Ends::WithServer => closing.cancelled().await,
            }
        };
        tokio::select! {
            () = revoked => {}
            () = closed => {}
        }
    };
    let events = events.take_until(Box::pin(over)).map(move |event| {
        // The seat is kept as long as the stream lives.
        let _ = &seat;
        Ok::<_, Infallible>(event)
    });
    let mut response = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response();
    // Proxies that collect answers would hold back what should be seen at once.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// One event of an exec or run.
pub(crate) fn exec_event(event: &Event) -> SseEvent {
    let name = match &event.body {
        EventBody::Start { .. } => "start",
        EventBody::Stdout(_) => "stdout",
        EventBody::Stderr(_) => "stderr",
        EventBody::Result(_) => "result",
        EventBody::Error(_) => "error",
        EventBody::End(_) => "end",
    };
    json_event(name, Some(event.seq), event)
}

pub(crate) fn json_event(name: &str, id: Option<u64>, data: &impl Serialize) -> SseEvent {
    let text = serde_json::to_string(data).expect("events are texts, numbers and JSON");
    let event = SseEvent::default().event(name).data(text);
    match id {
        Some(id) => event.id(id.to_string()),
        None => event,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn streams_are_asked_for_by_name() {
        for (accept, expected) in [
            ("text/event-stream", true),
            ("application/json, Text/Event-Stream;q=0.5", true),
            ("*/*", false),
            ("text/*", false),
        ] {
            assert_eq!(wanted(&header(header::ACCEPT, accept)), expected, "{accept}");
        }
        assert!(!wanted(&HeaderMap::new()));
    }

    #[test]
    fn only_numbers_resume() {
        assert_eq!(last_event_id(&header(LAST_EVENT_ID, "17")).unwrap(), Some(17));
        assert_eq!(last_event_id(&HeaderMap::new()).unwrap(), None);
        for bad in ["", "-1", "+1", "1.0", "x", "99999999999999999999"] {
            assert!(last_event_id(&header(LAST_EVENT_ID, bad)).is_err(), "{bad}");
        }
    }
}
