//! Where the records of one conversation are: a folder of its own that goes with it. One whose process was killed is
//! removed by the next.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use sandstorm_config::Loaded;

use crate::local;
use crate::serve::private;

const LOCK: &str = "lock";

#[derive(Debug)]
pub(super) struct Place {
    folder: PathBuf,
    _lock: File,
}

impl Place {
    pub(super) fn take(loaded: &Loaded) -> anyhow::Result<Self> {
        let all = local::state_dir(loaded).context("there is no place for a state directory")?.join("mcp");
        private(&all)?;
        sweep(&all);
        let mut name = [0; 8];
        getrandom::fill(&mut name).context("this machine has no random numbers")?;
        let folder = all.join(format!("{:016x}", u64::from_le_bytes(name)));
        private(&folder)?;
        let lock = File::create(folder.join(LOCK)).context("could not make a lock")?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).context("could not take a lock")?;
        Ok(Self { folder, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Removes the folders of processes that are gone.
fn sweep(all: &Path) {
    let Ok(entries) = std::fs::read_dir(all) else { return };
    for folder in entries.flatten().map(|entry| entry.path()) {
        let Ok(lock) = File::open(folder.join(LOCK)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_dir_all(&folder);
        }
    }
}
