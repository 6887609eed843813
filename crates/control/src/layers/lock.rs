//! Resolutions: exact versions and hashes, as the package manager itself writes them down.

use std::io::Read;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, Requirement};

use super::{IndexSource, Wanted};

/// Largest lock that is kept.
pub(crate) const MOST_BYTES: usize = 16 << 20;

/// An unpinned resolution is asked for again after this long.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);

/// The name of a resolution: what was asked for, of whom, for which toolchain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockKey(String);

impl LockKey {
    pub(crate) fn new(wanted: &Wanted<'_>, source: &IndexSource) -> Self {
        let mut requirements: Vec<&str> = wanted.requirements.iter().map(Requirement::as_str).collect();
        requirements.sort_unstable();
        requirements.dedup();
        let mut hash = Hash::new("sandstorm resolution v1", wanted);
        hash.field(source.address.as_deref().unwrap_or_default().as_bytes());
        hash.field(wanted.recipe.resolve.script.as_bytes());
        for requirement in requirements {
            hash.field(requirement.as_bytes());
        }
        Self(hash.finish())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A resolution: an archive of the files that the package manager wrote.
#[derive(Debug, Clone)]
pub(crate) struct Lock {
    archive: Bytes,
    files: Vec<(Vec<u8>, Vec<u8>)>,
    pinned: bool,
    made: SystemTime,
}

impl Lock {
    pub(crate) fn new(archive: Bytes, pinned: bool, made: SystemTime) -> Result<Self> {
        let malformed =
            |e: std::io::Error| Error::new(ErrorKind::Internal, "a resolution is malformed").with_source(e);
        let mut files = Vec::new();
        for entry in tar::Archive::new(&*archive).entries().map_err(malformed)? {
            let mut entry = entry.map_err(malformed)?;
            if entry.header().entry_type().is_file() {
                let mut content = Vec::new();
                entry.read_to_end(&mut content).map_err(malformed)?;
                files.push((entry.path_bytes().into_owned(), content));
            }
        }
        if files.is_empty() {
            return Err(Error::new(ErrorKind::Internal, "the package manager wrote no resolution"));
        }
        files.sort_unstable();
        Ok(Self { archive, files, pinned, made })
    }

    pub(crate) fn archive(&self) -> Bytes {
        self.archive.clone()
    }

    pub(crate) fn is_fresh(&self) -> bool {
        // A clock that was set back makes a lock of the future; it counts as just made.
        self.pinned || self.made.elapsed().unwrap_or_default() < FRESH
    }

    /// The name of the layer that this resolution becomes. Times and owners in the archive are no part of it.
    pub(crate) fn layer_key(&self, wanted: &Wanted<'_>) -> String {
        let mut hash = Hash::new("sandstorm layer v1", wanted);
        hash.field(wanted.recipe.install.script.as_bytes());
        for (path, content) in &self.files {
            hash.field(path);
            hash.field(content);
        }
        hash.finish()
    }
}

/// Lengths go in front of contents, so that nothing moves from one field to its neighbour.
pub(crate) struct Hash(blake3::Hasher);

impl Hash {
    pub(crate) fn new(context: &str, wanted: &Wanted<'_>) -> Self {
        let mut hash = Self(blake3::Hasher::new_derive_key(context));
        hash.field(wanted.recipe.name.as_bytes());
        hash.field(wanted.toolchain.version.as_deref().unwrap_or_default().as_bytes());
        hash
    }

    pub(crate) fn field(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    pub(crate) fn finish(&self) -> String {
        self.0.finalize().to_hex()[..32].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sandstorm_language::{PackageManager, Recipe, Toolchain};
    use sandstorm_types::Enforcement;

    use super::*;

    fn archive(content: &str, mtime: u64) -> Bytes {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mtime(mtime);
        builder.append_data(&mut header, "requirements.txt", content.as_bytes()).unwrap();
        Bytes::from(builder.into_inner().unwrap())
    }

    fn toolchain(version: &str) -> Toolchain {
        Toolchain { programs: BTreeMap::new(), mounts: Vec::new(), version: Some(version.to_owned()) }
    }

    fn wanted<'a>(toolchain: &'a Toolchain, requirements: &'a [Requirement]) -> Wanted<'a> {
        let recipe = Recipe::of(PackageManager::Pip);
        Wanted { recipe, toolchain, requirements, enforcement: Enforcement::Strict }
    }

    #[test]
    fn what_was_resolved_names_the_layer() {
        let (old, new) = (toolchain("3.11"), toolchain("3.12"));
        let key = |content: &str, mtime, toolchain: &Toolchain| {
            Lock::new(archive(content, mtime), true, SystemTime::now())
                .unwrap()
                .layer_key(&wanted(toolchain, &[]))
        };
        assert_eq!(key("a==1", 1, &old), key("a==1", 2, &old));
        assert_ne!(key("a==1", 1, &old), key("a==2", 1, &old));
        assert_ne!(key("a==1", 1, &old), key("a==1", 1, &new));
    }

    #[test]
    fn order_and_repetition_do_not_ask_for_something_else() {
        let toolchain = toolchain("3.11");
        let list = |names: &[&str]| names.iter().map(|n| n.parse().unwrap()).collect::<Vec<Requirement>>();
        let key =
            |names: &[&str], source: &IndexSource| LockKey::new(&wanted(&toolchain, &list(names)), source);
        let own = IndexSource { address: Some("https://a.example/".to_owned()), ..IndexSource::default() };
        assert_eq!(key(&["a", "b", "a"], &own), key(&["b", "a"], &own));
        assert_ne!(key(&["a"], &own), key(&["b"], &own));
        assert_ne!(key(&["a"], &own), key(&["a"], &IndexSource::default()));
    }

    #[test]
    fn only_what_is_not_pinned_grows_old() {
        let day = Duration::from_secs(24 * 60 * 60 + 1);
        let lock = |pinned, age| Lock::new(archive("a==1", 1), pinned, SystemTime::now() - age).unwrap();
        assert!(lock(false, Duration::from_secs(60)).is_fresh());
        assert!(!lock(false, day).is_fresh());
        assert!(lock(true, day * 400).is_fresh());
        assert!(Lock::new(Bytes::from(vec![0; 1024]), true, SystemTime::now()).is_err());
    }
}
