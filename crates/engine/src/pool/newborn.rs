//! A jail that was just made and is nobody's sandbox yet.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use sandstorm_agent_client::{AgentClient, AgentError, lost};
use sandstorm_jail::launcher::Ended;
use sandstorm_jail::{JailSpec, Report};
use sandstorm_provider::{Error, Result, Tasks};
use sandstorm_types::ErrorKind;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Semaphore, oneshot};

use super::stock::Entry;
use super::zygotes::Zygotes;
use crate::guest::WaitingGuest;
use crate::launcher::LauncherClient;
use crate::local::refused;
use crate::meter::JailMeter;

/// How long the end of one that is given up is waited for.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Jails that are being made at once, for each processor. To make one is work from beginning to end: with more of them each
/// takes longer, all of them together too, and none is done sooner.
const AT_ONCE: usize = 2;

/// Makes jails with an agent that answers, and with an interpreter that waits where one is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Maker {
    pub(crate) launcher: LauncherClient,
    pub(crate) tasks: Tasks,
    pub(crate) zygotes: Arc<Zygotes>,
    turns: Arc<Semaphore>,
}

/// The interpreter to put into a jail: a fork of that zygote of that owner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) zygote: &'a str,
    pub(crate) owner: &'a str,
}

/// What was made. Dropping it ends the jail, until somebody claims it.
#[derive(Debug)]
pub(crate) struct Newborn {
    pub(crate) agent: AgentClient,
    pub(crate) report: Report,
    pub(crate) meter: Option<JailMeter>,
    /// The sockets of a captured network.
    pub(crate) captured: Vec<OwnedFd>,
    pub(crate) ended: oneshot::Receiver<Ended>,
    /// The interpreter that waits in it.
    pub(crate) guest: Option<WaitingGuest>,
    pub(crate) unclaimed: Unclaimed,
}

impl Maker {
    pub(crate) fn new(launcher: LauncherClient, tasks: Tasks, zygotes: Arc<Zygotes>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let turns = Arc::new(Semaphore::new(AT_ONCE * processors.max(2)));
        Self { launcher, tasks, zygotes, turns }
    }

    /// Makes a jail; with a cookie one that outlives this process. One whose interpreter was not to be had comes without.
    /// A creation that is dropped on the way leaves nothing.
    pub(crate) async fn make(
        &self,
        spec: JailSpec,
        cookie: Option<&OwnedFd>,
        wanted: Option<Wanted<'_>>,
    ) -> Result<Newborn> {
        let _turn = self.turns.acquire().await;
        let name = spec.name.clone();
        let mut unclaimed =
            Unclaimed { launcher: self.launcher.clone(), name: Some(name.clone()), agent: None };
        let launch = self.launcher.launch(spec, cookie).await.map_err(refused)?;
        let mut descriptors = launch.descriptors.into_iter();
        let socket = descriptors
            .next()
            .ok_or_else(|| Error::new(ErrorKind::Internal, "the launcher gave no connection"))?;
        let agent = AgentClient::new(socket, &self.tasks).map_err(unusable)?;
        unclaimed.agent = Some(agent.clone());
        // The interpreter joins while the agent comes up.
        let (ready, guest) = tokio::join!(agent.ready(), self.join(&name, &agent, wanted));
        ready.map_err(lost)?;
        Ok(Newborn {
            agent,
            report: launch.launched.report,
            meter: launch.meter,
            captured: descriptors.collect(),
            ended: launch.ended,
            guest,
            unclaimed,
        })
    }

    async fn join(
        &self,
        name: &str,
        agent: &AgentClient,
        wanted: Option<Wanted<'_>>,
    ) -> Option<WaitingGuest> {
        let Wanted { zygote, owner } = wanted?;
        // With whether a failure is the zygote's. No program has run in the jail yet, so most failures there are.
        let joined = async {
            let guest = self.launcher.join(name, zygote, owner, None).await;
            let guest = guest.map_err(|error| (error.is_failure_of_the_zygote(), error.to_string()))?;
            let walls = agent.guest_ready(guest.number).await;
            let walls = walls.map_err(|error| (error != AgentError::Gone, error.to_string()))?;
            Ok::<_, (bool, String)>(guest.come_near(agent, walls))
        };
        match joined.await {
            Ok(guest) => {
                self.zygotes.worked(zygote, owner);
                Some(guest)
            }
            Err((true, why)) => {
                self.zygotes.failed(zygote, owner, &why);
                None
            }
            Err((false, why)) => {
                tracing::debug!(jail = name, zygote, why, "an interpreter could not come into a new jail");
                None
            }
        }
    }
}

pub(crate) fn unusable(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Internal, "the agent's socket cannot be used").with_source(error)
}

impl Newborn {
    /// The jail's name at the launcher.
    pub(crate) fn name(&self) -> &str {
        self.unclaimed.name.as_deref().unwrap_or_default()
    }

    /// Ends it and waits until nothing is left.
    pub(crate) async fn end(self) {
        let Self { unclaimed, ended, .. } = self;
        drop(unclaimed);
        let _ = tokio::time::timeout(LAST_WAIT, ended).await;
    }
}

impl Entry for Newborn {
    fn is_dead(&mut self) -> bool {
        // Not only what was heard by now: whoever takes it is about to depend on it.
        self.ended.try_recv() != Err(TryRecvError::Empty) || self.agent.is_gone()
    }
}

/// Asks for a jail's end unless somebody claims it.
#[derive(Debug)]
pub(crate) struct Unclaimed {
    launcher: LauncherClient,
    name: Option<String>,
    agent: Option<AgentClient>,
}

impl Unclaimed {
    pub(crate) fn claim(mut self) -> String {
        self.name.take().unwrap_or_default()
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            self.launcher.kill_now(name);
            if let Some(agent) = &self.agent {
                agent.close();
            }
        }
    }
}
