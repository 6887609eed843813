//! Which toolchains this machine has, looked for now and then instead of with each run.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandstorm_language::{Language, Roots, Toolchain};
use sandstorm_provider::{Error, Result};
use sandstorm_types::ErrorKind;

/// How long what was found is taken as still so. What was not found is looked for each time.
const FRESH: Duration = Duration::from_secs(1);

/// What was found lately, by language.
#[derive(Debug)]
pub(crate) struct Toolchains {
    pub(crate) roots: Roots,
    found: Mutex<HashMap<&'static str, (Instant, Toolchain)>>,
}

impl Toolchains {
    pub(crate) fn new(roots: Roots) -> Self {
        Self { roots, found: Mutex::default() }
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
