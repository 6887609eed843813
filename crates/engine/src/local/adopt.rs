//! Taking over the sandboxes that an earlier process left with a resident launcher.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sandstorm_agent_client::AgentClient;
use sandstorm_agent_client::lost;
use sandstorm_jail::OnMemory;
use sandstorm_jail::launcher::EndCause;
use sandstorm_provider::{Error, ProviderEvent, Result};
use sandstorm_types::{ErrorKind, SandboxId, Space};

use super::{LocalProvider, names, refused};
use crate::cookie::Cookie;
use crate::exec::{Found, Waiting};
use crate::launcher::{Adoption, Listed};
use crate::living::{Birth, Living};
use crate::network::Egress;
use crate::pool::unusable;

/// How many are taken over at the same time.
const AT_ONCE: usize = 32;

/// How long an agent may take to answer its new host.
const PATIENCE: Duration = Duration::from_secs(10);

/// Programs that an agent may still have and whose journals are gone or tell of their end: their host died before it could
/// say that nothing of them has to be kept.
const UNKNOWN: u32 = 64;

impl LocalProvider {
    /// Takes over every sandbox that the launcher kept. One that cannot be is ended. What was written down of sandboxes
    /// that are gone is removed.
    pub async fn adopt(&self) -> Result<Vec<SandboxId>> {
        let (listed, ended) = self.launcher.list().await.map_err(refused)?;
        let known: HashSet<String> = self.sandboxes().values().map(|living| living.name()).collect();
        let unknown = listed.into_iter().filter(|listed| !known.contains(&listed.name));
        let adopting = stream::iter(unknown).map(|listed| async {
            let name = listed.name.clone();
            match self.adopt_one(listed).await {
                Ok(id) => Some(id),
                Err(error) => {
                    tracing::error!(jail = name, %error, "a sandbox cannot be taken over and is ended");
                    let _ = self.launcher.kill(&name).await;
                    None
                }
            }
        });
        let adopted: Vec<_> =
            adopting.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
        let dir = self.journals.clone();
        let names = tokio::task::spawn_blocking(move || dir.map(|dir| names::all(&dir)).unwrap_or_default());
        let names = names.await.unwrap_or_default();
        for ended in ended {
            let sandbox = names.get(&ended.name).copied().or_else(|| SandboxId::from_bare(&ended.name).ok());
            if let (Some(sandbox), true) = (sandbox, ended.cause != EndCause::Asked) {
                let reason = format!("the sandbox ended: {:?}", ended.cause);
                self.events.tell(ProviderEvent::Ended { sandbox, reason });
            }
        }
        if let Some(dir) = self.journals.clone() {
            let living: HashSet<String> = self.sandboxes().keys().map(|id| id.bare()).collect();
            let _ = tokio::task::spawn_blocking(move || remove_others(&dir, &living)).await;
        }
        Ok(adopted)
    }

    async fn adopt_one(&self, listed: Listed) -> Result<SandboxId> {
        let broken = |what: &'static str| Error::new(ErrorKind::Internal, what);
        let Cookie { id, owner, tenant, spec, created_at, walls } = Cookie::read(listed.cookie)?;
        let walls = walls.ok_or_else(|| broken("its maker died before it was ready"))?;
        let dir =
            self.journals.as_ref().ok_or_else(|| broken("nothing was written down of it"))?.join(id.bare());
        let Adoption { meter, mut descriptors, ended } =
            self.launcher.adopt(&listed.name).await.map_err(refused)?;
        if descriptors.is_empty() {
            return Err(broken("there is no connection to it"));
        }
        // Only now: until its connection was taken away, a host before could still write.
        let place = dir.clone();
        let found = tokio::task::spawn_blocking(move || Found::read(&place)).await;
        let found = found
            .map_err(|_| broken("its journals cannot be read"))?
            .map_err(|error| broken("its journals cannot be read").with_source(error))?;
        let captured = descriptors.split_off(1);
        let most_held = u32::try_from(found.alive()).unwrap_or(u32::MAX).saturating_add(UNKNOWN);
        let agent = AgentClient::taking_over(descriptors.remove(0), &self.tasks, most_held);
        let agent = agent.map_err(unusable)?;
        let egress = Egress::start(id, captured, &spec.network, &self.surroundings)?;
        let disk = (spec.space == Space::Disk).then(|| self.disk_space.count(tenant, spec.limits.disk));
        let living = Living::new(Birth {
            id,
            jail: listed.name,
            joinable: owner.clone().and_then(|owner| self.joinable(None, owner)),
            owner,
            zygotes: Arc::clone(&self.maker.zygotes),
            own_places: false,
            guests: Vec::new(),
            spec,
            agent,
            launcher: self.launcher.clone(),
            meter,
            disk,
            walls,
            created_at,
            journals: Some(dir),
            paused: listed.paused,
            egress,
            // Those for one run are not kept.
            on_memory: OnMemory::EndProcess,
        });
        let (known, waiting) = found.sort(&living);
        for (exec, followed) in known {
            self.execs.insert(exec, followed);
        }
        if listed.paused {
            // Nobody inside moves, so nobody answers before it is resumed.
            self.meet_later(&living, waiting);
        } else {
            let meeting = self.meet(&living, waiting);
            tokio::time::timeout(PATIENCE, meeting)
                .await
                .map_err(|_| broken("its agent does not answer"))??;
        }
        self.sandboxes().insert(id, Arc::clone(&living));
        self.attend(&living, ended, None);
        Ok(id)
    }

    /// Hears from the agent which programs live.
    async fn meet(&self, living: &Arc<Living>, waiting: Waiting) -> Result<()> {
        living.agent.ready().await.map_err(lost)?;
        for (exec, followed) in waiting.meet(living, living.agent.take_held(), &self.tasks) {
            self.execs.insert(exec, followed);
        }
        Ok(())
    }

    fn meet_later(&self, living: &Arc<Living>, waiting: Waiting) {
        living.set_met(false);
        let (living, tasks, execs) = (Arc::clone(living), self.tasks.clone(), Arc::clone(&self.execs));
        self.tasks.start("sandbox adoption", async move {
            if living.agent.ready().await.is_ok() {
                for (exec, followed) in waiting.meet(&living, living.agent.take_held(), &tasks) {
                    execs.insert(exec, followed);
                }
            }
            living.set_met(true);
        });
    }
}

/// Removes what was written down of sandboxes that are no more.
fn remove_others(dir: &Path, living: &HashSet<String>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let bare = names::of_note(name).unwrap_or(name);
        if SandboxId::from_bare(bare).is_err() || living.contains(bare) {
            continue;
        }
        let _ = match bare == name {
            true => std::fs::remove_dir_all(entry.path()),
            false => std::fs::remove_file(entry.path()),
        };
    }
}
