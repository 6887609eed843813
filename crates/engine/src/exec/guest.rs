//! A guest interpreter for a program: one that waits, or one that is put into the sandbox now.

use std::fmt::Display;
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

/// Whether a program is a context of a sandbox that can be forked. Where zygotes are promised it runs in a guest only.
pub(super) fn is_to_be_forkable(living: &Living, program: &Program) -> bool {
    program.side_channel && living.journals.is_some()
}

/// The refusal of a context that could not be forked.
pub(super) fn not_forkable(living: &Living, why: &dyn Display) -> Error {
    let what = "an interpreter that can be forked is not to be had now";
    Error::new(ErrorKind::Capacity, format!("{what}: {why}"))
        .with("sandbox", living.id)
        .with_retry_after(ASK_AGAIN)
}

/// Finds a guest for a program that one can run. Most programs begin without one when that is quicker. A context does not:
/// only in a guest is it what its sandbox promises, one that can be forked.
pub(super) async fn for_program(
    living: &Arc<Living>,
    program: &Program,
    tasks: &Tasks,
) -> Result<Option<(WaitingGuest, Way)>> {
    let forkable = is_to_be_forkable(living, program);
    let joinable = living.joinable();
    if joinable.is_none() && forkable && living.owner.is_some() && is_promised(living, program) {
        return Err(not_forkable(living, &"warm interpreters of this tenant failed lately"));
    }
    let fitting = joinable.filter(|joinable| warm::fits(program, &joinable.interpreter));
    let Some(joinable) = fitting else { return Ok(None) };
    if let Some(guest) = living.take_guest() {
        return Ok(Some((guest, Way::Pooled)));
    }
    let joined = match forkable {
        false => join(living, joinable, program.side_channel, tasks).await.ok(),
        true => match join(living, joinable, true, tasks).await {
            Ok(guest) => Some(guest),
            Err(why) if is_promised(living, program) => return Err(not_forkable(living, &why)),
            // The server does not say any more that it can fork contexts.
            Err(_) => None,
        },
    };
    Ok(joined.map(|guest| (guest, Way::Joined)))
}

/// Whether the server says that it can fork a context that runs this program.
fn is_promised(living: &Living, program: &Program) -> bool {
    living.zygotes.promised().iter().any(|zygote| warm::fits(program, &zygote.interpreter))
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
    let (zygote, owner) = (living.zygotes.in_place_of(&joinable.zygote), &joinable.owner);
    let joined = living.launcher.join(&living.jail, zygote, owner, None).await;
    if let Err(error @ LauncherError::Refused(_)) = &joined {
        living.note_refused_guest();
        if error.is_failure_of_the_zygote() {
            living.zygotes.failed(zygote, owner, &error.to_string());
        }
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
    living.zygotes.worked(zygote, owner);
    // From here on nobody else takes it.
    living.agent.take_guest(guest.number);
    Ok(guest)
}

#[cfg(test)]
mod tests {
    use sandstorm_jail::launcher::{RefusalKind, ZygoteConfig};

    use super::*;
    use crate::living::tests::World;
    use crate::pool::Zygotes;

    const PYTHON: &str = "/usr/bin/python3";

    fn zygotes() -> Arc<Zygotes> {
        let python = ZygoteConfig {
            name: "python".to_owned(),
            interpreter: PYTHON.into(),
            preload: Vec::new(),
            known: Vec::new(),
        };
        Arc::new(Zygotes::new(vec![python]))
    }

    /// A sandbox whose execs are written down.
    fn sandbox(zygotes: &Arc<Zygotes>) -> World {
        let mut world = World::with(Arc::clone(zygotes), Some("me"));
        Arc::get_mut(&mut world.living).unwrap().journals = Some("/nowhere".into());
        world
    }

    fn context() -> Program {
        let env = [
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("PYTHONUNBUFFERED", "1"),
            ("PYTHONUTF8", "1"),
            ("LANG", "C.UTF-8"),
        ];
        Program {
            argv: vec![PYTHON.to_owned(), "kernel.py".to_owned()],
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            side_channel: true,
            ..Program::default()
        }
    }

    async fn begin(world: &World, program: &Program) -> Result<Option<(WaitingGuest, Way)>> {
        for_program(&world.living, program, &Tasks::default()).await
    }

    async fn is_refused(world: &World) {
        let refused = begin(world, &context()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Capacity, "{refused}");
        assert!(refused.retry_after().is_some(), "{refused}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_jail_refuses_is_no_failure_of_the_zygote() {
        let zygotes = zygotes();
        let world = sandbox(&zygotes);
        for kind in [RefusalKind::Gone, RefusalKind::Forbidden, RefusalKind::Capacity] {
            world.refuse(kind);
            for _ in 0..4 {
                is_refused(&world).await;
            }
        }
        assert!(zygotes.for_anything("me").is_some());
        assert_eq!(zygotes.promised().len(), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn where_forks_are_promised_no_context_begins_without_a_zygote() {
        let zygotes = zygotes();
        zygotes.worked("python", "you");
        let world = sandbox(&zygotes);
        for _ in 0..5 {
            is_refused(&world).await;
        }
        assert!(zygotes.for_anything("me").is_none() && zygotes.for_anything("you").is_some());
        let made_meanwhile = sandbox(&zygotes);
        assert_eq!(made_meanwhile.living.joinable(), None);
        is_refused(&made_meanwhile).await;
        let program = Program { side_channel: false, ..context() };
        assert!(begin(&made_meanwhile, &program).await.unwrap().is_none(), "programs begin cold");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn where_no_zygote_ever_comes_up_contexts_begin_without_one() {
        let zygotes = zygotes();
        let world = sandbox(&zygotes);
        is_refused(&world).await;
        is_refused(&world).await;
        assert!(begin(&world, &context()).await.unwrap().is_none());
        assert!(zygotes.promised().is_empty(), "the server does not promise forks any more");
        assert!(begin(&sandbox(&zygotes), &context()).await.unwrap().is_none());
    }
}
