//! Where the key of a request is: in exactly one header, exactly once, and never in the address.

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue, Uri};

/// Longer than every form of key.
const MAX_KEY: usize = 256;
pub(crate) const API_KEY: &str = "x-api-key";

/// Names under which people put keys into addresses, where logs and histories keep them.
const QUERY_NAMES: [&str; 6] = ["api_key", "api-key", "apikey", "x-api-key", "access_token", "authorization"];

/// The key as presented; `None` for every request that does not present exactly one.
pub(crate) fn presented(headers: &HeaderMap) -> Option<&str> {
    let bearer = only(headers, AUTHORIZATION.as_str())?;
    let bare = only(headers, API_KEY)?;
    let key = match (bearer, bare) {
        (Some(value), None) => strip_scheme(value.to_str().ok()?)?,
        (None, Some(value)) => value.to_str().ok()?,
        _ => return None,
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (!key.is_empty() && key.len() <= MAX_KEY && key.bytes().all(plain)).then_some(key)
}

/// The one value of a header: `None` when there are several.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<Option<&'a HeaderValue>> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    values.next().is_none().then_some(first)
}

/// The scheme's name is case-insensitive; one space follows it, nothing else.
fn strip_scheme(value: &str) -> Option<&str> {
    let (scheme, rest) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(rest)
}

/// Whether the address carries what looks like a key. Such a request is refused even with a good header: whoever
/// wrote it must learn that keys do not belong there.
pub(crate) fn in_query(uri: &Uri) -> bool {
    let names =
        uri.query().unwrap_or_default().split('&').map(|pair| pair.split('=').next().unwrap_or_default());
    names.map(str::to_ascii_lowercase).any(|name| QUERY_NAMES.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        map
    }

    #[test]
    fn one_key_in_one_header() {
        for good in [
            &[("authorization", "Bearer ss_a_b-c")][..],
            &[("authorization", "bearer ss_a_b-c")],
            &[("x-api-key", "ss_a_b-c")],
        ] {
            assert_eq!(presented(&headers(good)), Some("ss_a_b-c"), "{good:?}");
        }
    }

    #[test]
    fn everything_else_is_no_key() {
        let long = "a".repeat(257);
        for bad in [
            &[][..],
            &[("authorization", "")],
            &[("authorization", "Bearer")],
            &[("authorization", "Bearer ")],
            &[("authorization", "Bearer\tss_a_b")],
            &[("authorization", "Bearer  ss_a_b")],
            &[("authorization", "Basic ss_a_b")],
            &[("authorization", "ss_a_b")],
            &[("authorization", "Bearer ss_a_b, Bearer ss_a_b")],
            &[("authorization", "Bearer ss_a_b"), ("authorization", "Bearer ss_a_b")],
            &[("authorization", "Bearer ss_a_b"), ("x-api-key", "ss_a_b")],
            &[("x-api-key", "ss_a_b"), ("x-api-key", "ss_a_b")],
            &[("x-api-key", "ss_ä")],
            &[("x-api-key", &long)],
        ] {
            assert_eq!(presented(&headers(bad)), None, "{bad:?}");
        }
    }

    #[test]
    fn keys_in_addresses_are_seen() {
        for (uri, wanted) in [
            ("/v1/runs?api_key=x", true),
            ("/v1/runs?a=1&API_KEY=x", true),
            ("/v1/runs?access_token", true),
            ("/v1/runs?cursor=api_key", false),
            ("/v1/runs", false),
        ] {
            assert_eq!(in_query(&uri.parse().unwrap()), wanted, "{uri}");
        }
    }
}
