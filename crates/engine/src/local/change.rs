//! Changing a sandbox that lives: pause, resume, another network policy.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, NetworkPolicy, SandboxSpec, Step, Transition, Unmet};
use tokio::sync::oneshot;

use super::{LocalProvider, refused};
use crate::cookie::Cookie;
use crate::living::Living;
use crate::walls;

/// How long programs that are killed may take to end. They are in the kernel only when it is more than a moment.
const ENDING: Duration = Duration::from_secs(10);

impl LocalProvider {
    /// Pauses or resumes. What was begun is brought to its end even if nobody waits for it any more.
    pub(super) async fn change_state(&self, living: &Arc<Living>, to: Transition) -> Result<()> {
        living.try_step(to.first_step())?;
        let (done, waiting) = oneshot::channel();
        let living = Arc::clone(living);
        self.tasks.start("sandbox transition", async move {
            let changed = match to {
                Transition::Pause => pause(&living).await,
                Transition::PauseFiles => pause_files(&living).await,
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
            go_on(living);
            Err(refused(error))
        }
    }
}

/// What is left of a sandbox without its programs are its files and its agent, which keep still like any other.
async fn pause_files(living: &Living) -> Result<()> {
    match living.agent.end_all(ENDING).await {
        Ok(true) => pause(living).await,
        Ok(false) => {
            go_on(living);
            let why = "the agent of this sandbox is older than the server, and cannot end what runs in it";
            Err(Error::unmet(vec![Unmet::new("pause_files", "yes", "no", why)]))
        }
        Err(error) => {
            go_on(living);
            Err(sandstorm_agent_client::lost(error))
        }
    }
}

/// It was not paused. The machine of states knows only this way back.
fn go_on(living: &Living) {
    for step in [Step::Paused, Step::Resume, Step::Resumed] {
        living.step(step);
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
