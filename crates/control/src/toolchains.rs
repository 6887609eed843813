//! Which toolchains this machine has, looked for now and then instead of with each run.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandstorm_language::{Catalogue, Language, Roots, Toolchain};
use sandstorm_provider::{Error, Result};
use sandstorm_types::ErrorKind;

/// How long what was found is taken as still so. What was not found is looked for each time.
const FRESH: Duration = Duration::from_secs(1);

/// What was found lately, by language.
#[derive(Debug)]
pub(crate) struct Toolchains {
    pub(crate) roots: Roots,
    found: Mutex<HashMap<&'static str, (Instant, Toolchain)>>,
    mounts: Mutex<Option<(Instant, Vec<PathBuf>)>>,
}

impl Toolchains {
    pub(crate) fn new(roots: Roots) -> Self {
        Self { roots, found: Mutex::default(), mounts: Mutex::default() }
    }

    /// What all toolchains need outside the host's own trees, whichever will be used. It changes with the host.
    pub(crate) fn mounts(&self) -> Vec<PathBuf> {
        let mut mounts = self.mounts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, paths)) = mounts.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return paths.clone();
        }
        let found = Catalogue::embedded().iter().filter_map(|language| language.detect(&self.roots).ok());
        let mut paths: Vec<PathBuf> = found.flat_map(|toolchain| toolchain.mounts).collect();
        paths.sort();
        paths.dedup();
        *mounts = Some((Instant::now(), paths.clone()));
        paths
    }

    pub(crate) fn of(&self, language: &'static Language) -> Result<Toolchain> {
        let found = || self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, toolchain)) = found().get(language.name.as_str())
            && at.elapsed() < FRESH
        {
            return Ok(toolchain.clone());
        }
        let mut toolchain = language.detect(&self.roots).map_err(|missing| {
            let what = missing.absent.join(", ");
            let how = missing.install.command();
            Error::new(
                ErrorKind::InvalidRequest,
                format!("{} is not installed: {what} not found", language.title),
            )
            .with("install", how)
        })?;
        toolchain.version = Some(stamp(&toolchain));
        found().insert(language.name.as_str(), (Instant::now(), toolchain.clone()));
        Ok(toolchain)
    }
}

/// Tells toolchains apart without starting them: a new version is another file.
fn stamp(toolchain: &Toolchain) -> String {
    let mut stamp = String::new();
    for path in toolchain.programs.values() {
        if let Ok(found) = std::fs::metadata(path) {
            stamp.push_str(&format!(
                "{}:{}:{}.{};",
                path.display(),
                found.size(),
                found.mtime(),
                found.mtime_nsec()
            ));
        }
    }
    stamp
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_toolchains_need_follows_the_host() {
        let base = tempfile::tempdir().unwrap();
        let on_disk = |path: &str| base.path().join(path.trim_start_matches('/'));
        for file in ["/usr/bin/java", "/usr/bin/javac", "/etc/java-17-openjdk/jvm.cfg"] {
            fs::create_dir_all(on_disk(file).parent().unwrap()).unwrap();
            fs::write(on_disk(file), "").unwrap();
            fs::set_permissions(on_disk(file), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let toolchains = Toolchains::new(Roots::at(base.path()));
        let java = |version: u32| vec![PathBuf::from(format!("/etc/java-{version}-openjdk"))];
        assert_eq!(toolchains.mounts(), java(17));
        // As a package manager does it with a new version.
        fs::rename(on_disk("/etc/java-17-openjdk"), on_disk("/etc/java-21-openjdk")).unwrap();
        std::thread::sleep(FRESH);
        assert_eq!(toolchains.mounts(), java(21));
        assert_eq!(toolchains.mounts(), java(21), "what was found lately");
    }
}
