//! Connect-RPC in JSON: calls with one answer, and streams in envelopes.

pub(crate) mod envelope;
pub(crate) mod error;
pub(crate) mod stream;

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use sandstorm_control::server::BodyRoom;
use sandstorm_e2b_wire::{STREAM, TIMEOUT, UNARY};
use sandstorm_types::User;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use error::{Code, RpcError};

use crate::body;
use crate::refusal::Refusal;

pub(crate) type RpcResult<T> = Result<T, RpcError>;

/// Largest message of a call, which carries input for a program at most.
const LARGEST: usize = 8 << 20;

/// The message of a call with one answer.
pub(crate) async fn message<T: DeserializeOwned>(
    headers: &HeaderMap,
    content: Body,
    room: &mut BodyRoom,
) -> RpcResult<T> {
    expect(headers, UNARY)?;
    let bytes = body::whole(content, LARGEST, room).await.map_err(no_body)?;
    read(&bytes)
}

/// The one message of a call whose answer is a stream.
pub(crate) async fn first_message<T: DeserializeOwned>(
    headers: &HeaderMap,
    content: Body,
    room: &mut BodyRoom,
) -> RpcResult<T> {
    expect(headers, STREAM)?;
    let bytes = body::whole(content, LARGEST, room).await.map_err(no_body)?;
    let mut decoder = envelope::Decoder::new(LARGEST);
    decoder.push(&bytes);
    match decoder.next_frame()? {
        Some(envelope::Frame::Message(message)) => read(&message),
        _ => Err(RpcError::invalid("the stream ends before its first message")),
    }
}

pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> RpcResult<T> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    serde_json::from_slice(bytes)
        .map_err(|error| RpcError::invalid(format!("the message cannot be read: {error}")))
}

fn no_body(refused: Refusal) -> RpcError {
    let code = match refused.status() {
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        _ => Code::ResourceExhausted,
    };
    RpcError::new(code, refused.message().to_owned())
}

/// Refuses other encodings than the one of this kind of call.
pub(crate) fn expect(headers: &HeaderMap, wanted: &str) -> RpcResult<()> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let plain = given.split(';').next().unwrap_or_default().trim();
    match plain.eq_ignore_ascii_case(wanted) {
        true => Ok(()),
        false => Err(RpcError::new(Code::Unimplemented, format!("this call is spoken as {wanted}"))),
    }
}

/// The answer of a call with one.
pub(crate) fn answer<T: Serialize>(result: RpcResult<T>) -> Response {
    match result {
        Ok(message) => Json(message).into_response(),
        Err(error) => error.into_response(),
    }
}

/// The answer of a call whose answer is a stream and that failed before it began.
pub(crate) fn failed_stream(error: &RpcError) -> Response {
    stream::response(Body::from(envelope::end(Some(error))))
}

/// How long a call may take.
pub(crate) fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(TIMEOUT)?.to_str().ok()?;
    text.parse().ok().filter(|millis| *millis > 0).map(Duration::from_millis)
}

/// Whom to act as: `Authorization: Basic` with a name and no password.
pub(crate) fn user(headers: &HeaderMap) -> RpcResult<Option<User>> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let name = || {
        let encoded = value.to_str().ok()?.strip_prefix("Basic ")?;
        let bytes = data_encoding::BASE64.decode(encoded.as_bytes()).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        Some(text.split(':').next().unwrap_or_default().to_owned())
    };
    let name = name().ok_or_else(|| RpcError::new(Code::Unauthenticated, "the user cannot be read"))?;
    user_named(&name)
}

pub(crate) fn user_named(name: &str) -> RpcResult<Option<User>> {
    match name {
        "" => Ok(None),
        "user" => Ok(Some(User::User)),
        "root" => Ok(Some(User::Root)),
        other => {
            let shown: String = other.chars().take(64).collect();
            Err(RpcError::new(Code::Unauthenticated, format!("invalid username: '{shown}'")))
        }
    }
}

/// Runs a call within its time.
pub(crate) async fn in_time<T>(
    headers: &HeaderMap,
    work: impl Future<Output = RpcResult<T>>,
) -> RpcResult<T> {
    match timeout(headers) {
        Some(span) => tokio::time::timeout(span, work)
            .await
            .unwrap_or_else(|_| Err(RpcError::new(Code::DeadlineExceeded, "the time of the call is over"))),
        None => work.await,
    }
}

/// The answer for a method that there is not.
pub(crate) fn no_method(name: &str) -> Response {
    let shown: String = name.chars().take(64).collect();
    let mut response =
        RpcError::new(Code::Unimplemented, format!("there is no method {shown}")).into_response();
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn with(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn users_are_two() {
        assert_eq!(user(&HeaderMap::new()).unwrap(), None);
        assert_eq!(user(&with("authorization", "Basic dXNlcjo=")).unwrap(), Some(User::User));
        assert_eq!(user(&with("authorization", "Basic cm9vdDo=")).unwrap(), Some(User::Root));
        for bad in ["Basic bm9ib2R5Og==", "Basic !", "Bearer x", "Basic /w=="] {
            assert_eq!(user(&with("authorization", bad)).unwrap_err().code, Code::Unauthenticated, "{bad}");
        }
    }

    #[test]
    fn times_and_encodings_are_read_or_refused() {
        assert_eq!(timeout(&with("connect-timeout-ms", "1500")), Some(Duration::from_millis(1500)));
        for none in ["0", "-1", "x", "99999999999999999999999"] {
            assert_eq!(timeout(&with("connect-timeout-ms", none)), None, "{none}");
        }
        assert!(expect(&with("content-type", "application/json; charset=utf-8"), UNARY).is_ok());
        assert!(expect(&with("content-type", "application/proto"), UNARY).is_err());
        assert!(expect(&HeaderMap::new(), STREAM).is_err());
    }

    #[tokio::test]
    async fn broken_messages_are_refused() {
        let headers = with("content-type", STREAM);
        for bad in [&b""[..], b"\0\0\0", b"\0\xff\xff\xff\xff{", b"\x01\0\0\0\x02{}", b"\0\0\0\0\x01{"] {
            let mut room = sandstorm_control::server::testing::body_room();
            let content = Body::from(bad.to_vec());
            let read = first_message::<serde_json::Value>(&headers, content, &mut room).await;
            assert!(read.is_err(), "{bad:?}");
        }
    }
}
