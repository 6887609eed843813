//! The sandbox of a client that has a session or a pipe of its own: made when it is first needed, kept while the client is
//! there, gone with it. Calls that name no handle use it.

use std::collections::BTreeMap;
use std::sync::Arc;

use sandstorm_control::server::{Caller, NewContext, NewSandbox};
use sandstorm_provider::{Error, Result};
use sandstorm_types::{ContextId, EnvMap, ErrorKind, Labels, LanguageName, OnEnd, Phase, SandboxId};
use tokio::sync::Mutex;

use crate::server::Shared;

/// On sandboxes that belong to a client.
const LABEL: &str = "sandstorm.mcp/home";

#[derive(Debug)]
pub(crate) struct Home {
    shared: Arc<Shared>,
    kept: Mutex<Option<Kept>>,
}

#[derive(Debug, Clone)]
struct Kept {
    /// Whose it is. Another caller in the same session is refused.
    owner: Caller,
    sandbox: SandboxId,
    contexts: BTreeMap<LanguageName, ContextId>,
}

/// What of a home a call uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    pub(crate) sandbox: SandboxId,
    pub(crate) context: Option<ContextId>,
    /// What was there before is gone: the model has to know.
    pub(crate) anew: bool,
}

impl Home {
    pub(crate) fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self { shared, kept: Mutex::new(None) })
    }

    /// The sandbox, and in it the context of a language if that is wanted. `requirements` count where it is made now.
    pub(crate) async fn open(
        &self,
        caller: &Caller,
        wanted: NewSandbox,
        context: Option<&LanguageName>,
    ) -> Result<Used> {
        let mut kept = self.kept.lock().await;
        let was_there = kept.is_some();
        let living = match kept.take() {
            Some(found) => self.look(caller, found).await?,
            None => None,
        };
        let anew = was_there && living.is_none();
        if living.is_some() && !wanted.requirements.is_empty() {
            *kept = living;
            return Err(Error::new(
                ErrorKind::Conflict,
                "packages come with a new sandbox: use keep=no for this call, or sandbox_create with packages",
            ));
        }
        let mut home = match living {
            Some(home) => home,
            None => self.make(caller, wanted).await?,
        };
        let context = match context {
            Some(language) => Some(self.context(caller, &mut home, language).await),
            None => None,
        };
        let sandbox = home.sandbox;
        // Also when its interpreter could not be had: the sandbox is there and has to go with the client.
        *kept = Some(home);
        Ok(Used { sandbox, context: context.transpose()?, anew })
    }

    async fn make(&self, caller: &Caller, wanted: NewSandbox) -> Result<Kept> {
        let settings = &self.shared.settings;
        let label = (LABEL.to_owned(), "true".to_owned());
        let new = NewSandbox {
            labels: Labels::try_from(BTreeMap::from([label])).expect("a short key of allowed letters"),
            lifetime: Some(settings.home_lifetime),
            idle_timeout: Some(settings.home_idle),
            on_end: Some(OnEnd::Delete),
            contexts: true,
            ..wanted
        };
        let view = self.shared.control.create_sandbox(caller, new).await?;
        Ok(Kept { owner: caller.clone(), sandbox: view.id, contexts: BTreeMap::new() })
    }

    /// The home, if it can still be used.
    async fn look(&self, caller: &Caller, home: Kept) -> Result<Option<Kept>> {
        if home.owner.tenant() != caller.tenant() {
            return Err(Error::new(ErrorKind::NotFound, "there is no such session"));
        }
        let control = &self.shared.control;
        match control.sandbox(caller, home.sandbox).await {
            Ok(view) => match view.phase {
                Phase::Terminating | Phase::Terminated | Phase::Failed => Ok(None),
                Phase::Paused => {
                    control.resume_sandbox(caller, home.sandbox).await?;
                    Ok(Some(home))
                }
                _ => Ok(Some(home)),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn context(&self, caller: &Caller, home: &mut Kept, language: &LanguageName) -> Result<ContextId> {
        if let Some(known) = home.contexts.get(language) {
            return Ok(*known);
        }
        let new = NewContext { language: language.clone(), cwd: None, env: EnvMap::default() };
        let id = self.shared.control.create_context(caller, home.sandbox, new).await?.id;
        home.contexts.insert(language.clone(), id);
        Ok(id)
    }

    /// The client goes, and everything of it.
    pub(crate) async fn leave(&self) {
        let Some(Kept { owner, sandbox, .. }) = self.kept.lock().await.take() else { return };
        if let Err(error) = self.shared.control.delete_sandbox(&owner, sandbox).await {
            tracing::warn!(%sandbox, %error, "the sandbox of a client that left could not be ended; its lifetime does it");
        }
    }
}

/// The last hand on it: a session ended, or its server.
impl Drop for Home {
    fn drop(&mut self) {
        let Some(Kept { owner, sandbox, .. }) = self.kept.get_mut().take() else { return };
        // Without a runtime the server is gone, and the sandbox's lifetime does it.
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.shared.background.finish("end the sandbox of a client", async move {
            if let Err(error) = shared.control.delete_sandbox(&owner, sandbox).await {
                tracing::warn!(%sandbox, %error, "the sandbox of a client that left could not be ended; its lifetime does it");
            }
        });
    }
}
