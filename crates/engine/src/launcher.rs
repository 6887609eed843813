//! The asynchronous side of the launcher's socket.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandstorm_jail::launcher::{Answer, Ended, Launched, Refusal, Request};
use sandstorm_jail::{JailSpec, cgroup::Counters, packet};
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use crate::tasks::Tasks;

/// Why a request to the launcher came to nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum LauncherError {
    #[error("the launcher is gone")]
    Gone,
    #[error("{}", .0.message)]
    Refused(Refusal),
}

/// A jail that was made.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) launched: Launched,
    /// The agent's socket, then those of a captured network.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Resolves when the jail ended and nothing of it is left.
    pub(crate) ended: oneshot::Receiver<Ended>,
}

/// Asks the launcher. Clones share one socket.
#[derive(Debug, Clone)]
pub(crate) struct LauncherClient {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    socket: AsyncFd<OwnedFd>,
    waiting: Mutex<Waiting>,
}

type LaunchAnswer = Result<(Launched, Vec<OwnedFd>), LauncherError>;

#[derive(Debug, Default)]
struct Waiting {
    launches: HashMap<String, oneshot::Sender<LaunchAnswer>>,
    counts: HashMap<String, Vec<oneshot::Sender<Option<Counters>>>>,
    ends: HashMap<String, oneshot::Sender<Ended>>,
    gone: bool,
}

impl LauncherClient {
    #[expect(
        deprecated,
        reason = "sound here: the descriptor is owned and never replaced; the successor is unsafe"
    )]
    pub(crate) fn new(socket: OwnedFd, tasks: &Tasks) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let shared = Arc::new(Shared { socket: AsyncFd::new(socket)?, waiting: Mutex::default() });
        let reader = Arc::clone(&shared);
        tasks.start("launcher reader", async move { reader.read().await });
        Ok(Self { shared })
    }

    /// Makes a jail. Dropping the future before it resolves leaves a jail that nobody asked for any more: its `Ended`
    /// never comes to anybody, so callers kill by name when they give up.
    pub(crate) async fn launch(&self, spec: JailSpec) -> Result<Launch, LauncherError> {
        let (answer, answered) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let name = spec.name.clone();
        {
            let mut waiting = self.shared.waiting();
            if waiting.gone {
                return Err(LauncherError::Gone);
            }
            waiting.launches.insert(name.clone(), answer);
            waiting.ends.insert(name, end);
        }
        self.shared.send(&Request::Launch(Box::new(spec))).await?;
        let (launched, descriptors) = answered.await.map_err(|_| LauncherError::Gone)??;
        Ok(Launch { launched, descriptors, ended })
    }

    /// Ends a jail; its `Ended` follows.
    pub(crate) async fn kill(&self, name: &str) -> Result<(), LauncherError> {
        self.shared.send(&Request::Kill { name: name.to_owned() }).await
    }

    /// Asks for a jail's end without waiting: for destructors.
    pub(crate) fn kill_now(&self, name: &str) {
        let _ = packet::send(self.shared.socket.as_fd(), &Request::Kill { name: name.to_owned() }, &[]);
    }

    /// What the kernel counted for a jail. `None`: there is no such jail.
    pub(crate) async fn count(&self, name: &str) -> Result<Option<Counters>, LauncherError> {
        let (answer, answered) = oneshot::channel();
        self.shared.waiting().counts.entry(name.to_owned()).or_default().push(answer);
        self.shared.send(&Request::Count { name: name.to_owned() }).await?;
        answered.await.map_err(|_| LauncherError::Gone)
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(&self, request: &Request) -> Result<(), LauncherError> {
        loop {
            let mut ready = self.socket.writable().await.map_err(|_| LauncherError::Gone)?;
            match ready.try_io(|socket| packet::send(socket.as_fd(), request, &[])) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => {
                    tracing::error!(%error, "the launcher cannot be asked");
                    return Err(LauncherError::Gone);
                }
                Err(_would_block) => {}
            }
        }
    }

    async fn read(&self) {
        loop {
            let Ok(mut ready) = self.socket.readable().await else { break };
            match ready.try_io(|socket| packet::receive::<Answer>(socket.as_fd())) {
                Ok(Ok(Some((answer, descriptors)))) => self.hear(answer, descriptors),
                Ok(Ok(None) | Err(_)) => break,
                Err(_would_block) => {}
            }
        }
        // Everybody who waits hears it by the closed channel.
        let mut waiting = self.waiting();
        *waiting = Waiting { gone: true, ..Waiting::default() };
    }

    fn hear(&self, answer: Answer, descriptors: Vec<OwnedFd>) {
        let mut waiting = self.waiting();
        match answer {
            Answer::Launched(launched) => {
                if let Some(waiter) = waiting.launches.remove(&launched.name) {
                    let _ = waiter.send(Ok((launched, descriptors)));
                }
            }
            Answer::Refused { name, refusal } => {
                waiting.ends.remove(&name);
                if let Some(waiter) = waiting.launches.remove(&name) {
                    let _ = waiter.send(Err(LauncherError::Refused(refusal)));
                }
            }
            Answer::Counted { name, counters } => {
                for waiter in waiting.counts.remove(&name).unwrap_or_default() {
                    let _ = waiter.send(counters.clone());
                }
            }
            Answer::Ended(ended) => {
                if let Some(waiter) = waiting.ends.remove(&ended.name) {
                    let _ = waiter.send(ended);
                }
            }
        }
    }
}
