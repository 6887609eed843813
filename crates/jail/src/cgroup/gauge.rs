//! Files of a group that are read again and again: found and opened once.

use std::cell::OnceCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::cgroup::counters::keyed_in;

/// More than any of these files ever holds.
const LONGEST: usize = 4096;

/// One file. It stays the same file when its group gets another name.
#[derive(Debug, Default)]
pub(super) struct Gauge(OnceCell<File>);

impl Gauge {
    /// A whole file with one number.
    pub(super) fn number(&self, dir: &Path, name: &str) -> Option<u64> {
        self.read(dir, name, |text| text.trim().parse().ok())
    }

    /// One line `key number` of a file with several.
    pub(super) fn keyed(&self, dir: &Path, name: &str, key: &str) -> Option<u64> {
        self.read(dir, name, |text| keyed_in(text, key))
    }

    fn read<T>(&self, dir: &Path, name: &str, find: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let file = match self.0.get() {
            Some(file) => file,
            None => {
                let opened = File::open(dir.join(name)).ok()?;
                self.0.get_or_init(|| opened)
            }
        };
        let mut buffer = [0; LONGEST];
        let length = file.read_at(&mut buffer, 0).ok()?;
        find(std::str::from_utf8(buffer.get(..length)?).ok()?)
    }
}

/// Those that tell what a jail used.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    pub(super) cpu_time: Gauge,
    pub(super) memory: Gauge,
    pub(super) peak_memory: Gauge,
    pub(super) memory_kills: Gauge,
    pub(super) processes: Gauge,
    pub(super) process_refusals: Gauge,
}
