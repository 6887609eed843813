//! What compilers made, kept by everything that it depends on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sandstorm_language::CacheKey;
use tempfile::NamedTempFile;

use crate::artifact::Artifact;

/// A folder of archives, one for each key, bounded by the least recently used.
#[derive(Debug, Clone)]
pub struct CompileCache {
    dir: PathBuf,
    max_bytes: u64,
}

impl CompileCache {
    pub fn new(dir: PathBuf, max_bytes: u64) -> Self {
        Self { dir, max_bytes }
    }

    fn path(&self, key: &CacheKey) -> PathBuf {
        self.dir.join(format!("{key}.tar"))
    }

    /// An earlier result. Reading counts as use.
    pub(crate) fn get(&self, key: &CacheKey) -> Option<Artifact> {
        let file = fs::File::open(self.path(key)).ok()?;
        let _ = file.set_modified(SystemTime::now());
        Artifact::of(file).ok()
    }

    /// A file to write a result to.
    pub(crate) fn begin(&self) -> io::Result<NamedTempFile> {
        fs::create_dir_all(&self.dir)?;
        NamedTempFile::new_in(&self.dir)
    }

    /// Keeps what was written. A reader sees all of it or nothing; a cache that cannot be written is only slower.
    pub(crate) fn put(&self, key: &CacheKey, written: NamedTempFile) -> io::Result<()> {
        written.persist(self.path(key)).map_err(|e| e.error)?;
        self.shrink(&self.path(key))
    }

    /// Whether there is an entry. Asking is no use of it.
    pub(crate) fn has(&self, key: &CacheKey) -> bool {
        self.path(key).exists()
    }

    /// A file to lock while an entry is made.
    pub(crate) fn lock(&self, key: &CacheKey) -> io::Result<fs::File> {
        fs::create_dir_all(&self.dir)?;
        fs::File::create(self.dir.join(format!("{key}.lock")))
    }

    /// Removes an entry, if it is there.
    pub(crate) fn forget(&self, key: &CacheKey) {
        let _ = fs::remove_file(self.path(key));
    }

    /// Removes what was used least recently until the rest fits. What was just written stays.
    fn shrink(&self, keep: &Path) -> io::Result<()> {
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = fs::read_dir(&self.dir)?
            .flatten()
            .filter_map(|entry| {
                let found = entry.metadata().ok()?;
                Some((found.modified().ok()?, found.len(), entry.path()))
            })
            .collect();
        entries.sort();
        let mut total: u64 = entries.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in entries {
            if total <= self.max_bytes {
                break;
            }
            if path != keep && fs::remove_file(&path).is_ok() {
                total -= size;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytes::Bytes;
    use sandstorm_language::{Catalogue, Job, Roots, cache_key};

    use super::*;

    fn key(scope: &str) -> CacheKey {
        let language = Catalogue::embedded().get("bash").unwrap();
        let toolchain = language.detect(&Roots::host()).expect("every Linux machine has bash");
        let job = Job { main: "main.sh", code: "", files: &[], args: &[], memory_mib: 64 };
        let plan = language.run_plan(&toolchain, &job).unwrap();
        cache_key(scope, language, &toolchain, &plan, [])
    }

    fn put(cache: &CompileCache, key: &CacheKey, archive: &[u8]) {
        let mut file = cache.begin().unwrap();
        file.write_all(archive).unwrap();
        cache.put(key, file).unwrap();
    }

    async fn got(cache: &CompileCache, key: &CacheKey) -> Option<Bytes> {
        Some(cache.get(key)?.content().collect(100).await.unwrap())
    }

    #[tokio::test]
    async fn what_was_put_is_got_and_the_oldest_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        let cache = CompileCache::new(dir.path().join("compile"), 10);
        let (a, b, c) = (key("a"), key("b"), key("c"));
        assert_eq!(got(&cache, &a).await, None);
        put(&cache, &a, b"aaaa");
        put(&cache, &b, b"bbbb");
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(got(&cache, &a).await.unwrap(), "aaaa");
        put(&cache, &c, b"cccc");
        assert_eq!(got(&cache, &b).await, None, "the least recently used was not removed");
        assert_eq!(
            (got(&cache, &a).await.unwrap(), got(&cache, &c).await.unwrap()),
            (Bytes::from("aaaa"), Bytes::from("cccc"))
        );
    }

    #[test]
    fn one_result_larger_than_the_bound_is_still_kept() {
        let dir = tempfile::tempdir().unwrap();
        let cache = CompileCache::new(dir.path().to_owned(), 1);
        put(&cache, &key("a"), b"aaaa");
        assert!(cache.get(&key("a")).is_some());
    }
}
