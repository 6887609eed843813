//! Where a server keeps its things: all below the state directory, for its own user alone.
//!
//! ```text
//! sandstorm.db      the database, unless PostgreSQL is configured
//! audit.anchor      the latest checkpoints of the audit chain, beside the database on purpose
//! intents           what is about to be done and not in the database yet
//! clock             by which clock the records are
//! secrets/          pepper, audit key, the mark on what is elsewhere
//! serve/journal/    what execs wrote, until their sandbox ends
//! serve/spool/      long output on its way to who asked for it, in files without names
//! serve/cache/      layers and compiled programs of this server's runs
//! launcher.sock     the launcher; admin.sock the operators' routes
//! serve.lock        held by the server that serves from here
//! ```

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sandstorm_config::{Durability, Loaded};
use sandstorm_control::make_room;
use sandstorm_control::server::Pepper;
use sandstorm_store::{AuditKey, StoreConfig};

use super::owner::Ownership;
use super::secrets::{private, secret};
use super::user::ServerUser;

/// Where a server with this state directory keeps layers and compiled programs.
pub(super) fn cache_of(state: &Path) -> PathBuf {
    state.join("serve/cache")
}

/// The server's part of the state directory.
#[derive(Debug, Clone)]
pub(crate) struct Home(PathBuf);

impl Home {
    /// Makes what is missing, for the server's user. Root makes and gives away the directory itself and nothing in it:
    /// what is below is done with that user's rights, who may have put links there.
    pub(crate) fn open(loaded: &Loaded, user: Option<ServerUser>) -> anyhow::Result<Self> {
        Self::open_and(loaded, user, |_| Ok(())).map(|(home, ())| home)
    }

    /// The same for the one server that serves from there.
    pub(super) fn own(loaded: &Loaded, user: Option<ServerUser>) -> anyhow::Result<(Self, Ownership)> {
        Self::open_and(loaded, user, |home| Ownership::take(&home.0))
    }

    /// Does something first, before anything in the directory is touched.
    fn open_and<T>(
        loaded: &Loaded,
        user: Option<ServerUser>,
        first: impl Fn(&Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<(Self, T)> {
        let home = Self(loaded.state_dir()?.to_owned());
        let work = || {
            let done = first(&home)?;
            home.furnish()?;
            Ok(done)
        };
        let done = match user {
            Some(user) => {
                user.own(&home.0)?;
                user.act(work)?
            }
            None => {
                private(&home.0)?;
                work()?
            }
        };
        Ok((home, done))
    }

    fn furnish(&self) -> anyhow::Result<()> {
        // Layers too: the launcher mounts from what is there when it starts.
        if self.spool().exists() {
            // An earlier server has set something aside for this one, should the disk be full.
            make_room(&self.spool()).context("the space on the disk cannot be looked at")?;
        }
        let serve = [self.0.join("serve"), self.journals(), self.spool(), self.cache(), self.layers()];
        for dir in [self.secrets()].iter().chain(&serve) {
            private(dir)?;
        }
        self.pepper()?;
        self.audit_key()?;
        self.owner()?;
        Ok(())
    }

    /// For commands that work on the state directory of a server that may be running. Root becomes the server's user
    /// for good: it has no other business there. Only while there is one thread.
    pub(crate) fn visit(loaded: &Loaded) -> anyhow::Result<Self> {
        let user = ServerUser::choose(loaded)?;
        let home = Self::open(loaded, user)?;
        if let Some(user) = user {
            user.become_it()?;
        }
        Ok(home)
    }

    /// The state directory itself.
    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    fn secrets(&self) -> PathBuf {
        self.0.join("secrets")
    }

    pub(crate) fn journals(&self) -> PathBuf {
        self.0.join("serve/journal")
    }

    pub(crate) fn spool(&self) -> PathBuf {
        self.0.join("serve/spool")
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.0.join("serve/snapshots")
    }

    /// What was learned about providers.
    pub(crate) fn learned(&self) -> PathBuf {
        self.0.join("serve/learned.json")
    }

    pub(crate) fn cache(&self) -> PathBuf {
        cache_of(&self.0)
    }

    pub(crate) fn layers(&self) -> PathBuf {
        self.cache().join("layers")
    }

    pub(crate) fn launcher_socket(&self) -> PathBuf {
        self.0.join("launcher.sock")
    }

    pub(crate) fn admin_socket(&self) -> PathBuf {
        self.0.join("admin.sock")
    }

    /// Where the server's user puts what root is about to copy.
    pub(crate) fn draft(&self) -> PathBuf {
        self.0.join(format!("backup-{}.draft", std::process::id()))
    }

    pub(crate) fn pepper(&self) -> anyhow::Result<Pepper> {
        secret(&self.secrets(), "pepper").map(Pepper)
    }

    /// The mark of this installation on what it has elsewhere.
    pub(crate) fn owner(&self) -> anyhow::Result<String> {
        let bytes = secret(&self.secrets(), "owner")?;
        let text = data_encoding::BASE32_NOPAD.encode(&bytes[..16]);
        Ok(text.to_ascii_lowercase())
    }

    pub(crate) fn audit_key(&self) -> anyhow::Result<AuditKey> {
        secret(&self.secrets(), "audit").map(AuditKey::from_bytes)
    }

    pub(crate) fn store(
        &self,
        database: Option<String>,
        durability: Durability,
    ) -> anyhow::Result<StoreConfig> {
        let mut config = StoreConfig::in_directory(&self.0, database, self.audit_key()?);
        config.durability = match durability {
            Durability::Normal => sandstorm_store::Durability::Normal,
            Durability::Full => sandstorm_store::Durability::Full,
        };
        Ok(config)
    }
}
