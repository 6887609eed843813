//! JSON bodies, strictly: one media type, bounded size, depth and number of values, no key twice, no unknown field.

use std::collections::HashSet;
use std::fmt;

use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use sandstorm_control::server::{BodyRoom, Caller};
use serde::Serialize;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::app::App;
use crate::body;
use crate::problem::{ApiError, ApiResult};

const MAX_DEPTH: usize = 64;
const MAX_VALUES: usize = 200_000;

/// What a request's body is read as, and how large it may be.
pub(crate) trait Wire: DeserializeOwned {
    /// Whether it carries code or files, and so may be as large as the operator allows; 64 KiB otherwise.
    const LARGE: bool = false;

    /// Reads a body, for requests that come in more than one form.
    fn read(bytes: &[u8]) -> ApiResult<Self> {
        read(bytes)
    }
}

const SMALL: usize = 64 << 10;

/// A body that was read, with its bytes for the idempotency key.
#[derive(Debug)]
pub(crate) struct Json<T> {
    pub(crate) value: T,
    pub(crate) bytes: Bytes,
    /// What it takes of the tenant's room, until it was dealt with.
    pub(crate) room: BodyRoom,
}

impl<T: Wire> FromRequest<App> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> ApiResult<Self> {
        let (parts, content) = request.into_parts();
        body::refuse_encoding(&parts.headers)?;
        if body::media_type(&parts.headers)?.as_deref() != Some("application/json") {
            return Err(ApiError::media_type("application/json"));
        }
        let limit = if T::LARGE { app.settings.json_limit } else { app.settings.json_limit.min(SMALL) };
        let caller = parts.extensions.get::<Caller>().ok_or_else(ApiError::unauthenticated)?;
        let mut room = app.control.body_room(caller);
        let bytes = body::collect(content, limit, app.settings.body_time, |more| room.grow(more)).await?;
        Ok(Self { value: T::read(&bytes)?, bytes, room })
    }
}

/// What most answers fit into.
const ANSWER: usize = 2048;

/// The body of an answer.
pub(crate) fn written<T: Serialize>(value: &T) -> Vec<u8> {
    let mut body = Vec::with_capacity(ANSWER);
    serde_json::to_writer(&mut body, value).expect("answers are texts, numbers and JSON");
    body
}

/// Reads a document that passed the checks which types cannot make.
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> ApiResult<T> {
    let mut check = serde_json::Deserializer::from_slice(bytes);
    let mut values = 0;
    Shape { depth: 0, values: &mut values }
        .deserialize(&mut check)
        .and_then(|()| check.end())
        .map_err(|error| ApiError::invalid(format!("the body is not acceptable JSON: {error}")))?;
    // A list would be taken for an object's fields in their order, which no client means.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(ApiError::field("body", "must be an object"));
    }
    let mut document = serde_json::Deserializer::from_slice(bytes);
    serde_path_to_error::deserialize(&mut document).map_err(|error| {
        let field = error.path().to_string();
        // Nothing was entered yet when the document as a whole is wrong.
        let field = if field == "." { "body".to_owned() } else { field };
        ApiError::field(field, error.inner().to_string())
    })
}

/// Walks a document and keeps nothing of it but the keys of the objects that are open.
struct Shape<'a> {
    depth: usize,
    values: &'a mut usize,
}

impl Shape<'_> {
    fn inner<E: de::Error>(&mut self) -> Result<Shape<'_>, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom(format_args!("it is deeper than {MAX_DEPTH} levels")));
        }
        *self.values += 1;
        if *self.values > MAX_VALUES {
            return Err(E::custom(format_args!("it has more than {MAX_VALUES} values")));
        }
        Ok(Shape { depth: self.depth + 1, values: self.values })
    }
}

impl<'de> DeserializeSeed<'de> for Shape<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Shape<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(self.inner()?)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            map.next_value_seed(self.inner()?)?;
            if let Some(twice) = keys.replace(key) {
                return Err(de::Error::custom(format_args!("key {twice:?} is given twice")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::Value;

    use super::*;

    fn ok(text: &str) -> bool {
        read::<Value>(format!("{{\"in\": {text}}}").as_bytes()).is_ok()
    }

    #[test]
    fn depth_is_bounded_without_recursion_running_wild() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(ok(&nested(63)));
        assert!(!ok(&nested(65)));
        assert!(!ok(&"[".repeat(100_000)));
        assert!(!ok(&"{\"a\":".repeat(100_000)));
    }

    #[test]
    fn keys_are_given_once_at_every_level() {
        assert!(ok(r#"{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}"#));
        assert!(!ok(r#"{"a": 1, "a": 2}"#));
        assert!(!ok(r#"{"env": {"A": "1", "A": "2"}}"#));
        assert!(!ok(r#"[{"a": 1, "\u0061": 2}]"#));
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for bad in ["", "{", "nul", "NaN", "[1,]", "{'a':1}", "1 2", "\"\u{1}\"", "1e999"] {
            assert!(!ok(bad), "{bad:?}");
        }
        for bad in ["", "[]", "1", "null", "\u{feff}{}", "{} {}", "{}x"] {
            assert!(read::<Value>(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(read::<Value>(b"\"\xff\"").is_err());
        assert!(!ok(&format!("[{}1]", "1,".repeat(MAX_VALUES))));
    }

    #[test]
    fn refusals_name_the_field() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Body {
            #[serde(default)]
            _env: BTreeMap<String, u8>,
        }
        let error = read::<Body>(br#"{"_env": {"A": 300}}"#).unwrap_err();
        let body = String::from_utf8(error.body("r")).unwrap();
        assert!(body.contains(r#""field":"_env.A""#), "{body}");
        assert!(read::<Body>(br#"{"other": 1}"#).is_err());
        assert!(read::<Body>(br#"[]"#).is_err());
    }
}
