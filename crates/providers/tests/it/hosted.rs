//! What every hosted provider does on a bad day, whatever its service speaks.

mod answers;
mod outages;
pub(crate) mod streams;

use std::net::SocketAddr;

use sandstorm_client::Sandbox;
use sandstorm_provider::{Provider, Result};
use sandstorm_providers::e2b::E2bProvider;
use sandstorm_providers::sandstorm::SandstormProvider;

use crate::proxy::Proxy;
use crate::world::World;

/// A service, the adapter of it, and how it writes what is tried here.
pub(crate) trait Hosted {
    type Adapter: Provider;

    /// The answer to a creation without a good id, and one without our marks.
    const MALFORMED: &'static str;
    const UNMARKED: &'static str;
    /// A list of what is no sandbox, the beginning of a list, and a page with another one behind it: headers and body.
    const NONSENSE: &'static str;
    const BEGINNING: &'static [u8];
    const AGAIN: (&'static str, &'static str);

    async fn world() -> World;
    async fn connect(world: &World, address: SocketAddr) -> Result<Self::Adapter>;
    fn creates(line: &str) -> bool;
    fn starts(line: &str) -> bool;
    /// The answer to a creation that shows this sandbox.
    fn made(sandbox: &Sandbox) -> String;
}

pub(crate) async fn behind_proxy<H: Hosted>() -> (World, Proxy, H::Adapter) {
    let world = H::world().await;
    let proxy = Proxy::to(world.address).await;
    let adapter = H::connect(&world, proxy.address).await.unwrap();
    (world, proxy, adapter)
}

/// Makes a test for each service from each function that takes one.
macro_rules! for_each_service {
    ($($name:ident),* $(,)?) => {
        mod sandstorm {
            $(#[tokio::test]
            async fn $name() {
                super::$name::<crate::hosted::Sandstorm>().await;
            })*
        }

        mod e2b {
            $(#[tokio::test]
            async fn $name() {
                super::$name::<crate::hosted::E2b>().await;
            })*
        }
    };
}

use for_each_service;

/// Another server of ours.
pub(crate) struct Sandstorm;

impl Hosted for Sandstorm {
    type Adapter = SandstormProvider;

    const MALFORMED: &'static str = r#"{"id":"sbx_short"}"#;
    const UNMARKED: &'static str = r#"{"id":"sbx_bbbbbbbbbbbbbbbbbbbbbbbbba","state":"ready","labels":{},"limits":{},
        "created_at":"2026-11-15T12:00:00.000Z","template":"host","network":"none"}"#;
    const NONSENSE: &'static str = r#"{"items":[{"id":1}]}"#;
    const BEGINNING: &'static [u8] = b"{\"items\":[\"";
    const AGAIN: (&'static str, &'static str) = ("", r#"{"items":[],"next_cursor":"again"}"#);

    async fn world() -> World {
        World::new().await
    }

    async fn connect(world: &World, address: SocketAddr) -> Result<SandstormProvider> {
        SandstormProvider::connect(world.config(address)).await
    }

    fn creates(line: &str) -> bool {
        line.starts_with("POST /v1/sandboxes ")
    }

    fn starts(line: &str) -> bool {
        line.starts_with("POST ") && line.contains("/exec ")
    }

    fn made(sandbox: &Sandbox) -> String {
        serde_json::to_string(sandbox).unwrap()
    }
}

/// Whoever speaks E2B's API.
pub(crate) struct E2b;

impl Hosted for E2b {
    type Adapter = E2bProvider;

    const MALFORMED: &'static str = r#"{"sandboxID":"../../x"}"#;
    const UNMARKED: &'static str = r#"{"sandboxID":"aaaaaaaaaaaaaaaaaaaaaaaaaa","clientID":"x","envdVersion":"0.5.14","templateID":"t"}"#;
    const NONSENSE: &'static str = r#"[{"sandboxID":1}]"#;
    const BEGINNING: &'static [u8] = b"[\"";
    const AGAIN: (&'static str, &'static str) = ("x-next-token: again\r\n", "[]");

    async fn world() -> World {
        crate::e2b::world::world().await
    }

    async fn connect(world: &World, address: SocketAddr) -> Result<E2bProvider> {
        E2bProvider::connect(crate::e2b::world::config(world, address)).await
    }

    fn creates(line: &str) -> bool {
        crate::e2b::world::creates(line)
    }

    fn starts(line: &str) -> bool {
        crate::e2b::world::starts(line)
    }

    fn made(sandbox: &Sandbox) -> String {
        format!(
            r#"{{"sandboxID":"{}","clientID":"x","envdVersion":"0.5.14","templateID":"t","envdAccessToken":"t"}}"#,
            sandbox.id.bare()
        )
    }
}
