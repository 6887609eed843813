//! The asynchronous side of the launcher's socket.
//!
//! A forked launcher is gone for good when it is gone. A resident one is started again by its guardian: what the old one
//! had is lost, and the client connects to the new one.

mod connection;
mod zygotes;

use sandstorm_provider::Tasks;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sandstorm_jail::launcher::deputy::Deputy;
use sandstorm_jail::launcher::{
    Ended, GuestId, Launched, Refusal, RefusalKind, Request, TransplantReport, resident,
};
use sandstorm_jail::{JailSpec, OnMemory, cgroup::Counters};
use tokio::sync::{mpsc, oneshot, watch};

use self::connection::{Connection, Given, Waiting};
use self::zygotes::Zygotes;
use crate::guest::WaitingGuest;
use crate::meter::{GaugeShelf, JailMeter};

/// How often a launcher that is gone is looked for.
const AGAIN: Duration = Duration::from_millis(100);
/// And for how long.
const GIVE_UP: Duration = Duration::from_secs(60);

/// Why a request to the launcher came to nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum LauncherError {
    #[error("the launcher is gone")]
    Gone,
    #[error("the launcher is being started again")]
    Away,
    #[error("the launcher does not answer")]
    Silent,
    #[error("{}", .0.message)]
    Refused(Refusal),
}

impl LauncherError {
    /// Whether the refusal of a guest tells against its zygote. Most tell of the jail that the guest was for, which its
    /// tenant can end, fill or stop at any moment.
    pub(crate) fn is_failure_of_the_zygote(&self) -> bool {
        match self {
            Self::Gone | Self::Away | Self::Silent => false,
            Self::Refused(refusal) => match refusal.kind {
                RefusalKind::Host | RefusalKind::Isolation => true,
                RefusalKind::Capacity | RefusalKind::Gone | RefusalKind::Forbidden => false,
            },
        }
    }
}

/// A jail that was made.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) launched: Launched,
    /// How its counters are read, where they can be.
    pub(crate) meter: Option<JailMeter>,
    /// The agent's socket, then those of a captured network.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Resolves when the jail ended and nothing of it is left.
    pub(crate) ended: oneshot::Receiver<Ended>,
}

/// A kept jail that this process has now.
#[derive(Debug)]
pub(crate) struct Adoption {
    pub(crate) meter: Option<JailMeter>,
    /// The agent's socket, then those of a captured network.
    pub(crate) descriptors: Vec<OwnedFd>,
    pub(crate) ended: oneshot::Receiver<Ended>,
}

/// A jail that a launcher kept.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) paused: bool,
    pub(crate) cookie: OwnedFd,
}

/// Asks the launcher. Clones share one socket.
#[derive(Debug, Clone)]
pub(crate) struct LauncherClient {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    connection: Mutex<Option<Arc<Connection>>>,
    /// Where a resident launcher is found again.
    address: Option<PathBuf>,
    /// The last connection, if another process took the jails over: with it, those who wait for their ends wait on.
    superseded: OnceLock<Arc<Connection>>,
    /// Why there is no launcher and will be none.
    lost: watch::Sender<Option<String>>,
    /// Who can see to it that there is one.
    deputy: Option<Arc<Deputy>>,
    /// Told to end: then it is not missed.
    dismissed: AtomicBool,
    zygotes: Zygotes,
    gauges: GaugeShelf,
}

impl LauncherClient {
    /// Speaks to a launcher. `address`: where it is found again, if it is a resident one; `deputy`: who can make one.
    pub(crate) fn new(
        socket: OwnedFd,
        address: Option<PathBuf>,
        deputy: Option<Deputy>,
        tasks: &Tasks,
    ) -> io::Result<Self> {
        let connection = Arc::new(Connection::new(socket)?);
        let shared = Arc::new(Shared {
            connection: Mutex::new(Some(Arc::clone(&connection))),
            address,
            superseded: OnceLock::new(),
            lost: watch::Sender::new(None),
            deputy: deputy.map(Arc::new),
            dismissed: AtomicBool::new(false),
            zygotes: Zygotes::default(),
            gauges: GaugeShelf::default(),
        });
        let kept = Arc::clone(&shared);
        tasks.start("launcher reader", async move { kept.keep(connection).await });
        Ok(Self { shared })
    }

    /// Whether there is a launcher to ask.
    pub(crate) fn is_there(&self) -> Result<(), LauncherError> {
        self.connection().map(drop)
    }

    fn connection(&self) -> Result<Arc<Connection>, LauncherError> {
        let connection = self.shared.current().clone().ok_or_else(|| self.absent())?;
        match connection.is_silent() {
            true => Err(LauncherError::Silent),
            false => Ok(connection),
        }
    }

    /// Waits until there is no launcher and none to be had any more, and says why. For ever while all is well.
    pub(crate) async fn lost(&self) -> String {
        let mut lost = self.shared.lost.subscribe();
        let why = match lost.wait_for(Option::is_some).await {
            Ok(why) => why.clone(),
            Err(_) => None,
        };
        match why {
            Some(why) => why,
            None => std::future::pending().await,
        }
    }

    /// Why there is nobody to ask.
    fn absent(&self) -> LauncherError {
        match self.shared.address.is_some() && self.shared.lost.borrow().is_none() {
            true => LauncherError::Away,
            false => LauncherError::Gone,
        }
    }

    async fn ask<T>(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
        expect: impl FnOnce(&mut Waiting, oneshot::Sender<T>),
    ) -> Result<T, LauncherError> {
        let connection = self.connection()?;
        let answer = async {
            let asked = connection.ask(request, descriptors, expect).await;
            asked.map_err(|_| self.absent())?.await.map_err(|_| self.absent())
        };
        tokio::select! {
            biased;
            answer = answer => answer,
            () = connection.silence() => Err(LauncherError::Silent),
        }
    }

    /// Makes a jail; with a cookie one that outlives this process. Dropping the future before it resolves leaves a jail
    /// that nobody asked for any more: its `Ended` never comes to anybody, so callers kill by name when they give up.
    pub(crate) async fn launch(
        &self,
        spec: JailSpec,
        cookie: Option<&OwnedFd>,
    ) -> Result<Launch, LauncherError> {
        let name = spec.name.clone();
        let connection = self.connection()?;
        let ended = connection.expect_end(&name);
        let request = Request::Launch { spec: Box::new(spec), keep: cookie.is_some() };
        let given: Vec<_> = cookie.iter().map(|cookie| cookie.as_fd()).collect();
        let answer = self.ask(&request, &given, connection::launch(&name)).await;
        match answer.and_then(|answer| answer.map_err(LauncherError::Refused)) {
            Ok((mut launched, mut descriptors)) => {
                let meter = JailMeter::take(launched.meter.take(), &mut descriptors, &self.shared.gauges);
                Ok(Launch { launched, meter, descriptors, ended })
            }
            Err(error) => {
                connection.expect_no_end(&name);
                Err(error)
            }
        }
    }

    /// Ends a jail; its `Ended` follows.
    pub(crate) async fn kill(&self, name: &str) -> Result<(), LauncherError> {
        let request = Request::Kill { name: name.to_owned() };
        let connection = self.connection().inspect_err(|_| self.kill_now(name))?;
        tokio::select! {
            biased;
            sent = connection.send(&request) => sent.map_err(|_| self.absent()),
            () = connection.silence() => {
                connection.kill_now(name);
                Err(LauncherError::Silent)
            }
        }
    }

    /// Asks for a jail's end without waiting: for destructors.
    pub(crate) fn kill_now(&self, name: &str) {
        // Also to one that is silent: it may come to itself.
        let connection = self.shared.current().clone();
        if let Some(connection) = connection {
            connection.kill_now(name);
        }
    }

    /// What the kernel counted for a jail. `None`: there is no such jail.
    pub(crate) async fn count(&self, name: &str) -> Result<Option<Counters>, LauncherError> {
        self.ask(&Request::Count { name: name.to_owned() }, &[], connection::count(name)).await
    }

    /// Asks for the same without waiting; the answer comes by itself. `None`: it cannot be asked now.
    pub(crate) fn count_soon(&self, name: &str) -> Option<oneshot::Receiver<Option<Counters>>> {
        let connection = self.connection().ok()?;
        connection.ask_now(&Request::Count { name: name.to_owned() }, connection::count(name)).ok()
    }

    /// Puts a guest interpreter into a jail and gives its number; its agent says when it is warm. With `like` it is a fork
    /// of the very process that the other guest came from.
    pub(crate) async fn join(
        &self,
        name: &str,
        zygote: &str,
        owner: &str,
        like: Option<GuestId>,
    ) -> Result<WaitingGuest, LauncherError> {
        let request =
            Request::Join { name: name.to_owned(), zygote: zygote.to_owned(), owner: owner.to_owned(), like };
        let joined = self.ask(&request, &[], connection::join(name)).await?;
        if joined.is_ok() {
            self.shared.zygotes.note(zygote, owner);
        }
        joined.map_err(LauncherError::Refused)
    }

    /// Whether somebody joined from that zygote a short while ago: it is warm then.
    pub(crate) fn has_joined_lately(&self, zygote: &str, owner: &str) -> bool {
        self.shared.zygotes.are_warm(zygote, owner)
    }

    /// Sets how a jail meets its limits from now on. With a cookie it outlives this process.
    pub(crate) async fn keep(
        &self,
        name: &str,
        on_memory: OnMemory,
        lifetime: Option<Duration>,
        cookie: Option<&OwnedFd>,
    ) -> Result<(), LauncherError> {
        let request = Request::Keep { name: name.to_owned(), on_memory, lifetime };
        let given: Vec<_> = cookie.iter().map(|cookie| cookie.as_fd()).collect();
        let kept = self.ask(&request, &given, connection::done(name)).await?;
        kept.map(drop).map_err(LauncherError::Refused)
    }

    /// The same without a cookie and without waiting: a backstop that nobody has to hear of.
    pub(crate) fn keep_soon(&self, name: &str, on_memory: OnMemory, lifetime: Option<Duration>) {
        let request = Request::Keep { name: name.to_owned(), on_memory, lifetime };
        if let Ok(connection) = self.connection() {
            let _ = connection.ask_now(&request, connection::done(name));
        }
    }

    /// Makes a waiting guest go on as a copy of another.
    pub(crate) async fn transplant(
        &self,
        from: GuestId,
        to: GuestId,
    ) -> Result<TransplantReport, LauncherError> {
        let name = to.0.clone();
        let request = Request::Transplant { from, to };
        self.ask(&request, &[], connection::transplant(&name)).await?.map_err(LauncherError::Refused)
    }

    /// Stops everything in a jail, or lets it go on.
    pub(crate) async fn set_paused(&self, name: &str, paused: bool) -> Result<(), LauncherError> {
        let name_of = name.to_owned();
        let request =
            if paused { Request::Pause { name: name_of } } else { Request::Resume { name: name_of } };
        self.ask(&request, &[], connection::done(name)).await?.map(drop).map_err(LauncherError::Refused)
    }

    /// Replaces what the launcher remembers of a jail for us.
    pub(crate) async fn note(&self, name: &str, cookie: &OwnedFd) -> Result<(), LauncherError> {
        let request = Request::Note { name: name.to_owned() };
        let noted = self.ask(&request, &[cookie.as_fd()], connection::done(name)).await?;
        noted.map(drop).map_err(LauncherError::Refused)
    }

    /// The descriptors of a jail's captured network, which is made if there is none.
    pub(crate) async fn capture(&self, name: &str) -> Result<Vec<OwnedFd>, LauncherError> {
        let request = Request::Capture { name: name.to_owned() };
        let captured = self.ask(&request, &[], connection::done(name)).await?;
        captured.map(|given| given.descriptors).map_err(LauncherError::Refused)
    }

    /// The jails that the launcher kept, and those that ended while nobody listened.
    pub(crate) async fn list(&self) -> Result<(Vec<Listed>, Vec<Ended>), LauncherError> {
        let connection = self.connection()?;
        let (sender, mut listed) = mpsc::unbounded_channel();
        let done = self.ask(&Request::List, &[], connection::list(sender)).await;
        done?;
        let mut all = Vec::new();
        while let Ok(one) = listed.try_recv() {
            all.push(one);
        }
        Ok((all, connection.take_unheard()))
    }

    /// A new connection to the agent of a jail that was kept.
    pub(crate) async fn adopt(&self, name: &str) -> Result<Adoption, LauncherError> {
        let ended = self.connection()?.expect_end(name);
        let request = Request::Adopt { name: name.to_owned() };
        let adopted = self.ask(&request, &[], connection::done(name)).await?;
        let Given { meter, mut descriptors } = adopted.map_err(LauncherError::Refused)?;
        let meter = JailMeter::take(meter, &mut descriptors, &self.shared.gauges);
        Ok(Adoption { meter, descriptors, ended })
    }

    /// Ends every jail and the launcher.
    pub(crate) async fn shut_down(&self) -> Result<(), LauncherError> {
        let connection = self.connection()?;
        self.shared.dismissed.store(true, Ordering::Relaxed);
        connection.send(&Request::Shutdown).await.map_err(|_| self.absent())
    }
}

impl Shared {
    fn current(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the answers of one connection, for as long as there are any to come. `strangers`: what the launcher has is
    /// nobody's and ends before anybody asks.
    async fn listen(&self, connection: &Arc<Connection>, strangers: bool) {
        let reading = connection.read();
        tokio::pin!(reading);
        if strangers {
            tokio::select! {
                () = &mut reading => return,
                () = connection.end_everything() => {}
            }
        }
        *self.current() = Some(Arc::clone(connection));
        tokio::select! {
            () = reading => {}
            () = connection.watch() => {}
        }
    }

    /// Reads answers for as long as there is a launcher.
    async fn keep(&self, first: Arc<Connection>) {
        let mut connection = first;
        let mut strangers = false;
        loop {
            self.listen(&connection, strangers).await;
            // From here on nobody asks it; whoever waits hears it by the closed channel.
            *self.current() = None;
            connection.close();
            if connection.is_replaced() {
                tracing::error!("another process has taken the sandboxes over");
                // Held, so that nobody here is told that they ended.
                let _ = self.superseded.set(connection);
                self.lose("another process has taken the launcher and its sandboxes over");
                return;
            }
            if self.dismissed.load(Ordering::Relaxed) {
                return;
            }
            let Some(address) = &self.address else { return self.lose("the launcher is gone") };
            tracing::error!("the launcher is gone, and its sandboxes with it");
            match self.find_again(address).await {
                Some(found) => connection = Arc::new(found),
                None => return self.lose("the launcher is gone, and no other one could be had"),
            }
            tracing::info!("there is a launcher again");
            // If it is the old one, it has jails that everybody was told are gone.
            strangers = true;
        }
    }

    fn lose(&self, why: &str) {
        self.lost.send_replace(Some(why.to_owned()));
    }

    /// Connects to the launcher that comes next. Its guardian makes one; where that is gone too, the deputy makes both.
    async fn find_again(&self, address: &Path) -> Option<Connection> {
        let began = Instant::now();
        while began.elapsed() < GIVE_UP {
            tokio::time::sleep(AGAIN).await;
            let address = address.to_owned();
            // Connecting waits for the launcher's greeting.
            let found = tokio::task::spawn_blocking(move || resident::connect(&address)).await;
            match found.map(|found| found.map(|found| Connection::new(found.socket))) {
                Ok(Ok(Ok(connection))) => return Some(connection),
                Ok(Ok(Err(error))) => tracing::warn!(%error, "the launcher's socket cannot be used"),
                Ok(Err(error)) => tracing::debug!(%error, "the launcher is not back yet"),
                Err(_) => return None,
            }
            if let Some(deputy) = self.deputy.clone() {
                let restored = tokio::task::spawn_blocking(move || deputy.restore()).await;
                if let Ok(Err(error)) = restored {
                    tracing::warn!(%error, "nobody makes launchers any more");
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_jail::packet;
    use sandstorm_types::ErrorKind;

    use super::*;

    /// One that is stopped, or at work for ever: its socket takes what is said, and nothing comes from there.
    #[tokio::test]
    async fn who_asks_a_launcher_that_hangs_is_told_so_soon() {
        let (ours, theirs) = packet::pair().unwrap();
        let tasks = Tasks::default();
        let launcher = LauncherClient::new(ours, None, None, &tasks).unwrap();
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let asked = launcher.count("x").await;
        assert!(matches!(asked, Err(LauncherError::Silent)), "{asked:?}");
        assert!(began.elapsed() < Duration::from_secs(15), "after {:?}", began.elapsed());
        // Nobody waits for it again as long as it is like that.
        let asked = launcher.count("x").await;
        assert!(matches!(asked, Err(LauncherError::Silent)), "{asked:?}");
        assert!(began.elapsed() < Duration::from_secs(15), "after {:?}", began.elapsed());
        let told = crate::local::refused(LauncherError::Silent);
        assert_eq!(told.kind(), ErrorKind::Capacity);
        assert!(told.retry_after().is_some());
        drop(theirs);
    }
}
