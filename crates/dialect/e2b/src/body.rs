//! Bodies in JSON, of bounded size, and counted against what their tenant's bodies may take.

use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt;
use http::StatusCode;
use http_body::Body as HttpBody;
use sandstorm_control::server::{BodyRoom, gather};
use serde::de::DeserializeOwned;

use crate::refusal::Refusal;

/// Largest body of a request that describes something.
pub(crate) const SMALL: usize = 1 << 20;
/// Largest body of a request that carries code or input.
pub(crate) const LARGE: usize = 16 << 20;

/// All bytes of a body that may be so long. Keep `room` until the request was dealt with.
pub(crate) async fn whole(body: Body, most: usize, room: &mut BodyRoom) -> Result<Bytes, Refusal> {
    let refused = || {
        let message = format!("the body is broken or larger than {most} bytes");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let said = body.size_hint();
    if said.lower() > most as u64 {
        return Err(refused());
    }
    let longest = said.upper().map_or(most, |said| usize::try_from(said).unwrap_or(most).min(most));
    let (mut bytes, mut pieces) = (Vec::new(), body.into_data_stream());
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| refused())?;
        if bytes.len() + piece.len() > most {
            return Err(refused());
        }
        gather(&mut bytes, &piece, longest, |more| room.grow(more))?;
    }
    Ok(bytes.into())
}

/// A JSON object; an empty body counts as an empty one.
pub(crate) fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let bytes = if bytes.iter().all(u8::is_ascii_whitespace) { b"{}" } else { bytes };
    serde_json::from_slice(bytes)
        .map_err(|error| Refusal::invalid(format!("the body cannot be read: {error}")))
}

pub(crate) async fn read<T: DeserializeOwned>(
    body: Body,
    most: usize,
    room: &mut BodyRoom,
) -> Result<T, Refusal> {
    json(&whole(body, most, room).await?)
}

#[cfg(test)]
mod tests {
    use sandstorm_control::server::testing::body_room;
    use serde_json::{Map, Value};

    use super::*;

    #[tokio::test]
    async fn bodies_are_bounded_and_refused_by_name() {
        let mut room = body_room();
        assert!(read::<Map<String, Value>>(Body::empty(), 10, &mut room).await.unwrap().is_empty());
        let pieces = ["x"; 11].map(|piece| Ok::<_, std::io::Error>(Bytes::from_static(piece.as_bytes())));
        let pieces = Body::from_stream(futures_util::stream::iter(pieces));
        for long in [Body::from("x".repeat(11)), pieces] {
            let long = read::<Map<String, Value>>(long, 10, &mut room).await.unwrap_err();
            assert_eq!(long.status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
        for bad in ["[", "[]", "\u{0}", "{\"a\":}", "nul"] {
            let refused = read::<Map<String, Value>>(Body::from(bad), 10, &mut room).await.unwrap_err();
            assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{bad}");
        }
    }
}
