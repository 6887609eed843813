//! Sandboxes that are made before anybody asks for them.
//!
//! A creation takes one of its kind where there is one, and is made from nothing where there is none; it never waits for a
//! fill. How many there are follows demand ([`demand`]), within bounds that tenants share ([`share`]); what to do about
//! the difference is decided by [`stock`], and done by one task, which has few fills under way at a time. A sandbox serves
//! one tenant once: none ever comes back.

mod demand;
mod figures;
mod key;
mod newborn;
mod share;
mod stock;
mod zygotes;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use sandstorm_jail::cgroup::Extent;
use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, SandboxId};
use tokio::sync::Notify;

use self::figures::Figures;
pub(crate) use self::key::Key;
pub(crate) use self::newborn::{Maker, Newborn, Wanted, unusable};
use self::share::Bounds;
use self::stock::{Kind, Rules, Stock};
pub(crate) use self::zygotes::Zygotes;

/// How often the shelves are looked at when nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// How long a fill waits for the request that made it necessary, while others of its kind are ready: what is made ahead
/// must not take the processor from what is wanted now.
const SETTLE: Duration = Duration::from_millis(3);
/// How long a fill may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a fill waits for work that goes first.
const POLITE: Duration = Duration::from_millis(20);
/// Every so manyth of a kind is weighed.
const WEIGHED: u64 = 16;

/// How large the pool may be, and how old what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolConfig {
    /// Most sandboxes that wait, of all tenants together.
    pub max: usize,
    /// Most bytes that they take.
    pub memory: u64,
    pub max_age: Duration,
}

/// The pool of one provider.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    maker: Maker,
    stock: Mutex<Stock<Key, Newborn>>,
    figures: Figures,
    wake: Notify,
    /// Creations under way that found nothing here.
    waiting: AtomicUsize,
    fills: AtomicUsize,
    /// Work under way that somebody waits for and that leaves no processor idle.
    urgent: AtomicUsize,
    rests: Notify,
}

/// Work that goes before what is made ahead, for as long as it lasts.
#[derive(Debug)]
pub(crate) struct Urgent<'a>(&'a Shared);

impl Drop for Urgent<'_> {
    fn drop(&mut self) {
        if self.0.urgent.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.rests.notify_waiters();
        }
    }
}

/// A creation that goes without the pool, for as long as it lasts: meanwhile little is made ahead.
#[derive(Debug)]
pub(crate) struct Unserved<'a>(&'a Shared);

impl Drop for Unserved<'_> {
    fn drop(&mut self) {
        if self.0.waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.wake.notify_one();
        }
    }
}

impl Pool {
    /// Must be called inside a tokio runtime.
    pub(crate) fn new(config: PoolConfig, maker: Maker) -> Self {
        let at_once = std::thread::available_parallelism().map_or(1, usize::from).clamp(1, 4);
        let bounds = Bounds { entries: config.max, memory: config.memory };
        let shared = Arc::new(Shared {
            figures: Figures::new(maker.zygotes.names()),
            stock: Mutex::new(Stock::new(Rules { bounds, max_age: config.max_age, at_once })),
            wake: Notify::new(),
            waiting: AtomicUsize::new(0),
            fills: AtomicUsize::new(0),
            urgent: AtomicUsize::new(0),
            rests: Notify::new(),
            maker,
        });
        let keeper = Arc::clone(&shared);
        shared.maker.tasks.start("pool", async move { keeper.keep().await });
        Self { shared }
    }

    /// One of this kind that is ready. Where its interpreter is missing, one without does.
    pub(crate) fn take(&self, key: &Arc<Key>) -> Option<Newborn> {
        let shared = &*self.shared;
        let now = Instant::now();
        let mut stock = shared.stock();
        let taken = stock.take(key, now);
        let mut kind = key.label();
        let taken = taken.or_else(|| {
            let spare = key.zygote().and_then(|_| stock.take_spare(&key.bare(), now));
            kind = if spare.is_some() { Key::BARE } else { kind };
            spare
        });
        let wake = stock.needs_work(key, now);
        drop(stock);
        if wake {
            shared.wake.notify_one();
        }
        match taken {
            Some((newborn, age)) => {
                shared.figures.hit(kind, age);
                Some(newborn)
            }
            None => {
                shared.figures.miss(kind);
                None
            }
        }
    }

    /// Says that a creation is under way without the pool.
    pub(crate) fn unserved(&self) -> Unserved<'_> {
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        Unserved(&self.shared)
    }

    /// Says that work is under way that goes first.
    pub(crate) fn urgent(&self) -> Urgent<'_> {
        self.shared.urgent.fetch_add(1, Ordering::Relaxed);
        Urgent(&self.shared)
    }

    /// Keeps this many of a kind ready at all times.
    pub(crate) fn pin(&self, key: &Arc<Key>, count: usize) {
        self.shared.stock().pin(key, count, Instant::now());
        self.shared.wake.notify_one();
    }

    /// Gives one up whose place somebody needs, and says whether there was one.
    pub(crate) async fn make_room(&self) -> bool {
        let spare = self.shared.stock().spare();
        match spare {
            Some(newborn) => {
                newborn.end().await;
                true
            }
            None => false,
        }
    }

    /// Gives everything up, now and from now on, and waits until nothing is left of it.
    pub(crate) async fn drain(&self) {
        let all = self.shared.stock().drain();
        self.shared.wake.notify_one();
        let ends = all.into_iter().map(|(key, newborn, why)| {
            self.shared.figures.evicted(key.label(), why);
            newborn.end()
        });
        futures_util::future::join_all(ends).await;
    }

    /// How many wait, of everybody.
    pub(crate) fn ready(&self) -> usize {
        self.shared.stock().shelves().map(|(_, shelf)| shelf.ready()).sum()
    }
}

impl Shared {
    fn stock(&self) -> MutexGuard<'_, Stock<Key, Newborn>> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what the shelves need for as long as there is a pool.
    async fn keep(&self) {
        let mut fills = FuturesUnordered::new();
        loop {
            let waiting = self.waiting.load(Ordering::Relaxed);
            let (work, empty) = {
                let mut stock = self.stock();
                let work = stock.work(Instant::now(), waiting);
                self.figures.show(&stock);
                (work, stock.is_empty())
            };
            for (key, newborn, why) in work.evict {
                self.figures.evicted(key.label(), why);
                drop(newborn);
            }
            for key in work.fill {
                fills.push(self.fill(key));
            }
            let tick = async {
                match empty {
                    true => std::future::pending().await,
                    false => tokio::time::sleep(TICK).await,
                }
            };
            tokio::select! {
                () = self.wake.notified() => self.settle().await,
                Some(()) = fills.next() => {}
                () = tick => {}
            }
        }
    }

    /// Waits a moment, unless somebody may come away empty-handed.
    async fn settle(&self) {
        let hurried = self.waiting.load(Ordering::Relaxed) > 0 || self.stock().is_short();
        if !hurried {
            tokio::time::sleep(SETTLE).await;
        }
    }

    async fn fill(&self, key: Arc<Key>) {
        self.let_others_go_first(&key).await;
        let began = Instant::now();
        match tokio::time::timeout(PATIENCE, self.make(&key)).await.unwrap_or_else(|_| Err(too_slow())) {
            Ok(newborn) => {
                let took = began.elapsed();
                self.figures.filled(key.label(), took);
                let weight = self.weigh(&newborn).await;
                let mut stock = self.stock();
                stock.put(&key, newborn, took, Instant::now());
                if let Some(bytes) = weight {
                    stock.weigh(&key, bytes);
                }
            }
            Err(error) => {
                tracing::debug!(%error, kind = key.label(), "a sandbox could not be made ahead");
                self.figures.fill_failed(key.label());
                self.stock().fail(&key, Instant::now());
            }
        }
    }

    /// Waits a moment for urgent work, while there are others of this kind.
    async fn let_others_go_first(&self, key: &Key) {
        let rests = self.rests.notified();
        if self.urgent.load(Ordering::Relaxed) > 0 && self.stock().has_ready(key) {
            let _ = tokio::time::timeout(POLITE, rests).await;
        }
    }

    async fn make(&self, key: &Key) -> Result<Newborn> {
        let owner = key.tenant().to_string();
        let wanted = key.zygote().map(|zygote| Wanted { zygote, owner: &owner });
        // A name of its own: whose it will be is not known yet.
        let jail = key.jail(SandboxId::random().bare());
        let mut newborn = self.maker.make(jail, None, wanted).await?;
        if let Some(meter) = &mut newborn.meter {
            meter.open();
        }
        match wanted.is_some() && newborn.guest.is_none() {
            true => Err(Error::new(ErrorKind::Provider, "no interpreter was to be had")),
            false => Ok(newborn),
        }
    }

    /// What one takes; not every one is asked.
    async fn weigh(&self, newborn: &Newborn) -> Option<u64> {
        if !(self.fills.fetch_add(1, Ordering::Relaxed) as u64).is_multiple_of(WEIGHED) {
            return None;
        }
        let read = newborn.meter.as_ref().and_then(|meter| meter.read(Extent::Everything));
        match read {
            Some(counters) => counters.memory_bytes,
            None => self.maker.launcher.count(newborn.name()).await.ok()??.memory_bytes,
        }
    }
}

fn too_slow() -> Error {
    Error::new(ErrorKind::Timeout, "it takes too long")
}
