//! Parameters of an address, decoded once. Unknown ones are nobody's matter: SDKs add some with every release.

use http::Uri;
use percent_encoding::percent_decode_str;

use crate::refusal::Refusal;

/// The parameters of one request.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of(uri: &Uri) -> Self {
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let decoded = |text: &str| decode(&text.replace('+', " "));
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(name, value)| (decoded(name), decoded(value)))
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| Refusal::invalid(format!("{name} is not a number")))
    }
}

/// Percent-decoded; what is no UTF-8 then is shown as such.
pub(crate) fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded_once() {
        let query = Query::of(&"/x?a=1%252&b&c=x+y%20z&a=3&d=%ff".parse().unwrap());
        assert_eq!(query.get("a"), Some("1%2"));
        assert_eq!(query.get("b"), Some(""));
        assert_eq!(query.get("c"), Some("x y z"));
        assert_eq!(query.get("d"), Some("\u{fffd}"));
        assert_eq!(query.get("e"), None);
        assert!(query.number("c").is_err());
        assert_eq!(query.number("e").unwrap(), None);
    }
}
