//! What every handler has at hand.

use sandstorm_provider::Tasks;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use sandstorm_control::server::Control;

use crate::settings::GatewaySettings;
use crate::wire::LanguageView;

/// Shared by all handlers; cloning is cheap.
#[derive(Clone)]
pub(crate) struct App(Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) control: Control,
    pub(crate) settings: GatewaySettings,
    pub(crate) metrics: Box<dyn Fn() -> String + Send + Sync>,
    pub(crate) languages: Box<dyn Fn() -> Vec<LanguageView> + Send + Sync>,
    pub(crate) tasks: Tasks,
}

impl App {
    pub(crate) fn new(shared: Shared) -> Self {
        Self(Arc::new(shared))
    }
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("settings", &self.settings).finish_non_exhaustive()
    }
}
