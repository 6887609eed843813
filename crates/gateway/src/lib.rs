//! The HTTP server: native API, keys, limits, documents.
//!
//! [`router`] makes the public routes and [`admin_router`] those of operators; [`serve`] answers on listeners. A handler
//! extracts, calls [`Control`], maps; there are no rules here. What the routes are and what each needs is the table in
//! [`access`], which authentication reads, the description is completed from and the tests enumerate.

pub mod access;
mod app;
mod auth;
mod body;
mod credentials;
mod edge;
mod front;
mod idempotency;
mod ids;
mod json;
mod openapi;
mod origin;
mod problem;
mod proxy;
mod query;
mod range;
mod reference;
mod revocation;
mod routes;
mod serve;
mod settings;
mod sse;
mod whole;
mod wire;

use sandstorm_provider::Tasks;
use std::fmt;

use axum::Router;
use axum::middleware;
use axum::response::Response;
use axum::routing::get;
use http::StatusCode;
use sandstorm_control::server::Control;

use access::{OPERATOR, PUBLIC};
use app::{App, Shared};
use auth::Rules;

pub use front::Front;
pub use openapi::{document as openapi, json as openapi_json};
pub use reference::page as reference_page;
pub use routes::forwarding::{PortForwarder, PortHost};
pub use serve::{Listener, ServeError, ServeLimits, ServeOptions, Tls, serve};
pub use settings::GatewaySettings;
pub use wire::LanguageView;

/// What the routes are made from.
pub struct Gateway {
    pub control: Control,
    pub settings: GatewaySettings,
    /// Prometheus text for `/metrics`.
    pub metrics: Box<dyn Fn() -> String + Send + Sync>,
    /// Languages for `/v1/languages`.
    pub languages: Box<dyn Fn() -> Vec<LanguageView> + Send + Sync>,
    /// Foreign APIs.
    pub extra: Vec<Foreign>,
}

/// A foreign API.
#[derive(Debug, Default)]
pub struct Foreign {
    /// All of these need a key, find the caller as `Extension<Caller>`, and are checked for scopes by what they ask of
    /// [`Control`].
    pub routes: Router,
    /// Routes that need none: they tell nothing about tenants.
    pub open: Router,
    /// The path at which whoever is refused reads how to get in.
    pub metadata: Option<&'static str>,
    /// Requests that are not for a path of this server, whatever their path is.
    pub front: Option<Front>,
    /// How a refusal looks that `routes` did not make themselves: bad keys, too many requests.
    pub refusal: Option<Refusal>,
}

/// Makes the answer of a foreign API from a status and what there is to say.
pub type Refusal = fn(StatusCode, &str) -> Response;

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The routes of the public listeners.
pub fn router(gateway: Gateway) -> Router {
    let (app, extra) = shared(gateway);
    let (described, _) = routes::public().split_for_parts();
    let pages = Router::new()
        .route("/openapi.json", get(routes::documents::openapi_json))
        .route("/docs", get(routes::documents::docs))
        .route("/docs/", get(routes::documents::docs_file))
        .route("/docs/{*file}", get(routes::documents::docs_file));
    let native = behind(&app, described.merge(pages).with_state(app.clone()), Rules::Table(PUBLIC));
    let mut fronts = Vec::new();
    let all = extra.into_iter().fold(native, |all, Foreign { routes, open, metadata, front, refusal }| {
        fronts.extend(front);
        all.merge(behind(&app, routes, Rules::AnyKey { metadata, refusal })).merge(open)
    });
    let fronts =
        fronts.into_iter().map(|front| front.map(|routes| at_the_edge(app.clone(), routes))).collect();
    front::before(fronts, finished(app, all))
}

/// The routes of the admin listener: operators only, and never on a public one.
pub fn admin_router(gateway: Gateway) -> Router {
    let (app, _) = shared(gateway);
    let (described, _) = routes::operator().split_for_parts();
    let routes = behind(&app, described.with_state(app.clone()), Rules::Table(OPERATOR));
    finished(app, routes)
}

fn shared(gateway: Gateway) -> (App, Vec<Foreign>) {
    let Gateway { control, settings, metrics, languages, extra } = gateway;
    let tasks = Tasks::until(&settings.closing);
    (App::new(Shared { control, settings, metrics, languages, tasks }), extra)
}

fn behind(app: &App, routes: Router, rules: Rules) -> Router {
    let state = (app.clone(), rules);
    routes
        .method_not_allowed_fallback(auth::no_method)
        .route_layer(middleware::from_fn_with_state(state, auth::authenticate))
}

fn finished(app: App, routes: Router) -> Router {
    at_the_edge(app, routes.fallback(auth::no_route))
}

fn at_the_edge(app: App, routes: Router) -> Router {
    routes.layer(middleware::from_fn_with_state(app, edge::edge))
}
