//! A call as it is sent: what is asked, how long it may take and whether it may be repeated.

use std::time::Duration;

use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::Url;
use serde::Serialize;

/// A call as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Vec<u8>>,
    /// Whether sending it twice does no more than sending it once.
    pub(crate) repeatable: bool,
    pub(crate) within: Within,
}

/// How long the head of an answer may take.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Within {
    /// As long as the client's options say.
    Usual,
    Given(Duration),
    /// As long as the work takes.
    Any,
}

impl Call {
    pub(crate) fn new(method: Method, url: Url) -> Self {
        let repeatable = matches!(method, Method::GET | Method::HEAD | Method::PUT | Method::DELETE);
        Self { method, url, headers: HeaderMap::new(), body: None, repeatable, within: Within::Usual }
    }

    pub(crate) fn get(url: Url) -> Self {
        Self::new(Method::GET, url)
    }

    pub(crate) fn post(url: Url) -> Self {
        Self::new(Method::POST, url)
    }

    pub(crate) fn json(self, body: &impl Serialize) -> Self {
        let bytes = serde_json::to_vec(body).expect("requests are maps of text, numbers and lists");
        self.bytes("application/json", bytes)
    }

    pub(crate) fn bytes(mut self, kind: &'static str, bytes: Vec<u8>) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        self.body = Some(bytes);
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        // A value that is no header would be a number or an id of ours that went wrong; the server says so then.
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// How long the head of the answer may take.
    pub(crate) fn within(mut self, within: Duration) -> Self {
        self.within = Within::Given(within);
        self
    }

    /// Asks for a stream of events.
    pub(crate) fn events(mut self) -> Self {
        self.headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        self
    }

    /// Makes a creation safe to repeat: the server answers a second one with the same key as it did the first.
    pub(crate) fn once(mut self) -> Self {
        let mut random = [0; 16];
        if getrandom::fill(&mut random).is_ok() {
            self = self.header("idempotency-key", &format!("{:032x}", u128::from_be_bytes(random)));
            self.repeatable = true;
        }
        self
    }

    /// The same with a key of the caller's, who may have to repeat it later.
    pub(crate) fn once_as(mut self, key: &str) -> Self {
        self.repeatable = true;
        self.header("idempotency-key", key)
    }

    /// Safe to repeat for a reason that the method does not tell.
    pub(crate) fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    pub(crate) fn without_deadline(mut self) -> Self {
        self.within = Within::Any;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_calls_are_repeated() {
        let url = || Url::parse("http://h/").unwrap();
        assert!(Call::get(url()).repeatable && Call::new(Method::DELETE, url()).repeatable);
        assert!(!Call::post(url()).repeatable);
        let (first, second) = (Call::post(url()).once(), Call::post(url()).once());
        assert!(first.repeatable);
        assert_ne!(first.headers["idempotency-key"], second.headers["idempotency-key"]);
    }
}
