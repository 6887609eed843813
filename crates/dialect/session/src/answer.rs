//! The envelope of every answer in JSON.
//!
//! Of the two servers that spoke this API one answered bare and one wrapped, and clients of both are about. So the fields
//! stand at the top and once more under `result` and `full_result`.

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use sandstorm_provider::Error;
use sandstorm_types::ErrorKind;
use serde::Serialize;

use crate::refusal::Refusal;

/// An object with at least one field, in its envelope.
#[derive(Debug)]
pub(crate) struct Answer<T>(pub(crate) T);

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        match serde_json::to_string(&self.0) {
            Ok(fields) => ([(CONTENT_TYPE, "application/json")], enveloped(&fields)).into_response(),
            Err(error) => {
                let error =
                    Error::new(ErrorKind::Internal, "an answer could not be written").with_source(error);
                Refusal::from(error).into_response()
            }
        }
    }
}

/// Puts the text of an object that has fields into the envelope, without reading it again.
fn enveloped(fields: &str) -> String {
    let open = fields.strip_suffix('}').unwrap_or(fields);
    format!(r#"{open},"result":{fields},"full_result":{fields}}}"#)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn fields_stand_three_times() {
        let inner = json!({"stdout": "}\"", "returncode": 0});
        let all: Value = serde_json::from_str(&enveloped(&inner.to_string())).unwrap();
        assert_eq!(all["result"], inner);
        assert_eq!(all["full_result"], inner);
        assert_eq!((&all["stdout"], &all["returncode"]), (&inner["stdout"], &inner["returncode"]));
        assert_eq!(all.as_object().unwrap().len(), 4);
    }
}
