//! Making a sandbox, and waiting for its end.

use std::sync::Arc;
use std::time::SystemTime;

use sandstorm_jail::Tree;
use sandstorm_jail::launcher::Ended;
use sandstorm_provider::{CreateOptions, Error, Provider, ProviderEvent, Result, Sandbox};
use sandstorm_types::{ErrorKind, SandboxSpec, Step};
use tokio::sync::oneshot;

use super::{LocalProvider, refused};
use crate::agent::AgentClient;
use crate::cookie::Cookie;
use crate::exec::lost;
use crate::launcher::LauncherClient;
use crate::living::{self, Birth, Living};
use crate::network::Egress;
use crate::{plan, walls};

impl LocalProvider {
    pub(super) async fn make(&self, spec: &SandboxSpec, options: CreateOptions) -> Result<Sandbox> {
        self.admits(spec).map_err(Error::unmet)?;
        let id = options.id;
        if self.sandboxes().contains_key(&id) {
            return Err(
                Error::new(ErrorKind::Conflict, "there is such a sandbox already").with("sandbox", id)
            );
        }
        let mounts =
            options.mounts.iter().map(|m| Tree { source: m.source.clone(), target: m.target.clone() });
        let trees = self.trees.iter().cloned().chain(mounts).collect();
        let journals = self.journals.as_ref().filter(|_| !options.ephemeral).map(|dir| dir.join(id.bare()));
        let jail = plan::jail(spec, &options, trees, journals.is_some());
        let (created_at, on_memory) = (SystemTime::now(), jail.on_memory);
        let cookie = Cookie { spec: spec.clone(), created_at, walls: None };
        // What it is made of is with the launcher before it exists; its walls follow when they were measured.
        let noted = journals.as_ref().map(|_| cookie.write()).transpose()?;
        // A creation that is dropped on the way must not leave a jail: the guard asks for its end.
        let guard = KillUnlessKept { launcher: &self.launcher, name: Some(jail.name.clone()) };
        let mut launch = self.launcher.launch(jail, noted.as_ref()).await.map_err(refused)?;
        let descriptors = launch.descriptors.split_off(1);
        let socket = launch.descriptors.remove(0);
        let agent = AgentClient::new(socket, &self.tasks).map_err(unusable)?;
        let egress = Egress::start(id, descriptors, &spec.network, &self.surroundings)?;
        agent.ready().await.map_err(lost)?;
        let walls = walls::of_jail(&launch.launched.report, &spec.network, spec.limits.cpu_time.is_some());
        if journals.is_some() {
            let cookie = Cookie { walls: Some(walls.clone()), ..cookie }.write()?;
            self.launcher.note(&id.bare(), &cookie).await.map_err(refused)?;
        }
        let living = Living::new(Birth {
            id,
            spec: spec.clone(),
            agent,
            launcher: self.launcher.clone(),
            walls,
            created_at,
            journals,
            paused: false,
            egress,
            on_memory,
        });
        self.sandboxes().insert(id, Arc::clone(&living));
        guard.keep();
        self.attend(&living, launch.ended);
        Ok(living.describe())
    }

    /// Waits for the end of a sandbox, and brings it about when nobody can speak to it any more.
    pub(super) fn attend(&self, living: &Arc<Living>, ended: oneshot::Receiver<Ended>) {
        // A sandbox that cannot be spoken to is of no use, and whoever broke the connection gets no more time.
        let (agent, launcher, name) = (living.agent.clone(), self.launcher.clone(), living.name());
        self.tasks.start("sandbox link", async move {
            agent.lost().await;
            let _ = launcher.kill(&name).await;
        });
        let (watched, events) = (Arc::clone(living), self.events.clone());
        self.tasks.start("sandbox end", async move {
            // A launcher that is gone took its jails with it.
            let ended = ended.await.unwrap_or_else(|_| living::gone(&watched.name()));
            if !ended.stuck.is_empty() {
                tracing::error!(sandbox = %watched.id, stuck = ?ended.stuck, "control groups do not empty");
            }
            // An end that nobody asked for is a failure.
            let failed = !watched.step(Step::Terminated);
            let reason = format!("the sandbox ended: {:?}", ended.cause);
            if failed {
                watched.step(Step::Fail { reason: reason.clone() });
            }
            watched.ended.send_replace(Some(ended));
            // Where only the launcher was lost sight of, the sandbox must not live on without anybody who knows it.
            watched.agent.close();
            if failed {
                events.tell(ProviderEvent::Ended { sandbox: watched.id, reason });
            }
        });
    }
}

pub(super) fn unusable(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Internal, "the agent's socket cannot be used").with_source(error)
}

/// Asks for a jail's end unless it was kept.
struct KillUnlessKept<'a> {
    launcher: &'a LauncherClient,
    name: Option<String>,
}

impl KillUnlessKept<'_> {
    fn keep(mut self) {
        self.name = None;
    }
}

impl Drop for KillUnlessKept<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            self.launcher.kill_now(name);
        }
    }
}
