//! Which languages a server offers: found by looking, versions by asking inside a sandbox.

use std::sync::{Arc, Mutex, PoisonError};

use sandstorm_config::Loaded;
use sandstorm_gateway::LanguageView;
use sandstorm_provider::Provider;

use crate::languages::{self, Shown};

/// What is known so far; filled while the server runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Languages(Arc<Mutex<Vec<LanguageView>>>);

impl Languages {
    pub(super) fn views(&self) -> Vec<LanguageView> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, shown: Vec<Shown>) {
        let views = shown.into_iter().map(|one| LanguageView {
            name: one.name,
            version: one.version,
            available: one.available,
            install: one.install,
        });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = views.collect();
    }

    /// Finds the languages, then their versions. A version that is not to be had stays unknown.
    pub(super) async fn find(&self, loaded: &Loaded, provider: &dyn Provider) {
        let mut found = languages::detect(loaded);
        self.set(languages::describe(found.clone()));
        if let Err(error) = languages::ask_versions(provider, &mut found).await {
            tracing::warn!(%error, "versions of languages could not be asked for");
        }
        self.set(languages::describe(found));
    }
}
