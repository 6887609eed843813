//! A server that speaks E2B's API, and adapters of it.

use std::net::SocketAddr;
use std::sync::Arc;

use sandstorm_control::server::Control;
use sandstorm_dialect_e2b::{Dialect, E2bSettings, Forward};
use sandstorm_gateway::{Foreign, Front};
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_providers::e2b::{ApiKey, Config, E2bProvider};

use crate::hosted::{self, E2b};
use crate::proxy::Proxy;
use crate::world::World;

pub(crate) async fn world() -> World {
    let memory = Arc::new(MemoryProvider::default());
    World::serving(Arc::clone(&memory), memory, World::settings(), foreign).await
}

pub(crate) fn foreign(control: &Control) -> Vec<Foreign> {
    let settings = E2bSettings { network: false, ..E2bSettings::default() };
    let forward: Forward = Arc::new(|_| Box::pin(std::future::ready(None)));
    let dialect = Dialect::new(control.clone(), settings, forward);
    let claiming = dialect.clone();
    vec![Foreign {
        routes: dialect.routes(),
        open: dialect.open(),
        front: Some(Front::new(move |parts| claiming.claims(parts), dialect.data_plane())),
        refusal: Some(sandstorm_dialect_e2b::refusal),
        ..Foreign::default()
    }]
}

/// How to reach the server by this address.
pub(crate) fn config(world: &World, address: SocketAddr) -> Config {
    let mut config = Config::new("e2b", ApiKey::new(world.key.clone()), "here".parse().unwrap());
    config.api_url = Some(format!("http://{address}"));
    config.sandbox_url = config.api_url.clone();
    config
}

pub(crate) async fn adapter(world: &World) -> E2bProvider {
    E2bProvider::connect(config(world, world.address)).await.unwrap()
}

pub(crate) async fn behind_proxy() -> (World, Proxy, E2bProvider) {
    hosted::behind_proxy::<E2b>().await
}

pub(crate) fn creates(line: &str) -> bool {
    line.starts_with("POST /v2/sandboxes ")
}

pub(crate) fn starts(line: &str) -> bool {
    line.contains("process.Process/Start ")
}
