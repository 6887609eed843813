//! Bodies in JSON, of bounded size.

use axum::body::{Body, to_bytes};
use bytes::Bytes;
use http::StatusCode;
use serde::de::DeserializeOwned;

use crate::refusal::Refusal;

/// Largest body of a request that describes something.
pub(crate) const SMALL: usize = 1 << 20;
/// Largest body of a request that carries code or input.
pub(crate) const LARGE: usize = 16 << 20;

/// All bytes of a body that may be so long.
pub(crate) async fn whole(body: Body, most: usize) -> Result<Bytes, Refusal> {
    to_bytes(body, most).await.map_err(|_| {
        let message = format!("the body is broken or larger than {most} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    })
}

/// A JSON object; an empty body counts as an empty one.
pub(crate) fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let bytes = if bytes.iter().all(u8::is_ascii_whitespace) { b"{}" } else { bytes };
    serde_json::from_slice(bytes)
        .map_err(|error| Refusal::invalid(format!("the body cannot be read: {error}")))
}

pub(crate) async fn read<T: DeserializeOwned>(body: Body, most: usize) -> Result<T, Refusal> {
    json(&whole(body, most).await?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use super::*;

    #[tokio::test]
    async fn bodies_are_bounded_and_refused_by_name() {
        assert!(read::<Map<String, Value>>(Body::empty(), 10).await.unwrap().is_empty());
        let long = read::<Map<String, Value>>(Body::from("x".repeat(11)), 10).await.unwrap_err();
        assert_eq!(long.status(), StatusCode::PAYLOAD_TOO_LARGE);
        for bad in ["[", "[]", "\u{0}", "{\"a\":}", "nul"] {
            let refused = read::<Map<String, Value>>(Body::from(bad), 10).await.unwrap_err();
            assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{bad}");
        }
    }
}
