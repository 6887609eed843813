//! What work in sandboxes shows of the members that hold them.
//!
//! A member can make sandboxes and then lose them, go silent, or make no sense. That counts against it as a failed creation
//! does. How a program ends by itself says nothing about the member but that it did its part.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use sandstorm_provider::{EndCause, Error, Exec, ExecEvent, OpContext, Result};
use sandstorm_router::{ArmKey, ErrorFamily, Observed, Router};
use sandstorm_types::{ErrorKind, SandboxId};

use crate::fleet::{Clock, Fleet};
use crate::homes::{Fate, Place};

/// How long a member has to say whether it still has a sandbox.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sees what becomes of one program.
struct Witness {
    router: Arc<Mutex<Router>>,
    clock: Clock,
    fate: Arc<Fate>,
    key: ArmKey,
    began: Instant,
    done: bool,
}

impl Witness {
    fn sees(&mut self, event: Option<&Result<ExecEvent>>) {
        let observed = match event {
            Some(Ok(event)) if !matches!(event, ExecEvent::Exited(_)) => return,
            Some(Ok(ExecEvent::Exited(end))) if end.cause != EndCause::Sandbox => {
                Observed::Ready { after: self.began.elapsed() }
            }
            _ if self.fate.is_ending() => Observed::Nothing,
            Some(Err(error)) if ErrorFamily::of_work(error.kind()).is_none() => Observed::Nothing,
            _ if self.done || !self.fate.is_first_loss() => Observed::Nothing,
            _ => lost(self.began),
        };
        if !std::mem::replace(&mut self.done, true) {
            let now = self.clock.now();
            self.router
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .work_observed(&self.key, observed, now);
        }
    }
}

/// What is said of when to come again is said in the sandbox, and is for that one alone.
fn lost(began: Instant) -> Observed {
    Observed::Failed { family: ErrorFamily::Lost, after: Some(began.elapsed()), retry_after: None }
}

impl Fleet {
    /// The program with somebody who sees what becomes of it.
    pub(crate) fn witnessed(&self, place: Place, sandbox: SandboxId, began: Instant, exec: Exec) -> Exec {
        let witness = Witness {
            router: Arc::clone(&self.router),
            clock: self.clock,
            fate: self.homes.fate(&sandbox),
            key: self.key_of(place),
            began,
            done: false,
        };
        let Exec { events, .. } = exec;
        let events = stream::unfold((events, witness), |(mut events, mut witness)| async move {
            let event = events.next().await;
            witness.sees(event.as_ref());
            event.map(|event| (event, (events, witness)))
        });
        Exec { events: events.boxed(), ..exec }
    }

    /// Something that was asked of a sandbox failed: is that its member's fault? Whoever gave up says nothing about it.
    pub(crate) async fn blame(
        &self,
        cx: &OpContext,
        place: Place,
        id: &SandboxId,
        began: Instant,
        error: &Error,
    ) {
        let is_lost = match ErrorFamily::of_work(error.kind()) {
            Some(_) => true,
            None => error.kind() == ErrorKind::NotFound && self.is_lost(cx, place, id).await,
        };
        let fate = self.homes.fate(id);
        // One sandbox is lost once, however often it is asked for something.
        if !is_lost || cx.check("exec").is_err() || fate.is_ending() || !fate.is_first_loss() {
            return;
        }
        self.router().work_observed(&self.key_of(place), lost(began), self.now());
    }

    /// Whether a member does not have a sandbox any more that it should have: something else in it may have been missed.
    async fn is_lost(&self, cx: &OpContext, place: Place, id: &SandboxId) -> bool {
        let cx = cx.child().with_timeout(PATIENCE);
        let seen = self.members[place].provider.get(&cx, id).await;
        let gone = seen.is_err_and(|error| error.kind() == ErrorKind::NotFound);
        gone && self.homes.of(id) == Some(place)
    }

    /// What is learned of a member is learned for all work alike.
    pub(crate) fn key_of(&self, place: Place) -> ArmKey {
        let info = self.members[place].provider.info();
        let class = self.settings.usual.class.clone();
        ArmKey { provider: info.name.clone(), region: info.region.clone(), class }
    }
}
