//! Pages that call this API from a browser.
//!
//! E2B's SDK runs in pages of any origin. Everything here is opened by keys and tokens that a page has to have and send in
//! headers of its own; a browser adds none by itself. So every page may ask, and may read what it is answered. What a browser
//! asks before (a preflight) has no key yet and names no sandbox: it is answered by its form alone, and nothing is looked up,
//! counted or woken for it. Requests to other ports than ours are left to the programs there.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use sandstorm_e2b_wire::{ENVD_PORT, INTERPRETER_PORT};

use crate::address::{PORT_HEADER, SANDBOX_HEADER};
use crate::state::Dialect;

const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE";
/// What a page may read of an answer beside its body.
const SHOWN: &str = "x-next-token, x-total-running, retry-after, should-retry, content-disposition, content-range, \
    etag, x-request-id";
/// What a page may send is what it asked for, up to so many bytes.
const LONGEST_ASKED: usize = 4096;
/// Seconds for which a browser need not ask again.
const HOLDS: &str = "600";
/// Where the paths of this API begin, of the control plane and of what is inside a sandbox.
const PATHS: [&str; 13] = [
    "/sandboxes",
    "/v2/sandboxes",
    "/snapshots",
    "/templates",
    "/v2/templates",
    "/v3/templates",
    "/default-templates",
    "/volumes",
    "/secrets",
    "/files",
    "/execute",
    "/contexts",
    "/envs",
];
const SERVICES: [&str; 2] = ["/process.Process/", "/filesystem.Filesystem/"];

impl Dialect {
    /// Whether a browser asks here whether a page may call this API.
    pub(crate) fn is_preflight(&self, parts: &Parts) -> bool {
        let asks = parts.method == Method::OPTIONS
            && parts.headers.contains_key(header::ORIGIN)
            && parts.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        if !asks {
            return false;
        }
        match self.host_address(parts) {
            Some(address) => is_ours(address.port),
            None => is_path_of_ours(parts.uri.path()) || will_name_a_sandbox(&parts.headers),
        }
    }
}

/// Whether this server itself answers on the port.
pub(crate) fn is_ours(port: u16) -> bool {
    matches!(port, ENVD_PORT | INTERPRETER_PORT)
}

fn is_path_of_ours(path: &str) -> bool {
    let is_below =
        |base: &str| path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    PATHS.into_iter().any(is_below) || SERVICES.into_iter().any(|service| path.starts_with(service))
}

fn will_name_a_sandbox(headers: &HeaderMap) -> bool {
    let asked = headers.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let mut names = asked.filter_map(|value| value.to_str().ok()).flat_map(|names| names.split(','));
    names.any(|name| [SANDBOX_HEADER, PORT_HEADER].iter().any(|ours| name.trim().eq_ignore_ascii_case(ours)))
}

/// The answer to a preflight: yes.
pub(crate) fn welcome(parts: &Parts) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(HOLDS));
    headers.insert(header::VARY, HeaderValue::from_static("access-control-request-headers"));
    let asked = parts.headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
    if let Some(asked) = asked.filter(|asked| is_list_of_names(asked.as_bytes())) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    shared(response)
}

fn is_list_of_names(asked: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_, ".contains(byte);
    asked.len() <= LONGEST_ASKED && asked.iter().all(plain)
}

/// An answer that a page may read.
pub(crate) fn shared(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(SHOWN));
    response
}

pub(crate) async fn share(request: Request, next: Next) -> Response {
    shared(next.run(request).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_ours_are_told_from_others() {
        for ours in ["/sandboxes", "/v2/sandboxes/x/connect", "/files", "/process.Process/Start", "/execute"]
        {
            assert!(is_path_of_ours(ours), "{ours}");
        }
        for other in ["/v1/sandboxes", "/", "/filesystem", "/sandboxesx", "/metrics", "/workspace/se", "/mcp"]
        {
            assert!(!is_path_of_ours(other), "{other}");
        }
    }

    #[test]
    fn what_may_be_sent_is_what_was_asked_for() {
        let asked = |text: &str| is_list_of_names(text.as_bytes());
        assert!(asked("authorization,connect-protocol-version, x-metadata-author"));
        assert!(!asked("x\"y") && !asked(&"x".repeat(LONGEST_ASKED + 1)));
    }
}
