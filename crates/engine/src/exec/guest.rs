//! A guest interpreter for a program: one that waits, or one that is put into the sandbox now.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_agent::protocol::Program;
use sandstorm_agent_client::AgentError;
use sandstorm_provider::{Error, Result, Tasks};
use sandstorm_types::ErrorKind;
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

/// How long a context waits for one whatever its zygote does: it lives long, and only a guest can be forked. The launcher
/// gives a zygote a minute to become warm, and says so when that is over.
const CONTEXT_PATIENCE: Duration = Duration::from_secs(90);

/// How long a guest that is in its jail may take to get ready there.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// When to ask again for a guest that was not to be had.
const ASK_AGAIN: Duration = Duration::from_secs(5);

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

/// Finds a guest for a program that one can run. Most programs begin without one when that is quicker. A context does not:
/// only in a guest is it what its sandbox promises, one that can be forked.
pub(super) async fn for_program(
    living: &Arc<Living>,
    program: &Program,
    tasks: &Tasks,
) -> Result<Option<(WaitingGuest, Way)>> {
    let fitting = living.joinable().filter(|joinable| warm::fits(program, &joinable.interpreter));
    let Some(joinable) = fitting else { return Ok(None) };
    if let Some(guest) = living.take_guest() {
        return Ok(Some((guest, Way::Pooled)));
    }
    let joined = match program.side_channel && living.journals.is_some() {
        false => join(living, joinable, program.side_channel, tasks).await.ok(),
        true => match join(living, joinable, true, tasks).await {
            Ok(guest) => Some(guest),
            // Where nobody gets one any more, nothing of the kind is promised.
            Err(_) if !living.zygotes.works(&joinable.zygote) => None,
            Err(why) => {
                let what = "an interpreter that can be forked is not to be had now";
                return Err(Error::new(ErrorKind::Capacity, format!("{what}: {why}"))
                    .with("sandbox", living.id)
                    .with_retry_after(ASK_AGAIN));
            }
        },
    };
    Ok(joined.map(|guest| (guest, Way::Joined)))
}

/// Has a guest put into the sandbox. One that comes too late, or for nobody, is dismissed.
async fn join(
    living: &Arc<Living>,
    joinable: &Joinable,
    is_context: bool,
    tasks: &Tasks,
) -> std::result::Result<WaitingGuest, NoGuest> {
    if !is_context && !living.may_ask_for_guest() {
        return Err(NoGuest::Late);
    }
    let patience = match living.launcher.has_joined_lately(&joinable.zygote, &joinable.owner) {
        _ if is_context => CONTEXT_PATIENCE,
        true => PATIENCE,
        false => NO_PATIENCE,
    };
    let (ready, waiting) = oneshot::channel();
    let living = Arc::clone(living);
    tasks.start("guest", async move {
        let put = put(&living).await;
        if let Err(error) = &put {
            tracing::warn!(sandbox = %living.id, %error, "there is no guest interpreter");
        }
        if let Err(Ok(guest)) = ready.send(put) {
            living.agent.dismiss(guest.number);
        }
    });
    match tokio::time::timeout(patience, waiting).await {
        Ok(Ok(put)) => put,
        Ok(Err(_)) | Err(_) => Err(NoGuest::Late),
    }
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
    #[error("it does not come in time")]
    Late,
}

async fn put(living: &Living) -> std::result::Result<WaitingGuest, NoGuest> {
    let joinable = living.joinable().ok_or(NoGuest::NotJoinable)?;
    let joined = living.launcher.join(&living.jail, &joinable.zygote, &joinable.owner, None).await;
    if let Err(LauncherError::Refused(refusal)) = &joined {
        living.note_refused_guest();
        living.zygotes.failed(&joinable.zygote, &refusal.message);
    }
    let guest = joined?;
    let ready = tokio::time::timeout(READY_WITHIN, living.agent.guest_ready(guest.number)).await;
    match ready {
        Ok(ready) => ready?,
        Err(_) => {
            living.agent.dismiss(guest.number);
            living.note_refused_guest();
            return Err(NoGuest::Stuck);
        }
    };
    living.zygotes.worked(&joinable.zygote, &joinable.owner);
    // From here on nobody else takes it.
    living.agent.take_guest(guest.number);
    Ok(guest)
}
