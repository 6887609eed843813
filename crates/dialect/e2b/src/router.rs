//! Routes of the control plane, and of what needs no key.

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{any, get, post, put};
use http::StatusCode;

use crate::sandboxes::{create, forks, lifecycle, list, metrics, network, snapshots, templates};
use crate::state::Dialect;
use crate::{browsers, files, leftovers};

impl Dialect {
    /// What needs a key: each request finds its caller as `Extension<Caller>`.
    pub fn routes(&self) -> Router {
        Router::new()
            .route("/v2/sandboxes", post(create::create).get(list::page))
            .route("/sandboxes", post(create::create_v1).get(list::running))
            .route("/sandboxes/metrics", get(metrics::of_many))
            .route("/sandboxes/{id}", get(lifecycle::get).delete(lifecycle::kill))
            .route("/v2/sandboxes/{id}/connect", post(lifecycle::connect))
            .route("/sandboxes/{id}/connect", post(lifecycle::connect))
            .route("/sandboxes/{id}/resume", post(lifecycle::resume))
            .route("/sandboxes/{id}/pause", post(lifecycle::pause))
            .route("/sandboxes/{id}/timeout", post(lifecycle::timeout))
            .route("/sandboxes/{id}/refreshes", post(lifecycle::refresh))
            .route("/sandboxes/{id}/fork", post(forks::fork))
            .route("/sandboxes/{id}/snapshots", post(snapshots::create))
            .route("/sandboxes/{id}/network", put(network::update))
            .route("/sandboxes/{id}/metrics", get(metrics::of_one))
            .route("/sandboxes/{id}/logs", get(templates::logs))
            .route("/v2/sandboxes/{id}/logs", get(templates::logs))
            .route("/snapshots", get(snapshots::list))
            .route("/templates", get(templates::list).post(templates::build))
            .route("/v2/templates", get(templates::list).post(templates::build))
            .route("/v3/templates", post(templates::build))
            .route("/default-templates", get(templates::list))
            .route("/templates/{id}", get(templates::get).delete(templates::delete))
            .route("/templates/aliases/{alias}", get(templates::alias))
            .route("/volumes", any(templates::nothing))
            .route("/volumes/{*rest}", any(templates::nothing))
            .route("/secrets", any(templates::nothing))
            .route("/secrets/{*rest}", any(templates::nothing))
            .layer(from_fn(leftovers::read_on))
            .layer(from_fn(browsers::share))
            .with_state(self.clone())
    }

    /// What needs no key: it tells nothing about tenants, or is opened by a signature.
    pub fn open(&self) -> Router {
        Router::new()
            .route("/health", get(async || StatusCode::OK))
            .merge(files::open_router(self))
            .layer(from_fn(leftovers::read_on))
            .layer(from_fn(browsers::share))
            .with_state(self.clone())
    }
}
