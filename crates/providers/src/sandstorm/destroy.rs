//! Ending sandboxes there, and seeing that they are gone.

use sandstorm_provider::{Error, Metered, Result};
use sandstorm_types::{ErrorKind, Phase, Retry, SandboxId};

use super::client::Far;
use super::error::of;
use super::view;
use crate::ending::Ending;

impl Far {
    /// Ends every sandbox there that carries this id of ours.
    pub(super) async fn destroy(&self, ours: &SandboxId) -> Result<()> {
        self.places.settled(ours).await;
        let known = self.places.get(ours);
        // Only one that we were told of is surely the only one.
        let all = match &known {
            Some(place) if !self.places.is_unsure(ours) => vec![place.theirs()],
            _ => self.find(ours).await?.into_iter().map(|theirs| theirs.id).collect(),
        };
        let ending = known.map(Ending::begin);
        for theirs in all {
            self.end(ours, theirs).await.map_err(|error| error.with("sandbox", ours))?;
        }
        if let Some(ending) = ending {
            ending.done();
        }
        self.places.forget(ours);
        Ok(())
    }

    /// Ends one sandbox of theirs, and notes what they counted for it. That it is gone is looked up: an answer that says so
    /// is not enough.
    pub(super) async fn end(&self, ours: &SandboxId, theirs: SandboxId) -> Result<()> {
        match self.client.delete_sandbox(theirs).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(of(error)),
        }
        match self.client.sandbox(theirs).await {
            Ok(left) if left.id == theirs && is_over(left.state) => {
                self.places.count(*ours, theirs, view::metered(&left));
                Ok(())
            }
            Ok(left) => {
                let message = "the server says that the sandbox is deleted, but it is still there";
                Err(Error::new(ErrorKind::Provider, message)
                    .with_retry(Retry::Here)
                    .with("state", left.state.name()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(of(error)),
        }
    }

    /// What they counted for everything that carried this id of ours.
    pub(super) async fn metered(&self, ours: &SandboxId) -> Result<Option<Vec<Metered>>> {
        self.places.settled(ours).await;
        if self.places.get(ours).is_some() || self.places.is_unsure(ours) {
            return Err(lives(ours));
        }
        let counted = match self.places.counted(ours) {
            Some(counted) => counted,
            // Somebody else ended it: they know.
            None => self.ask_counted(ours).await?,
        };
        // What took no time was never made.
        let told: Option<Vec<Metered>> = counted.into_iter().collect();
        Ok(told.map(|told| told.into_iter().filter(|metered| !metered.wall.is_zero()).collect()))
    }

    async fn ask_counted(&self, ours: &SandboxId) -> Result<Vec<Option<Metered>>> {
        let mut counted = Vec::new();
        for found in self.find_all(ours).await? {
            let theirs = self.client.sandbox(found.id).await.map_err(of)?;
            if theirs.id != found.id || !is_over(theirs.state) {
                return Err(lives(ours));
            }
            counted.push(view::metered(&theirs));
        }
        Ok(counted)
    }
}

fn is_over(phase: Phase) -> bool {
    matches!(phase, Phase::Terminated | Phase::Failed)
}

fn lives(ours: &SandboxId) -> Error {
    Error::new(ErrorKind::Conflict, "the sandbox has not ended yet").with("sandbox", ours)
}
