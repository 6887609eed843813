//! Making a sandbox, and waiting for its end.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sandstorm_jail::launcher::Ended;
use sandstorm_jail::{JailSpec, OnMemory};
use sandstorm_provider::{CreateOptions, Error, Expected, ProviderEvent, Result, Sandbox};
use sandstorm_types::{ErrorKind, SandboxId, SandboxSpec, Space, Step, TenantId, Walls};
use tokio::sync::oneshot;

use super::{DISK_SPACE, LocalProvider, names, refused};
use crate::cookie::Cookie;
use crate::disk_space::DiskPromise;
use crate::guest::WaitingGuest;
use crate::launcher::LauncherError;
use crate::living::{self, Birth, Joinable, Living};
use crate::meter::JailMeter;
use crate::network::Egress;
use crate::plan::{self, JailKind};
use crate::pool::{Key, Newborn, Wanted};
use crate::walls;

/// When the launcher hears how long one for a single run may live: short ones cost it nothing.
const BACKSTOP_AFTER: Duration = Duration::from_secs(1);

/// A sandbox that is to be, and what its jail has to be like.
struct Planned<'a> {
    id: SandboxId,
    spec: &'a SandboxSpec,
    options: &'a CreateOptions,
    kind: Arc<JailKind>,
    on_memory: OnMemory,
    /// How long the launcher lets it live. That of one that outlives this process can be extended, so it is left to whoever
    /// keeps its clock; without anybody the launcher ends it as an orphan.
    lifetime: Option<Duration>,
    /// Where its execs are written down, if it outlives this process.
    journals: Option<PathBuf>,
    joinable: Option<Joinable>,
    /// Whose guests may be put into it, now or later.
    owner: Option<String>,
    tenant: TenantId,
    created_at: SystemTime,
}

impl Planned<'_> {
    fn jail(&self) -> JailSpec {
        let Self { on_memory, lifetime, .. } = *self;
        JailSpec { on_memory, lifetime, ..self.kind.jail(self.id.bare()) }
    }

    fn cookie(&self, walls: Option<Walls>) -> Cookie {
        Cookie {
            id: self.id,
            owner: self.owner.clone(),
            tenant: (self.spec.space == Space::Disk).then_some(self.tenant),
            spec: self.spec.clone(),
            created_at: self.created_at,
            walls,
        }
    }

    fn walls(&self, newborn: &Newborn) -> Walls {
        walls::of_jail(&newborn.report, &self.spec.network, self.spec.limits.cpu_time.is_some())
    }

    /// The interpreter that its first program needs.
    fn wanted(&self) -> Option<Wanted<'_>> {
        self.options.expects.as_ref()?;
        let Joinable { zygote, owner, .. } = self.joinable.as_ref()?;
        Some(Wanted { zygote, owner })
    }
}

impl LocalProvider {
    pub(super) async fn make(
        &self,
        tenant: TenantId,
        spec: &SandboxSpec,
        options: CreateOptions,
    ) -> Result<Sandbox> {
        // What is in the way of a space on disk only the launcher knows, which says it.
        let unmet: Vec<_> =
            self.unmet(spec).into_iter().filter(|unmet| unmet.feature != DISK_SPACE).collect();
        if !unmet.is_empty() {
            return Err(Error::unmet(unmet));
        }
        let id = options.id;
        if self.sandboxes().contains_key(&id) {
            return Err(
                Error::new(ErrorKind::Conflict, "there is such a sandbox already").with("sandbox", id)
            );
        }
        let disk = self.promise_disk(tenant, spec).await?;
        let journals = self.journals.as_ref().filter(|_| !options.ephemeral).map(|dir| dir.join(id.bare()));
        let mut planned = Planned {
            id,
            spec,
            options: &options,
            kind: self.planner.kind(spec, &options),
            on_memory: plan::on_memory(options.ephemeral),
            lifetime: if journals.is_some() { None } else { plan::lifetime(spec) },
            journals,
            joinable: self.joinable(options.expects.as_ref(), tenant.to_string()),
            owner: (!options.ephemeral && !self.maker.zygotes.is_empty()).then(|| tenant.to_string()),
            tenant,
            created_at: SystemTime::now(),
        };
        let (newborn, walls, backstop) = match self.take(tenant, &planned).await? {
            Some((newborn, walls)) => (newborn, walls, planned.lifetime.filter(|_| options.ephemeral)),
            None => {
                if !self.waits_for_interpreter(&planned) {
                    planned.joinable = None;
                }
                // On the heap: most sandboxes come from the pool, and to move its state for each would take longer than that.
                let (newborn, walls) = Box::pin(self.make_new(&planned)).await?;
                (newborn, walls, None)
            }
        };
        let Newborn { agent, mut meter, captured, ended, mut guest, unclaimed, .. } = newborn;
        if !options.ephemeral {
            // Of one that lives long nobody holds more than has to be.
            meter.iter_mut().for_each(JailMeter::close);
            guest = guest.map(WaitingGuest::of_the_agent);
        }
        let egress = Egress::start(id, captured, &spec.network, &self.surroundings)?;
        let living = Living::new(Birth {
            id,
            own_places: self.planner.leaves_own_places(&options),
            jail: unclaimed.claim(),
            joinable: planned.joinable,
            owner: planned.owner,
            zygotes: Arc::clone(&self.maker.zygotes),
            guests: guest.into_iter().collect(),
            spec: spec.clone(),
            agent,
            launcher: self.launcher.clone(),
            meter,
            disk,
            walls,
            created_at: planned.created_at,
            journals: planned.journals,
            paused: false,
            egress,
            on_memory: planned.on_memory,
        });
        self.sandboxes().insert(id, Arc::clone(&living));
        self.attend(&living, ended, backstop);
        Ok(living.describe(self.info.region.as_deref()))
    }

    /// What a sandbox may write to this machine's disk, if it may.
    async fn promise_disk(&self, tenant: TenantId, spec: &SandboxSpec) -> Result<Option<DiskPromise>> {
        if spec.space != Space::Disk {
            return Ok(None);
        }
        let living: Vec<_> = self.sandboxes().values().cloned().collect();
        let used = living.iter().map(|living| living.disk_used()).sum();
        self.disk_space.promise(tenant, spec.limits.disk, used).await.map(Some)
    }

    /// How interpreters come into a sandbox of this owner. Without a word of what it will run, it gets what serves most.
    pub(super) fn joinable(&self, expected: Option<&Expected>, owner: String) -> Option<Joinable> {
        let zygotes = &self.maker.zygotes;
        let zygote = match expected {
            Some(expected) => zygotes.choose(expected, &owner),
            None => zygotes.for_anything(&owner),
        }?;
        Some(Joinable::of(zygote, owner))
    }

    /// Whether a sandbox that is made on the spot has an interpreter put into it. One for a single run does not wait for an
    /// owner's first zygote to become warm where the pool does that.
    fn waits_for_interpreter(&self, planned: &Planned<'_>) -> bool {
        let warm = |joinable: &Joinable| self.maker.zygotes.is_warm(&joinable.zygote, &joinable.owner);
        !planned.options.ephemeral || self.pool.is_none() || planned.joinable.as_ref().is_some_and(warm)
    }

    /// A sandbox that was made ahead, if there is one that lives.
    async fn take(&self, tenant: TenantId, planned: &Planned<'_>) -> Result<Option<(Newborn, Walls)>> {
        // Space on disk takes a device and a file for as long as it is there: none waits for somebody who may never come.
        let pooled = planned.options.pooled && planned.spec.space == Space::Memory;
        let Some(pool) = self.pool.as_ref().filter(|_| pooled) else { return Ok(None) };
        let zygote = planned.wanted().map(|wanted| wanted.zygote);
        let key = Arc::new(Key::new(tenant, Arc::clone(&planned.kind), zygote));
        while let Some(newborn) = pool.take(&key) {
            let walls = planned.walls(&newborn);
            match self.settle(planned, &newborn, &walls).await {
                Ok(()) => return Ok(Some((newborn, walls))),
                // It died on its shelf, or on the way; the next one may do.
                Err(LauncherError::Refused(refusal)) => {
                    tracing::debug!(jail = newborn.name(), why = refusal.message, "a sandbox was of no use");
                }
                Err(error) => return Err(refused(error)),
            }
        }
        Ok(None)
    }

    /// Tells the launcher what was left open when the jail was made.
    async fn settle(
        &self,
        planned: &Planned<'_>,
        newborn: &Newborn,
        walls: &Walls,
    ) -> Result<(), LauncherError> {
        let Planned { on_memory, lifetime, .. } = *planned;
        let name = newborn.name();
        if planned.options.ephemeral {
            // It was made to end as one for a single run; its lifetime is a backstop, and most end before that is said.
            return self.launcher.is_there();
        }
        let Some(journals) = &planned.journals else {
            return self.launcher.keep(name, on_memory, lifetime, None).await;
        };
        let unwritten = |error: String| {
            LauncherError::Refused(sandstorm_jail::launcher::Refusal {
                kind: sandstorm_jail::launcher::RefusalKind::Host,
                message: error,
            })
        };
        names::note(journals, name).map_err(|error| unwritten(error.to_string()))?;
        let cookie = planned.cookie(Some(walls.clone())).write().map_err(|e| unwritten(e.to_string()))?;
        let kept = self.launcher.keep(name, on_memory, lifetime, Some(&cookie)).await;
        kept.inspect_err(|_| names::forget(journals))
    }

    /// A sandbox from nothing.
    async fn make_new(&self, planned: &Planned<'_>) -> Result<(Newborn, Walls)> {
        let _unserved = self.pool.as_ref().map(|pool| pool.unserved());
        // What it is made of is with the launcher before it exists; its walls follow when they were measured.
        let noted = planned.journals.as_ref().map(|_| planned.cookie(None).write()).transpose()?;
        let make = || self.maker.make(planned.jail(), noted.as_ref(), planned.wanted());
        let newborn = match (make().await, &self.pool) {
            // Those that wait for nobody in particular give way.
            (Err(error), Some(pool)) if error.kind() == ErrorKind::Capacity && pool.make_room().await => {
                make().await?
            }
            (made, _) => made?,
        };
        let walls = planned.walls(&newborn);
        if planned.journals.is_some() {
            let cookie = planned.cookie(Some(walls.clone())).write()?;
            self.launcher.note(newborn.name(), &cookie).await.map_err(refused)?;
        }
        Ok((newborn, walls))
    }

    /// Waits for the end of a sandbox, and brings it about when nobody can speak to it any more. `backstop`: how long the
    /// launcher is to let it live, if that has to be said yet.
    pub(super) fn attend(
        &self,
        living: &Arc<Living>,
        mut ended: oneshot::Receiver<Ended>,
        backstop: Option<Duration>,
    ) {
        let (watched, events) = (Arc::clone(living), self.events.clone());
        let stopping = self.tasks.stopping().clone();
        self.tasks.start("sandbox end", async move {
            let ended = tokio::select! {
                ended = &mut ended => ended,
                never = set_backstop(&watched, backstop) => match never {},
                () = watched.agent.lost() => {
                    // A sandbox that cannot be spoken to is of no use, and whoever broke the connection gets no more time. A
                    // host that lets go of its connections leaves the sandboxes to the next one.
                    if !stopping.is_cancelled() {
                        let _ = watched.kill().await;
                    }
                    ended.await
                }
            };
            watched.stop_reading();
            // A launcher that is gone took its jails with it.
            let ended = ended.unwrap_or_else(|_| living::gone(&watched.name()));
            if !ended.stuck.is_empty() {
                tracing::error!(sandbox = %watched.id, stuck = ?ended.stuck, "control groups do not empty");
            }
            // An end that nobody asked for is a failure.
            let failed = !watched.step(Step::Terminated);
            let reason = format!("the sandbox ended: {:?}", ended.cause);
            if failed {
                watched.step(Step::Fail { reason: reason.clone() });
            }
            watched.give_disk_back();
            watched.ended.send_replace(Some(ended));
            // Where only the launcher was lost sight of, the sandbox must not live on without anybody who knows it.
            watched.agent.close();
            if failed {
                events.tell(ProviderEvent::Ended { sandbox: watched.id, reason });
            }
        });
    }
}

/// Tells the launcher how long a sandbox for one run may live, once it has lived for a while.
async fn set_backstop(living: &Living, lifetime: Option<Duration>) -> Infallible {
    if lifetime.is_some() {
        tokio::time::sleep(BACKSTOP_AFTER).await;
        living.launcher.keep_soon(&living.jail, OnMemory::EndAll, lifetime);
    }
    std::future::pending().await
}
