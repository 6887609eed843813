//! Headers of proxied requests and answers.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use sandstorm_types::SandboxId;

use super::{cookies, secrets};
use crate::credentials::API_KEY;
use crate::edge::REQUEST_ID;

/// Belong to one connection, not to the message (RFC 9110, 7.6.1).
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Answers act with these on the whole host that they come from, which is ours: on its cookies, on what browsers
/// remember of it, on who may read it.
const HOST_WIDE: [&str; 14] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-allow-private-network",
    "access-control-expose-headers",
    "alt-svc",
    "clear-site-data",
    "nel",
    "origin-agent-cluster",
    "report-to",
    "reporting-endpoints",
    "service-worker-allowed",
    "strict-transport-security",
];

/// A page from a sandbox gets an origin of its own: with the key that a browser sends nowhere by itself it could not
/// call the API anyway, but in our origin it could read what other pages of ours keep there and frame them unseen.
/// `allow-same-origin` is left out for that reason, everything harmless is let in.
const PAGE_POLICY: &str = "sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads \
    allow-pointer-lock allow-orientation-lock allow-presentation";

/// Most headers that pass in one message, and the most bytes of all of them.
pub(crate) const MAX_HEADERS: usize = 100;

/// The place in our address space that a port appears under.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mount {
    pub(crate) sandbox: SandboxId,
    pub(crate) port: u16,
}

impl Mount {
    /// The path before the program's own, without a slash at the end.
    pub(crate) fn prefix(self) -> String {
        format!("/v1/sandboxes/{}/ports/{}", self.sandbox, self.port)
    }
}

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let listed = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        listed.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Say who calls the API, on its own host. A port that shares the host never sees them, whatever they hold.
const OF_THE_API: [&str; 8] = [
    "authorization",
    API_KEY,
    "x-access-token",
    "e2b-traffic-access-token",
    "expect",
    "forwarded",
    "x-forwarded-for",
    "x-real-ip",
];

/// What is the same for each request to a port that shares the API's host.
fn shared_host(headers: &mut HeaderMap, port: u16, upgrade: bool) {
    strip_hop_by_hop(headers);
    for name in OF_THE_API {
        headers.remove(name);
    }
    secrets::strip(headers);
    let host = HeaderValue::from_str(&format!("localhost:{port}")).expect("digits are header text");
    headers.insert(header::HOST, host);
    if upgrade {
        upgrade_to_websocket(headers);
    }
}

fn upgrade_to_websocket(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

/// What the program inside gets to see of a request.
pub(crate) fn request(headers: &mut HeaderMap, mount: Mount, upgrade: bool) {
    cookies::outbound(headers, mount);
    shared_host(headers, mount.port, upgrade);
    let prefix = HeaderValue::from_str(&mount.prefix()).expect("ids and digits are header text");
    headers.insert("x-forwarded-prefix", prefix);
}

/// What the program gets to see of a request that names its port by headers. Cookies are those of the API's host.
pub(crate) fn named_request(headers: &mut HeaderMap, port: u16, upgrade: bool) {
    headers.remove(header::COOKIE);
    shared_host(headers, port, upgrade);
}

/// What the client gets to see of an answer.
pub(crate) fn response(headers: &mut HeaderMap, mount: Mount) {
    cookies::inbound(headers, mount);
    relocate(headers, mount);
    confine(headers);
}

/// What the client gets to see of an answer to a request that named the port by headers: nothing that a browser would keep
/// for the API's host.
pub(crate) fn named_response(headers: &mut HeaderMap) {
    headers.remove(header::SET_COOKIE);
    confine(headers);
}

/// Takes from an answer what would act on the host that it comes from, and gives a page of it an origin of its own.
fn confine(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    for name in HOST_WIDE {
        headers.remove(name);
    }
    headers.remove(REQUEST_ID);
    // Policies add up: the program's own stays beside ours.
    headers.append(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(PAGE_POLICY));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("private, no-cache"));
}

/// What the program inside gets to see of a request to a host that is its own: all but what belongs to the connection, and
/// our credentials.
pub(crate) fn own_host_request(headers: &mut HeaderMap, upgrade: bool) {
    strip_hop_by_hop(headers);
    headers.remove("expect");
    secrets::strip(headers);
    if upgrade {
        upgrade_to_websocket(headers);
    }
}

/// What the client gets to see of an answer from such a host. Its cookies stay on it: the API and other sandboxes are below
/// the same domain.
pub(crate) fn own_host_response(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    headers.remove(REQUEST_ID);
    headers.remove("clear-site-data");
    cookies::keep_on_host(headers);
}

/// What the client gets to see of the answer to an upgrade: nothing but what makes it one.
pub(crate) fn upgraded(from: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for name in ["sec-websocket-accept", "sec-websocket-protocol", "sec-websocket-extensions"] {
        if let Some(value) = from.get(name) {
            headers.insert(HeaderName::from_static(name), value.clone());
        }
    }
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers
}

/// Redirects within the program stay under the port's prefix; others are the client's own decision.
fn relocate(headers: &mut HeaderMap, mount: Mount) {
    let Some(location) = headers.get(header::LOCATION).and_then(|value| value.to_str().ok()) else { return };
    let own = [format!("http://localhost:{}", mount.port), format!("http://127.0.0.1:{}", mount.port)];
    let inside = own.iter().find_map(|own| location.strip_prefix(own.as_str())).unwrap_or(location);
    if inside.starts_with('/') && !inside.starts_with("//") {
        let moved = HeaderValue::from_str(&format!("{}{inside}", mount.prefix()));
        headers.insert(header::LOCATION, moved.expect("a path that was header text stays it"));
    } else if inside.is_empty() {
        let moved = HeaderValue::from_str(&format!("{}/", mount.prefix()));
        headers.insert(header::LOCATION, moved.expect("ids and digits are header text"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount() -> Mount {
        Mount { sandbox: SandboxId::from_bits(1), port: 8000 }
    }

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        map
    }

    #[test]
    fn nothing_of_ours_reaches_the_program() {
        let mut sent = headers(&[
            ("authorization", "Bearer ss_secret"),
            ("x-api-key", "ss_secret"),
            ("cookie", "session=ours"),
            ("proxy-authorization", "x"),
            ("connection", "close, x-private"),
            ("x-private", "x"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "x"),
            ("x-forwarded-for", "192.0.2.1"),
            ("host", "api.test"),
            ("accept", "text/html"),
        ]);
        request(&mut sent, mount(), false);
        let mut names: Vec<_> = sent.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept", "host", "x-forwarded-prefix"]);
        assert_eq!(sent["host"], "localhost:8000");
    }

    #[test]
    fn an_upgrade_is_only_ever_to_websocket() {
        let mut sent = headers(&[("connection", "upgrade"), ("upgrade", "h2c"), ("sec-websocket-key", "x")]);
        request(&mut sent, mount(), true);
        assert_eq!(
            (&sent["upgrade"], &sent["connection"]),
            (&"websocket".parse().unwrap(), &"upgrade".parse().unwrap())
        );
        let answer = upgraded(&headers(&[("sec-websocket-accept", "y"), ("set-cookie", "a=b"), ("x", "y")]));
        assert_eq!(answer.len(), 3);
    }

    #[test]
    fn an_answer_cannot_act_on_our_host() {
        let mut answer = headers(&[
            ("set-cookie", "a=b; Domain=api.test; Path=/; SameSite=None"),
            ("strict-transport-security", "max-age=1"),
            ("clear-site-data", "\"*\""),
            ("access-control-allow-origin", "*"),
            ("access-control-allow-credentials", "true"),
            ("service-worker-allowed", "/"),
            ("content-security-policy", "default-src *"),
            ("connection", "x-hop"),
            ("x-hop", "1"),
            ("x-request-id", "forged"),
            ("content-type", "text/html"),
        ]);
        response(&mut answer, mount());
        for gone in HOST_WIDE.into_iter().chain(["connection", "x-hop", "x-request-id"]) {
            assert!(!answer.contains_key(gone), "{gone}");
        }
        let policies: Vec<_> = answer.get_all("content-security-policy").iter().collect();
        assert_eq!(policies.len(), 2);
        assert!(!PAGE_POLICY.contains("allow-same-origin"));
        let cookie = answer["set-cookie"].to_str().unwrap().to_ascii_lowercase();
        assert!(
            !cookie.contains("domain") && cookie.contains(&format!("path={}/", mount().prefix())),
            "{cookie}"
        );
    }

    /// Browsers forget the cookies of the whole domain for it, the API's among them.
    #[test]
    fn an_answer_from_a_host_of_its_own_cannot_log_its_reader_out_of_ours() {
        let mut answer = headers(&[("clear-site-data", "\"cookies\""), ("content-type", "text/html")]);
        own_host_response(&mut answer);
        assert!(!answer.contains_key("clear-site-data") && answer.contains_key("content-type"));
    }

    #[test]
    fn redirects_stay_under_the_prefix_or_leave_as_they_are() {
        let prefix = mount().prefix();
        for (given, wanted) in [
            ("/login", format!("{prefix}/login")),
            ("http://localhost:8000/login?x=1", format!("{prefix}/login?x=1")),
            ("http://127.0.0.1:8000", format!("{prefix}/")),
            ("next", "next".to_owned()),
            ("//evil.test/", "//evil.test/".to_owned()),
            ("http://169.254.169.254/", "http://169.254.169.254/".to_owned()),
        ] {
            let mut answer = headers(&[("location", given)]);
            relocate(&mut answer, mount());
            assert_eq!(answer["location"], wanted, "{given}");
        }
    }
}
