//! Answers to what is not good enough to be parsed.

use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use sandstorm_types::ExecId;

use crate::edge::REQUEST_ID;
use crate::problem::ApiError;

const MARK: &str = "x-sandstorm-refused";

/// Why a head was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It can be read in more than one way, or in none.
    Malformed,
    /// It has more bytes or fields than a head may have.
    TooLarge,
}

/// Writes the requests that stand for refused ones, and knows them again: nobody else knows the secret in them.
#[derive(Debug, Clone)]
pub(super) struct Refusals(Arc<str>);

impl Refusals {
    pub(super) fn new() -> Self {
        Self(ExecId::random().bare().into())
    }

    /// A request that is put in the place of a refused one.
    pub(super) fn request(&self, refusal: Refusal) -> Vec<u8> {
        let mark = self.mark(refusal);
        format!("GET / HTTP/1.1\r\nhost: refused\r\n{MARK}: {mark}\r\nconnection: close\r\n\r\n").into_bytes()
    }

    fn mark(&self, refusal: Refusal) -> String {
        format!("{}-{refusal:?}", self.0)
    }

    /// The answer, if these are the headers of such a request.
    pub(super) fn answer(&self, headers: &HeaderMap) -> Option<Response> {
        let mark = headers.get(MARK)?;
        let error = if *mark == *self.mark(Refusal::Malformed) {
            ApiError::invalid("the request is not well-formed HTTP that can be read in one way only")
        } else if *mark == *self.mark(Refusal::TooLarge) {
            ApiError::invalid("the head of the request is too large")
                .status(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
        } else {
            return None;
        };
        let request_id = format!("req_{}", ExecId::random().bare());
        let body = Body::from(error.body(&request_id));
        let mut response = error.into_response();
        *response.body_mut() = body;
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        if let Ok(request_id) = HeaderValue::from_str(&request_id) {
            response.headers_mut().insert(REQUEST_ID, request_id);
        }
        Some(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_requests_are_known_again() {
        let refusals = Refusals::new();
        let headers = |mark: &str| HeaderMap::from_iter([(MARK.parse().unwrap(), mark.parse().unwrap())]);
        let answer = |mark: &str| refusals.answer(&headers(mark)).map(|answer| answer.status().as_u16());
        assert_eq!(answer(&refusals.mark(Refusal::Malformed)), Some(400));
        assert_eq!(answer(&refusals.mark(Refusal::TooLarge)), Some(431));
        assert_eq!(answer("Malformed"), None);
        assert_eq!(answer(&Refusals::new().mark(Refusal::Malformed)), None);
        assert!(refusals.answer(&HeaderMap::new()).is_none());
    }
}
