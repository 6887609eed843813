//! What all handlers have at hand.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use futures_util::future::BoxFuture;
use http::HeaderValue;
use sandstorm_control::server::{Caller, Control};
use sandstorm_provider::Tasks;
use sandstorm_types::SandboxId;

use crate::filesystem::watchers::Watchers;
use crate::interpreter::defaults::Defaults;
use crate::process::known::Processes;
use crate::settings::E2bSettings;

/// Carries a request to a port of a sandbox and gives the answer; `None` when nothing listens there.
pub type Forward = Arc<dyn Fn(PortRequest) -> BoxFuture<'static, Option<Response>> + Send + Sync>;

/// A request to a port of a sandbox, from somebody who may connect to it.
#[derive(Debug)]
pub struct PortRequest {
    pub caller: Caller,
    pub sandbox: SandboxId,
    pub port: u16,
    /// Whether the client sees the port under a host of its own, and not under that of the API.
    pub own_host: bool,
    /// What the program is to see as the host, where its owner chose that.
    pub host: Option<HeaderValue>,
    pub request: Request,
}

/// The dialect; cloning gives another hand on the same one.
#[derive(Clone)]
pub struct Dialect(Arc<Shared>);

/// What is behind a [`Dialect`].
#[doc(hidden)]
pub struct Shared {
    pub(crate) control: Control,
    pub(crate) settings: E2bSettings,
    pub(crate) forward: Forward,
    pub(crate) processes: Processes,
    pub(crate) watchers: Watchers,
    pub(crate) defaults: Defaults,
    pub(crate) tasks: Tasks,
}

impl Dialect {
    pub fn new(control: Control, settings: E2bSettings, forward: Forward) -> Self {
        let tasks = Tasks::until(&settings.closing);
        Self(Arc::new(Shared {
            control,
            settings,
            forward,
            processes: Processes::default(),
            watchers: Watchers::default(),
            defaults: Defaults::default(),
            tasks,
        }))
    }

    /// Waits for what it still does in the background, once its settings' token is cancelled.
    pub async fn finished(&self) {
        self.0.tasks.stop().await;
    }
}

impl Deref for Dialect {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl fmt::Debug for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialect").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
