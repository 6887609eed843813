//! Changing a sandbox that lives: pause, resume, another network policy.

use std::sync::Arc;

use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, NetworkPolicy, SandboxSpec, Step, Transition};
use tokio::sync::oneshot;

use super::{LocalProvider, refused};
use crate::cookie::Cookie;
use crate::living::Living;
use crate::walls;

impl LocalProvider {
    /// Pauses or resumes. What was begun is brought to its end even if nobody waits for it any more.
    pub(super) async fn change_state(&self, living: &Arc<Living>, to: Transition) -> Result<()> {
        living.try_step(to.first_step())?;
        let (done, waiting) = oneshot::channel();
        let living = Arc::clone(living);
        self.tasks.start("sandbox transition", async move {
            let changed = match to {
                Transition::Pause => pause(&living).await,
                Transition::Resume => resume(&living).await,
            };
            let _ = done.send(changed);
        });
        waiting.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Cancelled, "the provider is stopping")))
    }

    /// Changes what a sandbox may reach.
    pub(super) async fn change_network(&self, living: &Arc<Living>, policy: NetworkPolicy) -> Result<()> {
        let captured = living.egress.is_captured();
        if !captured && policy != NetworkPolicy::None && living.journals.is_none() {
            return Err(Error::new(
                ErrorKind::Conflict,
                "a sandbox for one run cannot be given a network later",
            ));
        }
        let descriptors = match captured || policy == NetworkPolicy::None {
            true => Vec::new(),
            // Born without a network, it gets one now; that needs its processes to move.
            false => {
                living.check_ready()?;
                self.launcher.capture(&living.name()).await.map_err(refused)?
            }
        };
        living.egress.change(descriptors, policy.clone(), &self.surroundings)?;
        living.set_net_wall(walls::net(&policy));
        if living.journals.is_some() {
            let spec = SandboxSpec { network: policy, ..living.spec.clone() };
            let cookie = Cookie {
                id: living.id,
                owner: living.owner.clone(),
                tenant: living.disk_tenant(),
                spec,
                created_at: living.created_at,
                walls: Some(living.walls()),
            };
            self.launcher.note(&living.name(), &cookie.write()?).await.map_err(refused)?;
        }
        Ok(())
    }
}

async fn pause(living: &Living) -> Result<()> {
    match living.launcher.set_paused(&living.name(), true).await {
        Ok(()) => {
            living.paused.send_replace(true);
            living.step(Step::Paused);
            Ok(())
        }
        Err(error) => {
            // It goes on, and the machine of states knows only this way back.
            for step in [Step::Paused, Step::Resume, Step::Resumed] {
                living.step(step);
            }
            Err(refused(error))
        }
    }
}

async fn resume(living: &Living) -> Result<()> {
    if let Err(error) = living.launcher.set_paused(&living.name(), false).await {
        living.step(Step::Fail { reason: "the sandbox could not be resumed".to_owned() });
        return Err(refused(error));
    }
    living.paused.send_replace(false);
    // One that was taken over while it stood still has to be met first.
    living.met().await;
    living.step(Step::Resumed);
    Ok(())
}
