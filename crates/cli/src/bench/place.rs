//! A folder for one bench, that the server's user can reach too; gone with its holder.

use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::command::CommandLine;

#[derive(Debug)]
pub(super) struct Place(PathBuf);

impl Place {
    pub(super) fn make() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("sandstorm-bench-{}", std::process::id()));
        std::fs::DirBuilder::new()
            .mode(0o755)
            .create(&path)
            .with_context(|| format!("could not make {}", path.display()))?;
        Ok(Self(path))
    }

    /// A new folder in it.
    pub(super) fn folder(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.0.join(name);
        std::fs::create_dir_all(&path).with_context(|| format!("could not make {}", path.display()))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Engines for containers leave some behind, and what is mounted cannot be removed.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let points = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
        for point in points.filter(|point| Path::new(point).starts_with(&self.0)) {
            let _ = CommandLine::from(["/usr/bin/umount", point]).told();
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
