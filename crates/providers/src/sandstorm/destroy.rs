//! Ending sandboxes there, and seeing that they are gone.

use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, Phase, Retry, SandboxId};

use super::client::Far;
use super::error::of;
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
            self.end(theirs).await.map_err(|error| error.with("sandbox", ours))?;
        }
        if let Some(ending) = ending {
            ending.done();
        }
        self.places.forget(ours);
        Ok(())
    }

    /// Ends one sandbox of theirs. That it is gone is looked up: an answer that says so is not enough.
    pub(super) async fn end(&self, theirs: SandboxId) -> Result<()> {
        match self.client.delete_sandbox(theirs).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(of(error)),
        }
        match self.client.sandbox(theirs).await {
            Ok(left) if left.id == theirs && matches!(left.state, Phase::Terminated | Phase::Failed) => {
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
}
