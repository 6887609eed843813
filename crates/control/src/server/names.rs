//! Sandboxes that are found by a name of the caller's instead of an id, as the session API has them.
//!
//! A name belongs to one tenant and one kind. It is held by a sandbox for as long as that lives.

use std::time::Duration;

use sandstorm_provider::{Error, Result};
use sandstorm_store::{Claimed, NameRow};
use sandstorm_types::{ErrorKind, Phase, SandboxId, State};
use tokio::time::Instant;

use super::failure::stored;
use super::{Caller, Control, NewSandbox, SandboxView, Scope};

/// How long the second to use a name waits for the first one's sandbox, and between two looks.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);
/// Longest name in bytes.
const LONGEST: usize = 512;

impl Control {
    /// The sandbox behind a name, made if there is none; says whether it was made. However many use a name first at
    /// the same time, they get one sandbox. A name whose sandbox ended is free again.
    pub async fn name_sandbox(
        &self,
        caller: &Caller,
        kind: &'static str,
        name: &str,
        new: NewSandbox,
    ) -> Result<(SandboxView, bool)> {
        caller.require(Scope::Sandbox)?;
        check(name)?;
        let give_up = Instant::now() + PATIENCE;
        loop {
            if let Some(view) = self.named_sandbox(caller, kind, name).await? {
                if view.phase != Phase::Creating {
                    return Ok((view, false));
                }
                // Somebody else is making it.
                if Instant::now() >= give_up {
                    return Err(busy(name));
                }
                tokio::time::sleep(LOOK).await;
                continue;
            }
            let id = SandboxId::random();
            let making = self.0.making.begin(id);
            match stored(self.0.store.claim_name(caller.tenant, kind, name, id).await)? {
                Claimed::Claimed => {
                    // Let go of again by the creation itself when it fails, also when nobody waits for it any more.
                    let named = Some((kind, name.to_owned()));
                    return Ok((self.create_as(caller, making, new, named).await?, true));
                }
                Claimed::Taken(_) if Instant::now() < give_up => tokio::time::sleep(LOOK).await,
                Claimed::Taken(_) => return Err(busy(name)),
            }
        }
    }

    /// The living sandbox behind a name.
    pub async fn named_sandbox(
        &self,
        caller: &Caller,
        kind: &'static str,
        name: &str,
    ) -> Result<Option<SandboxView>> {
        caller.require(Scope::Sandbox)?;
        check(name)?;
        let Some(id) = stored(self.0.store.name(caller.tenant, kind, name).await)? else { return Ok(None) };
        self.living_behind(caller, kind, name, id).await
    }

    /// All names of a kind with their living sandboxes.
    pub async fn named_sandboxes(
        &self,
        caller: &Caller,
        kind: &'static str,
    ) -> Result<Vec<(String, SandboxView)>> {
        caller.require(Scope::Sandbox)?;
        let mut found = Vec::new();
        for NameRow { name, sandbox: id } in stored(self.0.store.names(caller.tenant, kind).await)? {
            if let Some(view) = self.living_behind(caller, kind, &name, id).await? {
                found.push((name, view));
            }
        }
        Ok(found)
    }

    /// Frees a name; its sandbox stays. An unknown name is success.
    pub async fn forget_name(&self, caller: &Caller, kind: &'static str, name: &str) -> Result<()> {
        caller.require(Scope::Sandbox)?;
        check(name)?;
        match stored(self.0.store.name(caller.tenant, kind, name).await)? {
            Some(id) => {
                stored(self.0.store.release_name(caller.tenant, kind, name, id).await)?;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The sandbox that holds a name, unless it ended; then the name is freed.
    async fn living_behind(
        &self,
        caller: &Caller,
        kind: &'static str,
        name: &str,
        id: SandboxId,
    ) -> Result<Option<SandboxView>> {
        // Asked before the row is looked for: an id is given before its name is claimed and until its row is there, so
        // that a claim with neither is one that nobody will ever fulfil.
        let being_made = self.0.making.contains(id);
        match self.0.row(caller.tenant, id).await? {
            Some(row) if !row.state.is_final() && row.state != State::Terminating => {
                Ok(Some(self.0.view(&row)))
            }
            None if being_made => {
                tokio::time::sleep(LOOK).await;
                Ok(None)
            }
            Some(_) => {
                stored(self.0.store.release_name(caller.tenant, kind, name, id).await)?;
                Ok(None)
            }
            None => {
                if !stored(self.0.store.release_unmade(caller.tenant, kind, name, id).await)? {
                    tokio::time::sleep(LOOK).await;
                }
                Ok(None)
            }
        }
    }
}

fn check(name: &str) -> Result<()> {
    match name.is_empty() || name.len() > LONGEST || name.contains('\0') {
        true => Err(Error::new(ErrorKind::InvalidRequest, "a name has 1 to 512 bytes and no NUL character")),
        false => Ok(()),
    }
}

fn busy(name: &str) -> Error {
    Error::new(ErrorKind::Conflict, "the sandbox of this name is still being made")
        .with("name", name)
        .with_retry_after(Duration::from_secs(1))
}
