//! Files of a group that are read again and again: found and opened once.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use crate::cgroup::counters::keyed_in;

/// More than any of these files ever holds.
const LONGEST: usize = 4096;

/// One file. It stays the same file when its group gets another name, and cannot be read once its group is gone.
#[derive(Debug, Default)]
pub(super) struct Gauge(OnceLock<File>);

impl Gauge {
    /// A whole file with one number.
    pub(super) fn number(&self, dir: &Path, name: &str) -> io::Result<u64> {
        self.read(dir, name, |text| text.trim().parse().ok())
    }

    /// One line `key number` of a file with several.
    pub(super) fn keyed(&self, dir: &Path, name: &str, key: &str) -> io::Result<u64> {
        self.read(dir, name, |text| keyed_in(text, key))
    }

    /// Two of those lines, read at once.
    pub(super) fn both(&self, dir: &Path, name: &str, keys: [&str; 2]) -> io::Result<[u64; 2]> {
        self.read(dir, name, |text| Some([keyed_in(text, keys[0])?, keyed_in(text, keys[1])?]))
    }

    /// Whether there is such a file.
    pub(super) fn is_there(&self, path: &Path) -> bool {
        self.open(path).and_then(|file| file.read_at(&mut [0; LONGEST], 0)).is_ok()
    }

    /// Finds the file, if that has not been done.
    pub(super) fn open(&self, path: &Path) -> io::Result<&File> {
        match self.0.get() {
            Some(file) => Ok(file),
            None => File::open(path).map(|opened| self.0.get_or_init(|| opened)),
        }
    }

    fn read<T>(&self, dir: &Path, name: &str, find: impl FnOnce(&str) -> Option<T>) -> io::Result<T> {
        let file = match self.0.get() {
            Some(file) => file,
            None => self.open(&dir.join(name))?,
        };
        let mut buffer = [0; LONGEST];
        let length = file.read_at(&mut buffer, 0)?;
        let text = std::str::from_utf8(&buffer[..length]).map_err(io::Error::other)?;
        find(text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Those that tell what a jail used. Each is opened when it is first read, and stays open.
#[derive(Debug, Default)]
pub struct Gauges {
    pub(super) cpu_time: Gauge,
    pub(super) memory: Gauge,
    pub(super) memory_parts: Gauge,
    pub(super) peak_memory: Gauge,
    pub(super) memory_kills: Gauge,
    pub(super) processes: Gauge,
    pub(super) process_refusals: Gauge,
    pub(super) own: Gauge,
}
