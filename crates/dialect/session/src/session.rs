//! Sessions: sandboxes that are found by name.

use std::collections::BTreeMap;

use http::StatusCode;
use sandstorm_control::server::{Caller, Control, NewContext, NewSandbox, SandboxView};
use sandstorm_provider::{Error, Result};
use sandstorm_types::{
    ByteSize, ContextId, EnvMap, ErrorKind, Labels, LanguageName, LimitsPatch, NetworkPolicy, OnEnd, Phase,
    SandboxId,
};

use crate::program::{bounding_cell, cell_of, finished};
use crate::refusal::Refusal;
use crate::session_id::SessionId;
use crate::settings::SessionSettings;

/// What names of sessions are kept under.
const KIND: &str = "session";
/// Size of a session that nobody gave one.
pub(crate) const USUAL_SIZE: ByteSize = ByteSize::mib(100);
/// On sandboxes whose session keeps an interpreter.
const PERSISTENT: &str = "sandstorm.session/persistent";

/// Sessions of all tenants; every call names its caller.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    pub(crate) control: Control,
    pub(crate) settings: std::sync::Arc<SessionSettings>,
}

impl Sessions {
    /// Makes a session; one that lives already is refused.
    pub(crate) async fn create(
        &self,
        caller: &Caller,
        id: &SessionId,
        size: ByteSize,
        persistent: bool,
    ) -> Result<(), Refusal> {
        let new = self.wanted(size, persistent)?;
        let (view, created) = self.control.name_sandbox(caller, KIND, id.as_str(), new).await?;
        if !created {
            let detail = format!("there is a session {id} already");
            return Err(Refusal::sandbox(StatusCode::CONFLICT, "Session already exists", detail));
        }
        if persistent {
            // Now rather than at the first execution, so that two of them at once meet the same variables.
            if let Err(error) = self.make_interpreter(caller, view.id).await {
                // A session that cannot keep its promise is none.
                self.control.delete_sandbox(caller, view.id).await?;
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// The session's sandbox, made when there is none and woken when it sleeps.
    pub(crate) async fn open(&self, caller: &Caller, id: &SessionId) -> Result<SandboxView> {
        let new = self.wanted(USUAL_SIZE, false)?;
        let (view, _) = self.control.name_sandbox(caller, KIND, id.as_str(), new).await?;
        match view.phase {
            Phase::Paused => self.control.resume_sandbox(caller, view.id).await,
            _ => Ok(view),
        }
    }

    /// The session's sandbox, if there is one.
    pub(crate) async fn find(&self, caller: &Caller, id: &SessionId) -> Result<Option<SandboxView>> {
        self.control.named_sandbox(caller, KIND, id.as_str()).await
    }

    /// All sessions of the caller's tenant.
    pub(crate) async fn all(&self, caller: &Caller) -> Result<Vec<(String, SandboxView)>> {
        self.control.named_sandboxes(caller, KIND).await
    }

    /// Ends a session. Its name is free once its sandbox has ended; an unknown one is success.
    pub(crate) async fn delete(&self, caller: &Caller, id: &SessionId) -> Result<()> {
        match self.find(caller, id).await? {
            Some(view) => self.control.delete_sandbox(caller, view.id).await,
            None => Ok(()),
        }
    }

    /// The interpreter that a persistent session keeps; `None` for the others. One that ended is started anew: what it
    /// knew is lost, as its last execution said.
    pub(crate) async fn interpreter(&self, caller: &Caller, view: &SandboxView) -> Result<Option<ContextId>> {
        if view.spec.labels.get(PERSISTENT) != Some("true") {
            return Ok(None);
        }
        let python = python();
        let contexts = self.control.contexts(caller, view.id).await?;
        // Others may have been made beside it through the native API: the first one is the session's.
        let first = contexts
            .into_iter()
            .filter(|context| context.language == python)
            .min_by_key(|context| (context.created_at, context.id.to_string()));
        let id = match first {
            None => self.make_interpreter(caller, view.id).await?,
            Some(lost) if lost.state == "lost" => {
                self.control.restart_context(caller, view.id, lost.id).await?.id
            }
            Some(living) => living.id,
        };
        Ok(Some(id))
    }

    async fn make_interpreter(&self, caller: &Caller, sandbox: SandboxId) -> Result<ContextId> {
        let new = NewContext { language: python(), cwd: None, env: EnvMap::default() };
        let id = self.control.create_context(caller, sandbox, new).await?.id;
        self.bound(caller, sandbox, id).await?;
        Ok(id)
    }

    /// Limits the memory of an interpreter, so that a cell that wants too much fails and the session lives on.
    async fn bound(&self, caller: &Caller, sandbox: SandboxId, context: ContextId) -> Result<()> {
        let Some(code) = bounding_cell(&self.settings) else { return Ok(()) };
        let cell = cell_of(context, code, self.settings.timeout);
        match finished(&self.control, caller, sandbox, cell).await? {
            done if done.success => Ok(()),
            _ => Err(Error::new(ErrorKind::Internal, "the memory of an interpreter could not be limited")),
        }
    }

    fn wanted(&self, size: ByteSize, persistent: bool) -> Result<NewSandbox> {
        Ok(NewSandbox {
            // Processor time is a budget of a whole sandbox; in a session each execution has its own.
            limits: self.limits(size)?,
            env: surroundings(),
            network: self.network(),
            labels: if persistent { persistent_labels() } else { Labels::default() },
            lifetime: Some(self.settings.expiration),
            on_end: Some(OnEnd::Delete),
            // A session lives its time out, used or not.
            idle_timeout: Some(self.settings.expiration),
            contexts: true,
            ..NewSandbox::default()
        })
    }

    /// What every sandbox of this API may use. Its files live in memory and count there too.
    pub(crate) fn limits(&self, size: ByteSize) -> Result<LimitsPatch> {
        let memory = self.settings.memory.checked_add(size).ok_or_else(|| {
            Error::new(ErrorKind::InvalidRequest, "the size is more than can be counted").with("size", size)
        })?;
        Ok(LimitsPatch {
            wall: Some(self.settings.timeout),
            memory: Some(memory),
            processes: Some(self.settings.processes),
            disk: Some(size),
            ..LimitsPatch::default()
        })
    }

    pub(crate) fn network(&self) -> NetworkPolicy {
        if self.settings.network { NetworkPolicy::Open } else { NetworkPolicy::None }
    }
}

/// Variables of every program: `/workspace` is home and where modules are found.
pub(crate) fn surroundings() -> EnvMap {
    let pairs = [
        ("HOME", "/workspace"),
        ("PYTHONPATH", "/workspace"),
        // Lists of files show what the user's programs wrote.
        ("PYTHONDONTWRITEBYTECODE", "1"),
        // What was printed survives the end of a program that is killed.
        ("PYTHONUNBUFFERED", "1"),
        ("PYTHONUTF8", "1"),
    ];
    let mut env = EnvMap::new();
    for (name, value) in pairs {
        let name = name.parse().expect("letters only, and no name of ours");
        env.insert(name, value.to_owned()).expect("few and short");
    }
    env
}

fn python() -> LanguageName {
    "python".parse().expect("letters only")
}

fn persistent_labels() -> Labels {
    let label = (PERSISTENT.to_owned(), "true".to_owned());
    Labels::try_from(BTreeMap::from([label])).expect("a short key of allowed letters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_words_are_accepted() {
        assert_eq!(surroundings().get("HOME"), Some("/workspace"));
        assert_eq!(python().as_str(), "python");
        assert_eq!(persistent_labels().get(PERSISTENT), Some("true"));
    }
}
