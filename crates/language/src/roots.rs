//! What a sandbox will see of a file system, asked before there is a sandbox.
//!
//! Template `host` shows `/usr`, the folders beside it that hold programs and libraries, and `/etc/alternatives`. A
//! program is only there if the whole way to it is: `/usr/local/bin/python3` that links into somebody's home is not.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

const VISIBLE: [&str; 8] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives"];
const SEARCH: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// A file system as the sandbox will see it. Paths given and returned are those inside the sandbox.
#[derive(Debug, Clone)]
pub struct Roots {
    base: PathBuf,
    visible: Vec<PathBuf>,
    search: Vec<PathBuf>,
    /// Interpreters and compilers that the operator chose, by language.
    chosen: BTreeMap<String, PathBuf>,
}

impl Roots {
    /// The host's own file system.
    pub fn host() -> Self {
        Self::at("/")
    }

    /// A file system that is laid out below `base`, an unpacked image for one.
    pub fn at(base: impl Into<PathBuf>) -> Self {
        Self {
            base: base.into(),
            visible: VISIBLE.iter().map(PathBuf::from).collect(),
            search: SEARCH.iter().map(PathBuf::from).collect(),
            chosen: BTreeMap::new(),
        }
    }

    /// Adds a toolchain that the operator configured, which the sandbox shows under its own path. Its `bin`, or the
    /// folder itself, is searched before the usual places.
    #[must_use]
    pub fn with_toolchain(mut self, folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        self.search.splice(0..0, [folder.join("bin"), folder.clone()]);
        self.visible.push(folder);
        self
    }

    /// Chooses the interpreter or compiler of a language, as an absolute path in the sandbox. Nothing else is then taken
    /// in its place.
    #[must_use]
    pub fn with_program(mut self, language: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        self.chosen.insert(language.into(), program.into());
        self
    }

    pub(crate) fn chosen(&self, language: &str) -> Option<&Path> {
        self.chosen.get(language).map(PathBuf::as_path)
    }

    /// The path of a program that the sandbox's user can start, by name or by absolute path.
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        let runs = |path: &PathBuf| {
            let found = self.resolve(path).and_then(|real| fs::metadata(self.on_disk(&real)).ok());
            // The payload owns nothing here and is in no group: only the rights of everybody count.
            found.is_some_and(|found| found.is_file() && found.permissions().mode() & 0o001 != 0)
        };
        if name.starts_with('/') {
            return Some(PathBuf::from(name)).filter(runs);
        }
        self.search.iter().map(|folder| folder.join(name)).find(runs)
    }

    /// Whether the sandbox sees something at this path.
    pub(crate) fn shows(&self, path: &str) -> bool {
        self.resolve(Path::new(path)).is_some()
    }

    /// Folders and files that match a pattern like `/etc/java-*-openjdk`. Links are not followed, so that none of them can show
    /// another part of the host.
    pub(crate) fn trees(&self, pattern: &str) -> Vec<PathBuf> {
        let mut found = vec![PathBuf::from("/")];
        for name in pattern.split('/').filter(|name| !name.is_empty()) {
            found = found.iter().flat_map(|folder| self.matching(folder, name)).collect();
        }
        found.sort();
        found
    }

    fn matching(&self, folder: &Path, pattern: &str) -> Vec<PathBuf> {
        let names = match pattern.split_once('*') {
            None => vec![OsString::from(pattern)],
            Some((prefix, suffix)) => {
                let entries = fs::read_dir(self.on_disk(folder)).into_iter().flatten().flatten();
                let fits = |name: &str| {
                    name.len() >= prefix.len() + suffix.len()
                        && name.starts_with(prefix)
                        && name.ends_with(suffix)
                };
                entries
                    .map(|entry| entry.file_name())
                    .filter(|name| name.to_str().is_some_and(fits))
                    .collect()
            }
        };
        let is_plain = |path: &PathBuf| {
            fs::symlink_metadata(self.on_disk(path)).is_ok_and(|found| found.is_dir() || found.is_file())
        };
        names.into_iter().map(|name| folder.join(name)).filter(is_plain).collect()
    }

    /// Follows a path link by link, as a process in the sandbox would, and gives where it ends.
    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let mut todo: Vec<OsString> = names(path).collect();
        todo.reverse();
        let mut here = PathBuf::from("/");
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == ".." {
                here.pop();
                continue;
            }
            let next = here.join(&name);
            if !self.sees(&next) {
                return None;
            }
            let found = fs::symlink_metadata(self.on_disk(&next)).ok()?;
            if !found.is_symlink() {
                here = next;
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return None;
            }
            let target = fs::read_link(self.on_disk(&next)).ok()?;
            if target.is_absolute() {
                here = PathBuf::from("/");
            }
            let ahead: Vec<_> = names(&target).collect();
            todo.extend(ahead.into_iter().rev());
        }
        self.visible.iter().any(|root| here.starts_with(root)).then_some(here)
    }

    /// Whether a path lies in something visible, or on the way to it.
    fn sees(&self, path: &Path) -> bool {
        self.visible.iter().any(|root| path.starts_with(root) || root.starts_with(path))
    }

    fn on_disk(&self, path: &Path) -> PathBuf {
        self.base.join(path.strip_prefix("/").unwrap_or(path))
    }
}

fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
