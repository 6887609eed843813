//! Sandboxes put to sleep and woken.

use sandstorm_provider::{Error, Result, Sandbox};
use sandstorm_types::{ErrorKind, SandboxId, Transition, Unmet};

use super::cloud::{Cloud, secret};
use super::error::{Failure, of, senseless};
use super::places::Place;
use super::view::{Condition, Listed, Marks};

impl Cloud {
    pub(super) async fn transition(&self, id: &SandboxId, to: Transition) -> Result<Sandbox> {
        let place = self.place(id).await?;
        let before = self.seen(*id, &self.shown_at(&place).await?)?;
        // To them what is so already may be success; here it is a conflict.
        before
            .state
            .after(to.first_step())
            .map_err(|conflict| Error::new(ErrorKind::Conflict, conflict.to_string()).with("sandbox", id))?;
        let _changing = place.change();
        let wanted = match to {
            Transition::PauseFiles => {
                let why = "what became of the programs there would not be known here";
                return Err(Error::unmet(vec![Unmet::new("pause_files", "yes", "no", why)]));
            }
            Transition::Pause => {
                // Before it is done: connections to its programs break while it goes to sleep.
                place.set_paused(true);
                if let Err(failure) = self.client.pause(place.theirs()).await {
                    place.set_paused(false);
                    return Err(self.refused(&place, failure).await);
                }
                Condition::Paused
            }
            Transition::Resume => {
                match self.client.connect(place.theirs(), self.lease).await {
                    Ok(access) if access.id == *place.theirs() => place.woken(match &access.token {
                        Some(token) => secret(Some(token))?,
                        None => place.token(),
                    }),
                    Ok(_) => return Err(senseless("it woke another sandbox")),
                    Err(failure) => return Err(self.refused(&place, failure).await),
                }
                Condition::Running
            }
        };
        let after = self.shown_at(&place).await?;
        match after.state == wanted {
            true => self.seen(*id, &after),
            false => Err(senseless("the sandbox is in another state")),
        }
    }

    /// A sandbox as they show it now.
    pub(super) async fn shown_at(&self, place: &Place) -> Result<Listed> {
        let theirs = match self.client.sandbox(place.theirs()).await {
            Ok(theirs) => theirs,
            Err(failure) if failure.is_not_found() => return Err(self.lost(place).await),
            Err(failure) => return Err(of(failure)),
        };
        match Marks(&self.owner).id(&theirs) == Some(place.ours()) {
            true => Ok(theirs),
            false => Err(senseless("it shows another sandbox")),
        }
    }

    pub(super) async fn refused(&self, place: &Place, failure: Failure) -> Error {
        match failure.is_not_found() {
            true => self.lost(place).await,
            false => of(failure),
        }
    }
}
