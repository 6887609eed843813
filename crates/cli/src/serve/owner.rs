//! One server for one state directory.
//!
//! A second one would take the launcher from the first, and both would write the same files. So whoever serves holds a
//! lock, taken before anything else is touched. It belongs to this process alone: the launcher and its guardian are forked
//! from it and outlive it, and must not hold it for the next server to find.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, OFlags, fcntl_lock};
use rustix::io::Errno;

/// Held for as long as this process serves from a state directory. Nothing else in this process may open the file: to close
/// it again would give the lock up.
#[derive(Debug)]
pub(crate) struct Ownership {
    _lock: File,
}

impl Ownership {
    /// Takes it with the rights of the directory's owner. What is below the directory is not touched.
    pub(super) fn take(state: &Path) -> anyhow::Result<Self> {
        let path = state.join("serve.lock");
        let failed = || format!("could not lock {}", path.display());
        // A link or a pipe of that name is somebody's trick.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = options.custom_flags(flags.bits() as i32).open(&path).with_context(failed)?;
        match fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN | Errno::ACCESS) => {
                let mut holder = String::new();
                let _ = lock.read_to_string(&mut holder);
                bail!(
                    "another server (process {}) serves from {}; stop it first, or give this one a state directory \
                     of its own with --state-dir",
                    holder.trim(),
                    state.display()
                );
            }
            Err(error) => return Err(error).with_context(failed),
        }
        // For people, and for the words above.
        lock.set_len(0).and_then(|()| lock.rewind()).with_context(failed)?;
        writeln!(lock, "{}", std::process::id()).with_context(failed)?;
        Ok(Self { _lock: lock })
    }
}
