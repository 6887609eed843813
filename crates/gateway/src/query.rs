//! Query parameters, strictly: decoded once, each known, each at most as often as it may be.

use std::fmt::Display;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use http::request::Parts;
use sandstorm_types::GuestPath;

use crate::problem::{ApiError, ApiResult};

const MAX_PARAMETERS: usize = 64;

/// The parameters that were not asked for yet.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> ApiResult<Self> {
        let mut pairs = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name =
                decode(name).ok_or_else(|| ApiError::invalid("a query parameter's name is not UTF-8"))?;
            let value =
                decode(value).ok_or_else(|| ApiError::field(&name, "is not percent-encoded UTF-8"))?;
            pairs.push((name, value));
        }
        if pairs.len() > MAX_PARAMETERS {
            return Err(ApiError::invalid("there are too many query parameters"));
        }
        Ok(Self(pairs))
    }

    /// Whether a parameter is given at all.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(given, _)| given == name)
    }

    /// Every value of a parameter.
    pub(crate) fn all(&mut self, name: &str) -> Vec<String> {
        let (taken, rest) = std::mem::take(&mut self.0).into_iter().partition(|(known, _)| known == name);
        self.0 = rest;
        Vec::into_iter(taken).map(|(_, value)| value).collect()
    }

    /// The value of a parameter that may be given once.
    pub(crate) fn text(&mut self, name: &str) -> ApiResult<Option<String>> {
        let mut values = self.all(name);
        if values.len() > 1 {
            return Err(ApiError::field(name, "is given more than once"));
        }
        Ok(values.pop())
    }

    pub(crate) fn read<T: FromStr<Err: Display>>(&mut self, name: &str) -> ApiResult<Option<T>> {
        let value = self.text(name)?;
        value
            .map(|text| text.parse().map_err(|error: T::Err| ApiError::field(name, error.to_string())))
            .transpose()
    }

    /// A number within a range.
    pub(crate) fn number(&mut self, name: &str, from: u64, to: u64) -> ApiResult<Option<u64>> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if digits && (from..=to).contains(&number) => Ok(Some(number)),
            _ => Err(ApiError::field(name, format!("must be a whole number from {from} to {to}"))),
        }
    }

    /// `true` or `false`; absent is `false`.
    pub(crate) fn flag(&mut self, name: &str) -> ApiResult<bool> {
        match self.text(name)?.as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(ApiError::field(name, "must be true or false")),
        }
    }

    /// A path in the sandbox that must be given.
    pub(crate) fn path(&mut self, name: &str) -> ApiResult<GuestPath> {
        self.read(name)?.ok_or_else(|| ApiError::field(name, "is missing"))
    }

    /// Refuses what nobody asked for: a misspelt parameter would otherwise do nothing in silence.
    pub(crate) fn finish(self) -> ApiResult<()> {
        match self.0.first() {
            Some((name, _)) => Err(ApiError::field(name, "there is no such parameter")),
            None => Ok(()),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> ApiResult<Self> {
        Self::parse(parts.uri.query().unwrap_or_default())
    }
}

/// Decodes once, as forms do it: `+` is a space. `None` when it is not well formed.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => bytes.push(hex(rest.next()?)? << 4 | hex(rest.next()?)?),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_once() {
        let mut query = Query::parse("path=a%2520b+c%2Bd&label=x%3Dy&label=z").unwrap();
        assert_eq!(query.text("path").unwrap().unwrap(), "a%20b c+d");
        assert_eq!(query.all("label"), ["x=y", "z"]);
        query.finish().unwrap();
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["a=%", "a=%2", "a=%zz", "a=%ff", "%ff=1", "a=%+1"] {
            assert!(Query::parse(bad).is_err(), "{bad}");
        }
        assert!(Query::parse(&"a&".repeat(65)).is_err());
        assert!(Query::parse("a=1&a=2").unwrap().text("a").is_err());
        assert!(Query::parse("a=1").unwrap().finish().is_err());
        for bad in ["n=", "n=+1", "n=-1", "n=0", "n=11", "n=1e1", "n=99999999999999999999"] {
            assert!(Query::parse(bad).unwrap().number("n", 1, 10).is_err(), "{bad}");
        }
        assert!(Query::parse("f=yes").unwrap().flag("f").is_err());
    }

    #[test]
    fn paths_cannot_go_up_however_they_are_written() {
        for bad in ["path=..", "path=a/%2e%2e/b", "path=a%00b", "path=%252e%252e/x", "path=..%5cx", "path="] {
            assert!(Query::parse(bad).unwrap().path("path").is_err(), "{bad}");
        }
        assert!(Query::default().path("path").is_err());
    }
}
