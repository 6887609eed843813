//! What compilers made, kept by everything that it depends on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sandstorm_language::CacheKey;
use tempfile::NamedTempFile;

use crate::artifact::Artifact;

/// What nobody wrote to for so long was left behind by a process that died.
const LEFT_OVER: Duration = Duration::from_secs(24 * 60 * 60);

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

    /// Removes what was used least recently until the rest fits. What was just written stays, and what others are writing or
    /// lock, which is no entry.
    fn shrink(&self, keep: &Path) -> io::Result<()> {
        let mut entries: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.dir)?.flatten() {
            let path = entry.path();
            let Ok((size, used)) = entry.metadata().and_then(|found| Ok((found.len(), found.modified()?)))
            else {
                continue;
            };
            if path.extension().is_some_and(|form| form == "tar") {
                entries.push((used, size, path));
            } else if used.elapsed().is_ok_and(|unused| unused > LEFT_OVER) {
                let _ = fs::remove_file(&path);
            }
        }
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

    #[tokio::test]
    async fn what_others_write_and_lock_is_no_entry() {
        let dir = tempfile::tempdir().unwrap();
        let cache = CompileCache::new(dir.path().to_owned(), 10);
        let mut unfinished = cache.begin().unwrap();
        unfinished.write_all(&[7; 100]).unwrap();
        let _lock = cache.lock(&key("a")).unwrap();
        let (left, _) = cache.begin().unwrap().keep().unwrap();
        left.set_modified(SystemTime::now() - 2 * LEFT_OVER).unwrap();
        put(&cache, &key("b"), b"bbbb");
        // It is larger than the bound alone.
        put(&cache, &key("c"), &[1; 20]);
        assert_eq!(got(&cache, &key("b")).await, None);
        assert!(cache.get(&key("c")).is_some());
        let locked = cache.path(&key("a")).with_extension("lock");
        assert!(locked.exists(), "the next to come would lock another file");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "what was left behind stays");
        cache.put(&key("a"), unfinished).unwrap();
        assert!(cache.get(&key("a")).is_some());
    }

    #[test]
    fn one_result_larger_than_the_bound_is_still_kept() {
        let dir = tempfile::tempdir().unwrap();
        let cache = CompileCache::new(dir.path().to_owned(), 1);
        put(&cache, &key("a"), b"aaaa");
        assert!(cache.get(&key("a")).is_some());
    }
}
