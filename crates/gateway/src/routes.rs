//! The routes. A handler extracts, calls `control`, maps; there are no rules here.

pub(crate) mod admin;
pub(crate) mod archives;
pub(crate) mod content;
pub(crate) mod contexts;
pub(crate) mod documents;
pub(crate) mod events;
pub(crate) mod execs;
pub(crate) mod files;
pub(crate) mod forks;
pub(crate) mod forwarding;
pub(crate) mod info;
pub(crate) mod install;
pub(crate) mod original;
pub(crate) mod ports;
pub(crate) mod pty;
pub(crate) mod routing;
mod runs;
pub(crate) mod sandboxes;
pub(crate) mod snapshots;
pub(crate) mod tunnels;
pub(crate) mod usage;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;

/// The routes of the public listeners that the document describes.
pub(crate) fn public() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(info::healthz))
        .routes(routes!(info::readyz))
        .routes(routes!(info::metrics))
        .routes(routes!(info::version))
        .routes(routes!(info::languages))
        .routes(routes!(info::limits))
        .routes(routes!(usage::of_tenant))
        .routes(routes!(info::me))
        .routes(routes!(runs::start, runs::list))
        .routes(routes!(runs::get))
        .routes(routes!(runs::cancel))
        .routes(routes!(original::run))
        .routes(routes!(original::snapshot))
        .routes(routes!(original::restore))
        .routes(routes!(routing::explain))
        .routes(routes!(routing::providers))
        .routes(routes!(events::of_tenant))
        .routes(routes!(sandboxes::create, sandboxes::list))
        .routes(routes!(sandboxes::get, sandboxes::delete))
        .routes(routes!(sandboxes::extend))
        .routes(routes!(sandboxes::pause))
        .routes(routes!(sandboxes::resume))
        .routes(routes!(forks::fork))
        .routes(routes!(install::install))
        .routes(routes!(snapshots::create))
        .routes(routes!(snapshots::list))
        .routes(routes!(snapshots::get, snapshots::delete))
        .routes(routes!(sandboxes::network))
        .routes(routes!(events::of_sandbox))
        .routes(routes!(sandboxes::metrics))
        .routes(routes!(sandboxes::usage))
        .routes(routes!(execs::start))
        .routes(routes!(execs::list))
        .routes(routes!(execs::get, execs::kill))
        .routes(routes!(execs::events))
        .routes(routes!(execs::stdin))
        .routes(routes!(execs::signal))
        .routes(routes!(contexts::create, contexts::list))
        .routes(routes!(contexts::get, contexts::delete))
        .routes(routes!(contexts::execute))
        .routes(routes!(contexts::interrupt))
        .routes(routes!(contexts::restart))
        .routes(routes!(pty::open))
        .routes(routes!(ports::root))
        .routes(routes!(ports::slash))
        .routes(routes!(ports::below))
        .routes(routes!(tunnels::open))
        .routes(routes!(content::read, content::head, content::write, content::remove))
        .routes(routes!(files::list))
        .routes(routes!(files::stat))
        .routes(routes!(files::exists))
        .routes(routes!(files::search))
        .routes(routes!(files::watch))
        .routes(routes!(files::make_dir))
        .routes(routes!(files::rename))
        .routes(routes!(files::set_mode))
        .routes(routes!(archives::pack, archives::unpack))
}

/// The routes of the admin listener.
pub(crate) fn operator() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(info::healthz))
        .routes(routes!(info::readyz))
        .routes(routes!(info::metrics))
        .routes(routes!(admin::create_key, admin::list_keys))
        .routes(routes!(admin::revoke_key))
        .routes(routes!(admin::rotate_key))
        .routes(routes!(admin::create_tenant, admin::list_tenants))
        .routes(routes!(admin::audit))
        .routes(routes!(usage::of_all))
}
