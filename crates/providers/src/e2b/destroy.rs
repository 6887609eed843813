//! Ending sandboxes there, and seeing that they are gone.

use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, Retry, SandboxId};

use super::cloud::Cloud;
use super::error::of;
use super::view::TheirId;
use crate::ending::Ending;

impl Cloud {
    /// Ends every sandbox there that carries this id of ours.
    pub(super) async fn destroy(&self, ours: &SandboxId) -> Result<()> {
        self.places.settled(ours).await;
        let known = self.places.get(ours);
        // Only one that we were told of is surely the only one.
        let all = match &known {
            Some(place) if self.places.unsure(ours).is_none() => vec![place.theirs().clone()],
            _ => self.find(ours).await?.into_iter().map(|theirs| theirs.id).collect(),
        };
        let ending = known.map(Ending::begin);
        for theirs in all {
            self.end(&theirs).await.map_err(|error| error.with("sandbox", ours))?;
        }
        if let Some(ending) = ending {
            ending.done();
        }
        self.places.forget(ours);
        self.execs.forget_all(ours);
        Ok(())
    }

    /// Ends one sandbox of theirs. That it is gone is looked up: an answer that says so is not enough.
    pub(super) async fn end(&self, theirs: &TheirId) -> Result<()> {
        match self.client.kill(theirs).await {
            Ok(()) => {}
            Err(failure) if failure.is_not_found() => return Ok(()),
            Err(failure) => return Err(of(failure)),
        }
        match self.client.sandbox(theirs).await {
            Ok(_) => {
                let message = "the service says that the sandbox is ended, but it is still there";
                Err(Error::new(ErrorKind::Provider, message).with_retry(Retry::Here))
            }
            Err(failure) if failure.is_not_found() => Ok(()),
            Err(failure) => Err(of(failure)),
        }
    }
}
