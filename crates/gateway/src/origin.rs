//! Which names the server answers to and which web pages may talk to it.
//!
//! A browser sends what a page tells it to, with the user's network position. Three walls stand against that: `Host`
//! must be a name of ours (a page whose name was re-bound to our address still sends its own name), `Origin` must be
//! known wherever the browser would not ask first (WebSockets, and everything while there are no keys), and no
//! cross-origin answer is readable unless its origin was allowed. A foreign API may let every page read what it answers: what
//! opens it is in headers that a page has to know and send.

use std::net::IpAddr;

use http::header::{HOST, ORIGIN, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Version};
use sandstorm_types::ErrorKind;

use crate::problem::{ApiError, ApiResult};
use crate::settings::GatewaySettings;

const FETCH_SITE: &str = "sec-fetch-site";

/// Refuses requests that name another host than ours, or come from a page that may not ask.
pub(crate) fn check<B>(settings: &GatewaySettings, request: &Request<B>) -> ApiResult<()> {
    let host = host_of(request)?;
    let known = host_is_known(settings, host);
    if !known && (settings.dev_no_auth || !settings.allowed_hosts.is_empty()) {
        return Err(
            ApiError::invalid("this server is not called that").status(StatusCode::MISDIRECTED_REQUEST)
        );
    }
    let guarded = settings.dev_no_auth || request.headers().contains_key(UPGRADE);
    let foreign = || ApiError::new(ErrorKind::Forbidden, "pages of that origin may not call this server");
    match origin_of(request.headers())? {
        Some(origin) if guarded && !origin_is_known(settings, origin, host, known) => Err(foreign()),
        // Browsers send no origin with what a page only embeds or links to, but say whose page it is.
        None if settings.dev_no_auth && is_from_elsewhere(request.headers()) => Err(foreign()),
        _ => Ok(()),
    }
}

/// The origin, when it is one that the operator allowed to read answers.
pub(crate) fn allowed<'a>(settings: &GatewaySettings, headers: &'a HeaderMap) -> Option<&'a str> {
    let origin = headers.get(ORIGIN)?.to_str().ok()?;
    settings.allowed_origins.iter().any(|known| known == origin).then_some(origin)
}

/// The one name that the request calls us by.
fn host_of<B>(request: &Request<B>) -> ApiResult<&str> {
    let invalid = || ApiError::field("Host", "must be given once and agree with the address");
    let mut hosts = request.headers().get_all(HOST).iter();
    let header = hosts.next().map(|value| value.to_str().map_err(|_| invalid())).transpose()?;
    if hosts.next().is_some() {
        return Err(invalid());
    }
    let authority = request.uri().authority().map(http::uri::Authority::as_str);
    match (header, authority) {
        (Some(header), Some(authority)) if !header.eq_ignore_ascii_case(authority) => Err(invalid()),
        (Some(host), _) | (None, Some(host)) if plain(host) => Ok(host),
        (None, None) if request.version() <= Version::HTTP_10 => Ok(""),
        _ => Err(invalid()),
    }
}

/// Whether a browser says that a page of another origin made it send this. A sibling below the same domain is one too.
fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    let own = |value: &HeaderValue| value == "same-origin" || value == "none";
    headers.get_all(FETCH_SITE).iter().any(|value| !own(value))
}

/// A host name or address and perhaps a port, nothing else.
fn plain(host: &str) -> bool {
    host.len() <= 300 && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
}

fn host_is_known(settings: &GatewaySettings, host: &str) -> bool {
    let name = without_port(host);
    let listed = |known: &String| known.eq_ignore_ascii_case(host) || known.eq_ignore_ascii_case(name);
    (settings.dev_no_auth && is_loopback(name)) || settings.allowed_hosts.iter().any(listed)
}

fn is_loopback(name: &str) -> bool {
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

fn origin_of(headers: &HeaderMap) -> ApiResult<Option<&str>> {
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else { return Ok(None) };
    match (origin.to_str(), origins.next()) {
        (Ok(origin), None) => Ok(Some(origin)),
        _ => Err(ApiError::field("Origin", "must be given once")),
    }
}

/// An allowed origin, or a page of our own: the same name and port, under a name that is known to be ours.
fn origin_is_known(settings: &GatewaySettings, origin: &str, host: &str, host_known: bool) -> bool {
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    let ours = host_known || is_loopback(without_port(host));
    settings.allowed_origins.iter().any(|known| known == origin)
        || (ours && authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(dev_no_auth: bool, hosts: &[&str], origins: &[&str]) -> GatewaySettings {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        GatewaySettings {
            dev_no_auth,
            allowed_hosts: texts(hosts),
            allowed_origins: texts(origins),
            ..GatewaySettings::default()
        }
    }

    fn status(settings: &GatewaySettings, uri: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        match check(settings, &request.body(()).unwrap()) {
            Ok(()) => 200,
            Err(error) => axum::response::IntoResponse::into_response(error).status().as_u16(),
        }
    }

    #[test]
    fn without_keys_only_loopback_names_and_pages() {
        let dev = settings(true, &["box.test"], &["https://app.test"]);
        for (headers, wanted) in [
            (&[("host", "127.0.0.1:7300")][..], 200),
            (&[("host", "localhost")], 200),
            (&[("host", "[::1]:7300")], 200),
            (&[("host", "box.test:7300")], 200),
            (&[("host", "attacker.test:7300")], 421),
            (&[("host", "127.0.0.1.attacker.test")], 421),
            (&[("host", "localhost.attacker.test")], 421),
            (&[("host", "localhost"), ("host", "localhost")], 400),
            (&[("host", "a b")], 400),
            (&[], 400),
            (&[("host", "localhost:1"), ("origin", "http://localhost:1")], 200),
            (&[("host", "localhost:1"), ("origin", "https://app.test")], 200),
            (&[("host", "localhost:1"), ("origin", "http://localhost:2")], 403),
            (&[("host", "localhost:1"), ("origin", "https://evil.test")], 403),
            (&[("host", "localhost:1"), ("origin", "https://app.test.evil.test")], 403),
            (&[("host", "localhost:1"), ("origin", "null")], 403),
            (&[("host", "localhost:1"), ("sec-fetch-site", "cross-site")], 403),
            (&[("host", "localhost:1"), ("sec-fetch-site", "same-site")], 403),
            (&[("host", "localhost:1"), ("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")], 403),
            (&[("host", "localhost:1"), ("sec-fetch-site", "same-origin")], 200),
            (&[("host", "localhost:1"), ("sec-fetch-site", "none")], 200),
            (
                &[("host", "localhost:1"), ("origin", "https://app.test"), ("sec-fetch-site", "cross-site")],
                200,
            ),
        ] {
            assert_eq!(status(&dev, "/v1/me", headers), wanted, "{headers:?}");
        }
        // Where no name is allowed beside them, they are the only ones all the same.
        let bare = settings(true, &[], &[]);
        for (host, wanted) in [("127.0.0.1:7300", 200), ("localhost", 200), ("attacker.test:7300", 421)] {
            assert_eq!(status(&bare, "/v1/me", &[("host", host)]), wanted, "{host}");
        }
    }

    #[test]
    fn with_keys_origins_count_for_upgrades() {
        let keyed = settings(false, &[], &["https://app.test"]);
        let host = ("host", "any.test");
        assert_eq!(status(&keyed, "/", &[host]), 200);
        assert_eq!(status(&keyed, "/", &[host, ("origin", "https://evil.test")]), 200);
        let socket = ("upgrade", "websocket");
        assert_eq!(status(&keyed, "/", &[host, socket]), 200);
        assert_eq!(status(&keyed, "/", &[host, socket, ("origin", "https://app.test")]), 200);
        for origin in ["https://evil.test", "null", "https://any.test", "https://app.test.evil.test"] {
            assert_eq!(status(&keyed, "/", &[host, socket, ("origin", origin)]), 403, "{origin}");
        }
    }

    #[test]
    fn an_absolute_address_must_agree_with_host() {
        let keyed = settings(false, &["a.test"], &[]);
        assert_eq!(status(&keyed, "http://a.test/", &[("host", "a.test")]), 200);
        assert_eq!(status(&keyed, "http://b.test/", &[("host", "a.test")]), 400);
        assert_eq!(status(&keyed, "/", &[("host", "b.test")]), 421);
    }
}
