//! By which clock records are, on file: whoever reads them after a restart has to know whether somebody set it meanwhile.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sandstorm_types::Timestamp;

use crate::Store;
use crate::config::boot;

/// What the wall clock shows beyond the time since the machine started, which nobody can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WallClock(i64);

impl WallClock {
    /// As it is set now.
    pub fn now() -> Self {
        let up = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
        let up = i64::try_from(up.as_millis()).unwrap_or(i64::MAX);
        Self(Timestamp::now().millis().saturating_sub(up))
    }

    /// By how many milliseconds it is ahead of another one.
    pub fn ahead_of(self, other: Self) -> i64 {
        self.0.saturating_sub(other.0)
    }

    /// The clock that is so many milliseconds ahead of this one, for tests.
    #[must_use]
    pub fn set_by(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }
}

impl Store {
    /// The clock that was noted last at this state directory. `None`: none was since the machine started.
    pub fn noted_clock(&self) -> Option<WallClock> {
        read(self.clock_file(), &boot()?)
    }

    /// Notes the clock that records are by, for the next server of this state directory.
    pub fn note_clock(&self, clock: WallClock) -> io::Result<()> {
        let boot = boot().ok_or_else(|| io::Error::other("this start of the machine has no name"))?;
        let path = self.clock_file();
        let beside = path.with_extension("new");
        fs::write(&beside, format!("{boot} {}\n", clock.0))?;
        fs::rename(&beside, path)
    }
}

/// A file that cannot be read says nothing.
fn read(path: &Path, boot: &str) -> Option<WallClock> {
    let text = fs::read_to_string(path).ok()?;
    let (of, millis) = text.trim().split_once(' ')?;
    millis.parse().ok().map(WallClock).filter(|_| of == boot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_counts_until_the_machine_starts_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clock");
        assert_eq!(read(&path, "one"), None);
        fs::write(&path, "one -12\n").unwrap();
        assert_eq!(read(&path, "one"), Some(WallClock(-12)));
        assert_eq!(read(&path, "two"), None);
        for broken in ["", "one", "one x", "one 1 2"] {
            fs::write(&path, broken).unwrap();
            assert_eq!(read(&path, "one"), None, "{broken}");
        }
    }
}
