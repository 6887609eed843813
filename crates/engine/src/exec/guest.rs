//! A guest interpreter for a program: one that waits, or one that is put into the sandbox now.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_agent::protocol::Program;
use sandstorm_agent_client::AgentError;
use sandstorm_provider::Tasks;
use tokio::sync::oneshot;

use crate::guest::WaitingGuest;
use crate::launcher::LauncherError;
use crate::living::{Joinable, Living};
use crate::warm;

/// How long a guest is waited for where its zygote is known to be warm. Then it is quicker than a new process even where
/// many want one.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long where the zygote may have to be started first: by then a new process has begun.
const NO_PATIENCE: Duration = Duration::from_millis(10);

/// How long a context waits for one whatever its zygote does: it lives long, and only a guest can be forked.
const CONTEXT_PATIENCE: Duration = Duration::from_secs(10);

/// How a program begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// In a guest that waited for it.
    Pooled,
    /// In a guest that was put into the sandbox for it.
    Joined,
    /// In a process of its own.
    Cold,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pooled => "pooled",
            Self::Joined => "joined",
            Self::Cold => "cold",
        }
    }
}

/// Finds a guest for a program that one can run.
pub(super) async fn for_program(
    living: &Arc<Living>,
    program: &Program,
    tasks: &Tasks,
) -> Option<(WaitingGuest, Way)> {
    let joinable = living.joinable.as_ref().filter(|joinable| warm::fits(program, &joinable.interpreter))?;
    if let Some(guest) = living.take_guest() {
        return Some((guest, Way::Pooled));
    }
    join(living, joinable, program.side_channel, tasks).await.map(|guest| (guest, Way::Joined))
}

/// Has a guest put into the sandbox. One that comes too late, or for nobody, is dismissed.
async fn join(
    living: &Arc<Living>,
    joinable: &Joinable,
    is_context: bool,
    tasks: &Tasks,
) -> Option<WaitingGuest> {
    if !living.may_ask_for_guest() {
        return None;
    }
    let patience = match living.launcher.has_joined_lately(&joinable.zygote, &joinable.owner) {
        _ if is_context => CONTEXT_PATIENCE,
        true => PATIENCE,
        false => NO_PATIENCE,
    };
    let (ready, waiting) = oneshot::channel();
    let living = Arc::clone(living);
    tasks.start("guest", async move {
        match put(&living).await {
            Ok(guest) => {
                if let Err(guest) = ready.send(guest) {
                    living.agent.dismiss(guest.number);
                }
            }
            Err(error) => tracing::warn!(sandbox = %living.id, %error, "there is no guest interpreter"),
        }
    });
    tokio::time::timeout(patience, waiting).await.ok()?.ok()
}

/// Why there is no guest.
#[derive(Debug, thiserror::Error)]
enum NoGuest {
    #[error("{0}")]
    Launcher(#[from] LauncherError),
    #[error("{0}")]
    Agent(#[from] AgentError),
    #[error("the sandbox has no zygote")]
    NotJoinable,
    #[error("it does not get ready; somebody in the sandbox may keep it from that")]
    Stuck,
}

async fn put(living: &Living) -> Result<WaitingGuest, NoGuest> {
    let joinable = living.joinable.as_ref().ok_or(NoGuest::NotJoinable)?;
    let joined = living.launcher.join(&living.jail, &joinable.zygote, &joinable.owner, None).await;
    if let Err(LauncherError::Refused(_)) = &joined {
        living.note_refused_guest();
    }
    let guest = joined?;
    let ready = tokio::time::timeout(CONTEXT_PATIENCE, living.agent.guest_ready(guest.number)).await;
    match ready {
        Ok(ready) => ready?,
        Err(_) => {
            living.agent.dismiss(guest.number);
            living.note_refused_guest();
            return Err(NoGuest::Stuck);
        }
    };
    // From here on nobody else takes it.
    living.agent.take_guest(guest.number);
    Ok(guest)
}
