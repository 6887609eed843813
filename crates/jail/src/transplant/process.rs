//! What the kernel tells about a guest in `/proc`, each text bounded: what is in it is partly the guest's choice.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::error::{Cause, Who, doing};

/// A guest as its files in `/proc` show it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process {
    pub(super) who: Who,
    pub(super) pid: i32,
}

impl Process {
    pub(super) fn path(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.pid)
    }

    pub(super) fn open(&self, name: &str) -> Result<File, Cause> {
        File::open(self.path(name)).map_err(|e| self.failed(name, e))
    }

    /// All of a file that has at most `limit` bytes.
    pub(super) fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>, Cause> {
        let mut bytes = Vec::with_capacity(8 << 10);
        let read = self.open(name)?.take(limit + 1).read_to_end(&mut bytes);
        read.map_err(|e| self.failed(name, e))?;
        if bytes.len() as u64 > limit {
            return Err(Cause::refused(format!(
                "the {} is too large: its {name} has over {limit} bytes",
                self.who
            )));
        }
        Ok(bytes)
    }

    /// The same as text. What the kernel writes is ASCII but for names, which are compared and shown only.
    pub(super) fn text(&self, name: &str, limit: u64) -> Result<String, Cause> {
        let lossy = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        self.read(name, limit)
            .map(|bytes| String::from_utf8(bytes).unwrap_or_else(|not_all| lossy(not_all.into_bytes())))
    }

    /// Where a link leads; `None`: there is no such link.
    pub(super) fn link(&self, name: &str) -> Result<Option<PathBuf>, Cause> {
        match std::fs::read_link(self.path(name)) {
            Ok(path) => Ok(Some(path)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.failed(name, e)),
        }
    }

    /// A file of a process that has ended is gone, or says so.
    pub(super) fn failed(&self, name: &str, error: io::Error) -> Cause {
        let says_so = error.raw_os_error() == Some(Errno::SRCH.raw_os_error());
        let is_gone = || !Path::new(&self.path("status")).exists();
        if says_so || error.kind() == ErrorKind::NotFound && is_gone() {
            return Cause::Gone(self.who);
        }
        doing(format!("read {name} of the {}", self.who))(error)
    }

    /// Has it children, ended ones that nobody waited for included?
    pub(super) fn has_children(&self) -> Result<bool, Cause> {
        Ok(!self.read(&format!("task/{0}/children", self.pid), 64 << 10)?.is_empty())
    }

    /// Has it timers of the POSIX kind? Interval timers (`setitimer`, `alarm`) are not shown anywhere; they are not
    /// carried, as a fork does not carry them.
    pub(super) fn has_timers(&self) -> Result<bool, Cause> {
        match self.read("timers", 1 << 20) {
            Ok(timers) => Ok(!timers.is_empty()),
            // A kernel without the means to show them.
            Err(Cause::Failed { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The system call it sleeps in, and its first argument; `None`: it runs.
    pub(super) fn sleeps_in(&self) -> Result<Option<(i64, u64)>, Cause> {
        let text = self.text("syscall", 4096)?;
        let mut words = text.split_ascii_whitespace();
        let number = words.next().and_then(|word| word.parse().ok());
        let argument = words.next().and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        Ok(number.zip(argument))
    }

    /// How many reads it has made; `None`: this kernel does not count them.
    pub(super) fn reads(&self) -> Result<Option<u64>, Cause> {
        match self.text("io", 4096) {
            Ok(text) => Ok(text.lines().find_map(|line| line.strip_prefix("syscr: ")?.parse().ok())),
            Err(Cause::Failed { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}
