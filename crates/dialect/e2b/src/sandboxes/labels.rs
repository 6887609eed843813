//! What E2B calls metadata, kept as labels, and the labels that are our own.

use std::collections::BTreeMap;

use sandstorm_types::Labels;

use crate::query::decode;
use crate::refusal::Refusal;

/// Before the names of labels that this dialect keeps for itself.
const OWN: &str = "sandstorm.e2b/";

/// Labels that are not metadata.
fn is_own(key: &str) -> bool {
    key.starts_with(OWN) || key == Labels::PUBLIC_PORTS
}

/// The template as it was asked for.
pub(crate) const TEMPLATE: &str = "sandstorm.e2b/template";
/// The operator's template behind a saved sandbox that it was made from.
pub(crate) const ORIGIN: &str = "sandstorm.e2b/origin";
/// Whether a paused sandbox wakes when it is called.
pub(crate) const AUTO_RESUME: &str = "sandstorm.e2b/auto-resume";

/// The host that programs behind its ports see.
pub(crate) const REQUEST_HOST: &str = "sandstorm.e2b/request-host";

/// Labels from metadata and what this dialect adds.
pub(crate) fn labels(
    metadata: BTreeMap<String, String>,
    own: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<Labels, Refusal> {
    if let Some(taken) = metadata.keys().find(|key| is_own(key)) {
        return Err(Refusal::invalid(format!("metadata key '{taken}' is reserved")));
    }
    let mut all = metadata;
    all.extend(own.into_iter().map(|(key, value)| (key.to_owned(), value)));
    Labels::try_from(all).map_err(|error| Refusal::invalid(format!("metadata cannot be kept: {error}")))
}

/// Metadata as clients see it.
pub(crate) fn metadata(labels: &Labels) -> BTreeMap<&str, &str> {
    labels.iter().filter(|(key, _)| !is_own(key)).collect()
}

/// Reads the filter of a list. It comes encoded three times; the query took the first away.
pub(crate) fn filter(text: &str) -> Result<BTreeMap<String, String>, Refusal> {
    let wrong = || Refusal::invalid("metadata filter must be key=value pairs with & between them");
    let whole = decode(text);
    let mut pairs = BTreeMap::new();
    for pair in whole.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(wrong)?;
        if value.contains('=') {
            return Err(wrong());
        }
        pairs.insert(decode(key), decode(value));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Query;

    #[test]
    fn the_filter_is_what_the_sdks_encode_three_times() {
        // What the Python SDK sends for {"k": "v v", "a&b": "c=d"}.
        let query =
            Query::of(&"/v2/sandboxes?metadata=k%3Dv%252520v%26a%252526b%3Dc%25253Dd".parse().unwrap());
        let pairs = filter(query.get("metadata").unwrap()).unwrap();
        let wanted = [("k", "v v"), ("a&b", "c=d")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(pairs, wanted.into());
        assert!(filter("").unwrap().is_empty());
        for bad in ["k", "a=b=c", "a=b&c", "a%3Db%3Dc"] {
            assert_eq!(filter(bad).unwrap_err().status(), 400, "{bad}");
        }
    }

    #[test]
    fn our_own_labels_are_neither_shown_nor_taken() {
        let given = BTreeMap::from([("user".to_owned(), "u 1".to_owned())]);
        let labels = labels(given, [(TEMPLATE, "base".to_owned())]).unwrap();
        assert_eq!(metadata(&labels), BTreeMap::from([("user", "u 1")]));
        assert_eq!(labels.get(TEMPLATE), Some("base"));
        let taken = BTreeMap::from([(TEMPLATE.to_owned(), "base".to_owned())]);
        assert!(super::labels(taken, []).is_err());
        let opened = BTreeMap::from([(Labels::PUBLIC_PORTS.to_owned(), "true".to_owned())]);
        assert!(super::labels(opened, []).is_err());
        let long = BTreeMap::from([("k".to_owned(), "x".repeat(257))]);
        assert!(super::labels(long, []).unwrap_err().message().contains("256 bytes"));
    }
}
