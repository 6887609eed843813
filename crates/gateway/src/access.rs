//! Who may call what: one table of every route, which the authentication reads and the tests enumerate.
//!
//! A route that is not in the table is refused, so forgetting a row closes a route instead of opening it.

use http::Method;
use sandstorm_control::server::Scope;

/// What a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing: it tells nothing about tenants.
    Open,
    /// `/metrics`: nothing, or any key when the operator says so.
    Metrics,
    /// Any valid key.
    Key,
    /// A key with this scope.
    Scope(Scope),
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// `*` is every method.
    pub method: &'static str,
    pub path: &'static str,
    pub access: Access,
}

const fn row(method: &'static str, path: &'static str, access: Access) -> Route {
    Route { method, path, access }
}

const RUN: Access = Access::Scope(Scope::Run);
const SANDBOX: Access = Access::Scope(Scope::Sandbox);
const FILES: Access = Access::Scope(Scope::Files);
const ADMIN: Access = Access::Scope(Scope::Admin);

/// Routes of the public listeners.
pub const PUBLIC: &[Route] = &[
    row("GET", "/healthz", Access::Open),
    row("GET", "/readyz", Access::Open),
    row("GET", "/openapi.json", Access::Open),
    row("GET", "/docs", Access::Open),
    row("GET", "/docs/", Access::Open),
    row("GET", "/docs/{*file}", Access::Open),
    row("GET", "/metrics", Access::Metrics),
    row("GET", "/v1/version", Access::Key),
    row("GET", "/v1/languages", Access::Key),
    row("GET", "/v1/limits", Access::Key),
    row("GET", "/v1/usage", Access::Key),
    row("GET", "/v1/me", Access::Key),
    row("POST", "/v1/runs", RUN),
    row("GET", "/v1/runs", RUN),
    row("GET", "/v1/runs/{run}", RUN),
    row("POST", "/v1/runs/{run}/cancel", RUN),
    row("POST", "/v1/sandboxes/run", RUN),
    row("POST", "/v1/route/explain", RUN),
    row("GET", "/v1/providers", RUN),
    row("GET", "/v1/events", SANDBOX),
    row("POST", "/v1/sandboxes", SANDBOX),
    row("GET", "/v1/sandboxes", SANDBOX),
    row("GET", "/v1/sandboxes/{sandbox}", SANDBOX),
    row("DELETE", "/v1/sandboxes/{sandbox}", SANDBOX),
    row("POST", "/v1/sandboxes/{sandbox}/extend", SANDBOX),
    row("POST", "/v1/sandboxes/{sandbox}/pause", SANDBOX),
    row("POST", "/v1/sandboxes/{sandbox}/resume", SANDBOX),
    row("POST", "/v1/sandboxes/{sandbox}/fork", SANDBOX),
    row("POST", "/v1/sandboxes/{sandbox}/install", SANDBOX),
    row("POST", "/v1/sandboxes/{sandbox}/snapshots", SANDBOX),
    row("POST", "/v1/sandboxes/{sandbox}/snapshot", SANDBOX),
    row("PUT", "/v1/sandboxes/{sandbox}/network", SANDBOX),
    row("GET", "/v1/sandboxes/{sandbox}/events", SANDBOX),
    row("GET", "/v1/sandboxes/{sandbox}/metrics", SANDBOX),
    row("GET", "/v1/sandboxes/{sandbox}/usage", SANDBOX),
    row("GET", "/v1/snapshots", SANDBOX),
    row("GET", "/v1/snapshots/{snapshot}", SANDBOX),
    row("DELETE", "/v1/snapshots/{snapshot}", SANDBOX),
    row("POST", "/v1/snapshots/{snapshot}/restore", SANDBOX),
    row("POST", "/v1/sandboxes/{sandbox}/exec", SANDBOX),
    row("GET", "/v1/sandboxes/{sandbox}/execs", SANDBOX),
    row("GET", "/v1/sandboxes/{sandbox}/execs/{exec}", SANDBOX),
    row("DELETE", "/v1/sandboxes/{sandbox}/execs/{exec}", SANDBOX),
    row("GET", "/v1/sandboxes/{sandbox}/execs/{exec}/events", SANDBOX),
    row("POST", "/v1/sandboxes/{sandbox}/execs/{exec}/stdin", SANDBOX),
    row("POST", "/v1/sandboxes/{sandbox}/execs/{exec}/signal", SANDBOX),
    row("POST", "/v1/sandboxes/{sandbox}/contexts", SANDBOX),
    row("GET", "/v1/sandboxes/{sandbox}/contexts", SANDBOX),
    row("GET", "/v1/sandboxes/{sandbox}/contexts/{context}", SANDBOX),
    row("DELETE", "/v1/sandboxes/{sandbox}/contexts/{context}", SANDBOX),
    row("POST", "/v1/sandboxes/{sandbox}/contexts/{context}/execute", SANDBOX),
    row("POST", "/v1/sandboxes/{sandbox}/contexts/{context}/interrupt", SANDBOX),
    row("POST", "/v1/sandboxes/{sandbox}/contexts/{context}/restart", SANDBOX),
    row("GET", "/v1/sandboxes/{sandbox}/pty", SANDBOX),
    row("*", "/v1/sandboxes/{sandbox}/ports/{port}", SANDBOX),
    row("*", "/v1/sandboxes/{sandbox}/ports/{port}/", SANDBOX),
    row("*", "/v1/sandboxes/{sandbox}/ports/{port}/{*path}", SANDBOX),
    row("GET", "/v1/sandboxes/{sandbox}/tunnel/{port}", SANDBOX),
    row("GET", "/v1/sandboxes/{sandbox}/files", FILES),
    row("HEAD", "/v1/sandboxes/{sandbox}/files", FILES),
    row("PUT", "/v1/sandboxes/{sandbox}/files", FILES),
    row("DELETE", "/v1/sandboxes/{sandbox}/files", FILES),
    row("GET", "/v1/sandboxes/{sandbox}/files/list", FILES),
    row("GET", "/v1/sandboxes/{sandbox}/files/stat", FILES),
    row("GET", "/v1/sandboxes/{sandbox}/files/exists", FILES),
    row("GET", "/v1/sandboxes/{sandbox}/files/search", FILES),
    row("GET", "/v1/sandboxes/{sandbox}/files/watch", FILES),
    row("POST", "/v1/sandboxes/{sandbox}/files/mkdir", FILES),
    row("POST", "/v1/sandboxes/{sandbox}/files/move", FILES),
    row("POST", "/v1/sandboxes/{sandbox}/files/mode", FILES),
    row("GET", "/v1/sandboxes/{sandbox}/files/archive", FILES),
    row("PUT", "/v1/sandboxes/{sandbox}/files/archive", FILES),
];

/// Routes of the admin listener.
pub const OPERATOR: &[Route] = &[
    row("GET", "/healthz", Access::Open),
    row("GET", "/readyz", Access::Open),
    row("GET", "/metrics", Access::Metrics),
    row("POST", "/v1/admin/keys", ADMIN),
    row("GET", "/v1/admin/keys", ADMIN),
    row("DELETE", "/v1/admin/keys/{key}", ADMIN),
    row("POST", "/v1/admin/keys/{key}/rotate", ADMIN),
    row("POST", "/v1/admin/tenants", ADMIN),
    row("GET", "/v1/admin/tenants", ADMIN),
    row("GET", "/v1/admin/audit", ADMIN),
    row("GET", "/v1/admin/usage", ADMIN),
];

/// What the table says about a request that matched a path of the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Access(Access),
    /// The path is known with other methods: nothing will run.
    OtherMethod,
    Unknown,
}

pub(crate) fn find(table: &[Route], method: &Method, path: &str) -> Found {
    let mut found = Found::Unknown;
    // A GET route answers HEAD too, unless HEAD has a row of its own.
    let wanted = |row: &Route, method: &str| row.method == "*" || row.method == method;
    for row in table.iter().filter(|row| row.path == path) {
        if wanted(row, method.as_str()) || (method == Method::HEAD && row.method == "GET") {
            return Found::Access(row.access);
        }
        found = Found::OtherMethod;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_method_and_path() {
        let files = "/v1/sandboxes/{sandbox}/files";
        assert_eq!(find(PUBLIC, &Method::PUT, files), Found::Access(FILES));
        assert_eq!(find(PUBLIC, &Method::PATCH, files), Found::OtherMethod);
        assert_eq!(find(PUBLIC, &Method::HEAD, "/v1/runs"), Found::Access(RUN));
        assert_eq!(find(PUBLIC, &Method::GET, "/v1/admin/keys"), Found::Unknown);
        let ports = "/v1/sandboxes/{sandbox}/ports/{port}/{*path}";
        assert_eq!(find(PUBLIC, &Method::OPTIONS, ports), Found::Access(SANDBOX));
    }

    #[test]
    fn what_is_open_tells_nothing_of_tenants() {
        let open: Vec<_> =
            PUBLIC.iter().filter(|row| row.access == Access::Open).map(|row| row.path).collect();
        assert_eq!(open, ["/healthz", "/readyz", "/openapi.json", "/docs", "/docs/", "/docs/{*file}"]);
    }
}
