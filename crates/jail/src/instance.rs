//! An instance: one launcher with its lease, its part of the cgroup tree and nobody else's.
//!
//! The lease is a locked file. A lock that is free belongs to an instance that is gone, however it ended; whoever finds
//! it ends and removes what stands below that instance's part of the tree, and touches nothing else.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::cgroup::{Hierarchies, sweep};
use crate::error::{JailError, doing};

/// The lease of this process.
#[derive(Debug)]
pub(crate) struct Instance {
    name: String,
    path: PathBuf,
    _lock: File,
}

impl Instance {
    /// Takes a lease under a name that nobody had. It says below which parent our groups are, for whoever may have to
    /// sweep them with another configuration than ours.
    pub(crate) fn begin(runtime: &Path, parent: &Path) -> Result<Self, JailError> {
        let dir = runtime.join("instances");
        private_directory(&dir)?;
        loop {
            let name = random_name()?;
            let path = dir.join(&name);
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            let mut lock = made.map_err(doing(format!("create {}", path.display())))?;
            // A sweeper may have been quicker with the new file: then it is about to remove it.
            if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
                && is_still_there(&lock, &path)
            {
                let parent = parent.as_os_str().as_encoded_bytes();
                lock.write_all(parent).map_err(doing(format!("write {}", path.display())))?;
                return Ok(Self { name, path, _lock: lock });
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Gives the lease back once nothing stands below it any more.
    pub(crate) fn end(self, hierarchies: &Hierarchies, parent: &Path) {
        if sweep(hierarchies, &parent.join(&self.name)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes what instances that are gone left behind.
pub(crate) fn sweep_dead(runtime: &Path, hierarchies: &Hierarchies) {
    let Ok(leases) = fs::read_dir(runtime.join("instances")) else { return };
    for lease in leases.flatten() {
        let Ok(file) = File::open(lease.path()) else { continue };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        // One without a parent was lost before it had any group.
        let clean = match fs::read_to_string(lease.path()) {
            Ok(parent) if !parent.is_empty() => {
                sweep(hierarchies, &Path::new(&parent).join(lease.file_name()))
            }
            _ => true,
        };
        if clean {
            let _ = fs::remove_file(lease.path());
        }
    }
}

/// A sweeper that was quicker has removed the file: a lock on what nobody can find would be no lease.
fn is_still_there(lock: &File, path: &Path) -> bool {
    let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    lock.metadata().ok().zip(fs::symlink_metadata(path).ok()).is_some_and(|(ours, found)| same(ours, found))
}

/// Makes a directory that only we can write to, or checks that an existing one is.
pub(crate) fn private_directory(path: &Path) -> Result<(), JailError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(doing(format!("create {}", path.display())))?;
    let found = fs::symlink_metadata(path).map_err(doing(format!("look at {}", path.display())))?;
    let ours =
        found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0 && found.is_dir();
    if ours {
        return Ok(());
    }
    let source = io::Error::from(io::ErrorKind::PermissionDenied);
    let doing =
        format!("use {}: it belongs to user {} or others can write to it", path.display(), found.uid());
    Err(JailError::Host { doing, source })
}

/// A directory with nothing in it, below the private one.
pub(crate) fn empty_directory(runtime_dir: &Path) -> Result<OwnedFd, JailError> {
    use rustix::fs::{Mode, OFlags};
    private_directory(runtime_dir)?;
    let path = runtime_dir.join("empty");
    // It is seen as the lowest part of what jails see, and so has to be open to all.
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(&path);
    made.map_err(doing(format!("create {}", path.display())))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::open(&path, flags, Mode::empty()).map_err(doing(format!("open {}", path.display())))
}

fn random_name() -> Result<String, JailError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(doing("get random bytes"))?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_unique_and_goes_with_its_holder() {
        let runtime = tempfile::tempdir().unwrap();
        let none = Hierarchies::default();
        let parent = Path::new("sandstorm");
        let a = Instance::begin(runtime.path(), parent).unwrap();
        let b = Instance::begin(runtime.path(), parent).unwrap();
        assert_ne!(a.name(), b.name());
        let kept = b.path.clone();
        // `a` ends without giving its lease back, as after a crash.
        let lost = a.path.clone();
        drop(a);
        sweep_dead(runtime.path(), &none);
        assert!(!lost.exists(), "the dead lease was not swept");
        assert!(kept.exists(), "a living lease was swept");
        b.end(&none, parent);
        assert!(!kept.exists());
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(private_directory(dir.path()).is_err());
    }
}
