//! Dependency layers: what a run requires, as a read-only folder that is made once.
//!
//! Two steps, each kept: requirements become a *lock* (exact versions and hashes), and a lock becomes a *layer*. Both
//! happen in a sandbox whose network reaches the package index only. Whoever comes while a layer is being made waits
//! for it, in this process or another; nothing is made twice.
//!
//! Nothing that a package brings is executed while a layer is made, so tenants can share layers.

mod address;
mod failure;
mod index;
mod lock;
mod placing;
mod store;
mod workshop;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sandstorm_language::{Recipe, Roots, Toolchain};
use sandstorm_provider::{Error, HostMount, OpContext, Provider, Result};
use sandstorm_types::{ByteSize, Enforcement, ErrorKind, Requirement, Rule};
use tokio::sync::mpsc;

use crate::reserve::Room;
use crate::run::{Phase, RunEvent};
use index::Index;
use lock::{Lock, LockKey};
use store::{Claim, Store};
use workshop::Workshop;

/// Takes archives apart and puts them together. What is in them came out of a sandbox and is as hostile as what runs there.
pub trait Extract: fmt::Debug + Send + Sync + 'static {
    /// Unpacks into a folder that exists and is empty, and nowhere else. Says how many bytes the files hold.
    fn extract(&self, archive: &mut dyn io::Read, into: &Path, most_bytes: u64) -> io::Result<u64>;

    /// Writes what is in a folder that was unpacked here, but not the folder in it that is called `without`.
    fn pack(&self, folder: &Path, without: Option<&str>, into: &mut dyn io::Write) -> io::Result<()>;
}

/// Where a package manager's packages come from.
#[derive(Clone, Default)]
pub struct IndexSource {
    /// The address, without credentials. `None`: what the package manager has built in.
    pub address: Option<String>,
    /// `user:password` or a token.
    pub credentials: Option<String>,
    /// Further hosts that installing may reach, wherever they lie.
    pub hosts: Vec<Rule>,
}

impl fmt::Debug for IndexSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let credentials = self.credentials.as_ref().map(|_| "…");
        f.debug_struct("IndexSource")
            .field("address", &self.address)
            .field("credentials", &credentials)
            .field("hosts", &self.hosts)
            .finish()
    }
}

/// What layers are made with.
#[derive(Debug)]
pub struct LayersConfig {
    /// Where locks and layers are kept.
    pub dir: PathBuf,
    /// Layers that were used least recently go when all together are larger.
    pub max_bytes: u64,
    /// By the name of the package manager.
    pub indexes: BTreeMap<String, IndexSource>,
    pub extract: Arc<dyn Extract>,
}

/// Makes layers and keeps them.
#[derive(Debug)]
pub struct Layers {
    store: Store,
    indexes: BTreeMap<String, IndexSource>,
    extract: Arc<dyn Extract>,
}

/// A layer that stays in place for as long as this value lives.
#[derive(Debug)]
pub struct Layer {
    /// Tells layers with different content apart.
    pub key: String,
    pub mount: HostMount,
    _in_use: File,
}

/// Who asks for a layer, and for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) recipe: &'static Recipe,
    /// The toolchain of the recipe's language, with its version.
    pub(crate) toolchain: &'a Toolchain,
    pub(crate) requirements: &'a [Requirement],
    pub(crate) enforcement: Enforcement,
}

/// Where the work happens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) provider: &'a dyn Provider,
    pub(crate) roots: &'a Roots,
    pub(crate) cx: &'a OpContext,
    pub(crate) events: Option<&'a mpsc::Sender<RunEvent>>,
    /// The most that there is for it. `None`: nobody counts.
    pub(crate) room: Option<Room>,
}

impl Layers {
    pub fn new(config: LayersConfig) -> Self {
        let store = Store::new(config.dir, config.max_bytes);
        Self { store, indexes: config.indexes, extract: config.extract }
    }

    /// The layer for these requirements, from the store or fresh. Dropping the future leaves a sandbox for the
    /// provider's own clean-up and nothing in the store.
    pub(crate) async fn provide(&self, site: Site<'_>, wanted: Wanted<'_>) -> Result<Layer> {
        let recipe = wanted.recipe;
        let source = self.source(recipe);
        let key = LockKey::new(&wanted, &source);
        if let Some(lock) = self.store.lock(&key)?.filter(Lock::is_fresh)
            && let Some(layer) = self.ready(recipe, &lock.layer_key(&wanted)).map_err(broken)?
        {
            return Ok(layer);
        }
        self.announce(site, &wanted).await;
        let tool = self.tool(site, &wanted).await?;
        let own = recipe.detect(site.roots).map_err(|absent| missing(recipe, &absent))?;
        let index = self.index(site, &wanted, &own, &source).await?;
        let bench = Bench { layers: self, site, wanted, own: &own, index: &index, tool: tool.as_ref() };
        let _resolving = self.store.claim(site.cx, &self.store.lock_claim(&key)).await?;
        bench.make(&key).await
    }

    /// Memory that making the layer takes. `None`: it is there.
    pub(crate) fn memory_to_make(&self, wanted: &Wanted<'_>) -> Option<ByteSize> {
        let key = LockKey::new(wanted, &self.source(wanted.recipe));
        let fresh = self.store.lock(&key).ok().flatten().filter(Lock::is_fresh);
        let there =
            fresh.is_some_and(|lock| self.store.layer(&wanted.recipe.name, &lock.layer_key(wanted)).is_dir());
        (!there).then_some(workshop::MEMORY)
    }

    /// The layer that these requirements came to the last time, if it is still there. Nothing is made.
    pub(crate) fn kept(&self, wanted: &Wanted<'_>) -> Option<Layer> {
        let key = LockKey::new(wanted, &self.source(wanted.recipe));
        let lock = self.store.lock(&key).ok()??;
        self.ready(wanted.recipe, &lock.layer_key(wanted)).ok()?
    }

    /// Where a recipe's packages come from.
    fn source(&self, recipe: &Recipe) -> IndexSource {
        let name = recipe.index.same_as.as_ref().unwrap_or(&recipe.name);
        self.indexes.get(name).cloned().unwrap_or_default()
    }

    /// A layer that is there and not being made or removed right now.
    fn ready(&self, recipe: &Recipe, key: &str) -> io::Result<Option<Layer>> {
        let in_use = self.store.use_layer(&recipe.name, key)?;
        Ok(in_use.map(|in_use| {
            let source = self.store.layer(&recipe.name, key);
            Layer {
                key: key.to_owned(),
                mount: HostMount { source, target: recipe.mount.clone() },
                _in_use: in_use,
            }
        }))
    }

    async fn announce(&self, site: Site<'_>, wanted: &Wanted<'_>) {
        if let (Some(events), false) = (site.events, wanted.requirements.is_empty()) {
            let names: Vec<&str> = wanted.requirements.iter().map(Requirement::as_str).collect();
            let _ = events.send(RunEvent::Phase(Phase::Installing(names.join(", ")))).await;
        }
    }

    /// The layer with the program that the recipe works with, unless the machine has it.
    async fn tool(&self, site: Site<'_>, wanted: &Wanted<'_>) -> Result<Option<Layer>> {
        let Some(tool) = &wanted.recipe.tool else { return Ok(None) };
        if wanted.recipe.has_tool(site.roots) {
            return Ok(None);
        }
        let recipe = Recipe::named(&tool.recipe)
            .ok_or_else(|| Error::new(ErrorKind::Internal, "a recipe of the catalogue is missing"))?;
        let wanted = Wanted { recipe, requirements: &[], ..*wanted };
        Box::pin(self.provide(site, wanted)).await.map(Some)
    }

    async fn index(
        &self,
        site: Site<'_>,
        wanted: &Wanted<'_>,
        own: &Toolchain,
        source: &IndexSource,
    ) -> Result<Index> {
        let recipe = match &wanted.recipe.index.same_as {
            Some(other) => Recipe::named(other).unwrap_or(wanted.recipe),
            None => wanted.recipe,
        };
        index::find(&self.store, site, &Wanted { recipe, ..*wanted }, own, source).await
    }
}

/// Everything that one layer is made with.
struct Bench<'a> {
    layers: &'a Layers,
    site: Site<'a>,
    wanted: Wanted<'a>,
    own: &'a Toolchain,
    index: &'a Index,
    tool: Option<&'a Layer>,
}

impl Bench<'_> {
    /// Resolves where that is needed and makes the layer where it is missing. The caller holds the claim on the lock.
    async fn make(&self, key: &LockKey) -> Result<Layer> {
        let (store, recipe) = (&self.layers.store, self.wanted.recipe);
        // Somebody else may have resolved while we waited.
        let kept = store.lock(key)?;
        let mut shop = None;
        let lock = match kept {
            Some(lock) if lock.is_fresh() => lock,
            stale => match self.resolve(&mut shop).await {
                Ok(archive) => store.keep_lock(key, archive, self.is_pinned())?,
                // An index that is down should not end what worked yesterday.
                Err(error) if error.kind() == ErrorKind::Provider && stale.is_some() => {
                    tracing::warn!(%error, "the index cannot be asked; an older resolution is used");
                    self.close(shop.take()).await?;
                    stale.ok_or(error)?
                }
                Err(error) => {
                    self.close(shop).await?;
                    return Err(error);
                }
            },
        };
        let layer = lock.layer_key(&self.wanted);
        let made = self.install(&mut shop, &lock, &layer).await;
        self.close(shop).await?;
        made?;
        self.layers.ready(recipe, &layer).map_err(broken)?.ok_or_else(|| {
            Error::new(ErrorKind::Internal, "a layer vanished as soon as it was made").with("layer", &layer)
        })
    }

    fn is_pinned(&self) -> bool {
        self.wanted.requirements.iter().all(|r| self.wanted.recipe.is_pinned(r.as_str()))
    }

    async fn resolve(&self, shop: &mut Option<Workshop>) -> Result<bytes::Bytes> {
        let shop = shop.insert(self.open().await?);
        shop.perform(self.site, &self.wanted, "resolve", &self.wanted.recipe.resolve.script).await?;
        let archive = shop.pack(self.site, workshop::LOCK).await?;
        archive.collect(lock::MOST_BYTES).await
    }

    /// Makes the layer unless it is there. A sandbox that resolved serves again, with what it has downloaded already.
    async fn install(&self, shop: &mut Option<Workshop>, lock: &Lock, key: &str) -> Result<()> {
        let (store, recipe) = (&self.layers.store, self.wanted.recipe);
        let claim: Claim = store.claim(self.site.cx, &store.layer_claim(&recipe.name, key)).await?;
        if store.layer(&recipe.name, key).is_dir() {
            return Ok(());
        }
        let shop = match shop {
            Some(shop) => shop,
            None => {
                let shop = shop.insert(self.open().await?);
                shop.unpack(self.site, workshop::LOCK, lock.archive()).await?;
                shop
            }
        };
        shop.perform(self.site, &self.wanted, "install", &recipe.install.script).await?;
        let archive = shop.pack(self.site, workshop::LAYER).await?;
        let made = store.keep_layer(&recipe.name, key, archive, &self.layers.extract, &claim).await?;
        tracing::info!(manager = %recipe.name, layer = key, bytes = made, "made a dependency layer");
        drop(claim);
        store.shrink(&recipe.name, key);
        Ok(())
    }

    async fn open(&self) -> Result<Workshop> {
        Workshop::open(self.site, &self.wanted, self.own, Some(self.index), self.tool).await
    }

    async fn close(&self, shop: Option<Workshop>) -> Result<()> {
        match shop {
            Some(shop) => shop.close(self.site).await,
            None => Ok(()),
        }
    }
}

fn missing(recipe: &Recipe, absent: &[String]) -> Error {
    let message = format!("packages need {}, which is not installed", absent.join(", "));
    Error::new(ErrorKind::InvalidRequest, message)
        .with("install", format!("sudo apt-get install {}", recipe.install_hint.join(" ")))
}

/// The store itself failed.
pub(crate) fn broken(error: io::Error) -> Error {
    Error::new(ErrorKind::Internal, "the store of dependency layers cannot be used").with_source(error)
}
