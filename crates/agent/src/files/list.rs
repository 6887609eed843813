//! What is there: one name, or a directory with what is below it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat};
use rustix::io::Errno;
use serde_bytes::ByteBuf;

use crate::files::{about, answer, metadata, open};
use crate::protocol::{Described, Entry, EntryKind, FileError};

/// Deeper than this nothing is listed: a sandbox can nest directories without end.
const DEEPEST: u32 = 64;

/// How much is told of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Entry,
    /// With what is kept with it.
    Described,
}

impl Answer {
    /// Tells of a name. `place`: a path of the file or directory itself.
    fn say(self, entry: Entry, place: impl FnOnce() -> PathBuf) -> Result<(), FileError> {
        match self {
            Self::Entry => answer(&entry),
            Self::Described => {
                let keeps = matches!(entry.kind, EntryKind::File | EntryKind::Directory);
                let metadata = if keeps { metadata::kept(&place()) } else { Vec::new() };
                answer(&Described { entry, metadata })
            }
        }
    }
}

pub(crate) fn stat(path: &Path, how: Answer) -> Result<(), FileError> {
    let stat = rustix::fs::lstat(path).map_err(about(path))?;
    let target = rustix::fs::readlink(path, Vec::new()).ok().map(|t| ByteBuf::from(t.into_bytes()));
    how.say(entry(Vec::new(), &stat, target), || path.to_owned())
}

pub(crate) fn list(path: &Path, depth: u32, limit: u32, how: Answer) -> Result<(), FileError> {
    let dir = open(path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(about(path))?;
    let mut walk = Walk { top: path, left: limit, pattern: None, how };
    walk.descend(dir.as_fd(), &[], depth.clamp(1, DEEPEST))
}

/// Names below a directory that fit a pattern.
pub(crate) fn search(path: &Path, pattern: &[u8], limit: u32) -> Result<(), FileError> {
    let dir = open(path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(about(path))?;
    let mut walk = Walk { top: path, left: limit, pattern: Some(pattern), how: Answer::Entry };
    walk.descend(dir.as_fd(), &[], DEEPEST)
}

struct Walk<'a> {
    top: &'a Path,
    /// Entries that may still be told.
    left: u32,
    pattern: Option<&'a [u8]>,
    how: Answer,
}

impl Walk<'_> {
    fn descend(&mut self, dir: BorrowedFd<'_>, prefix: &[u8], depth: u32) -> Result<(), FileError> {
        for found in sorted_names(dir).map_err(about(self.top))? {
            if self.left == 0 {
                return Ok(());
            }
            // A name may vanish between reading the directory and looking at it: then it is not listed.
            let Ok(stat) = rustix::fs::statat(dir, found.as_slice(), AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            let mut name = prefix.to_vec();
            name.extend_from_slice(&found);
            let target = rustix::fs::readlinkat(dir, found.as_slice(), Vec::new())
                .ok()
                .map(|t| ByteBuf::from(t.into_bytes()));
            if self.pattern.is_none_or(|pattern| fits(pattern, &found)) {
                self.left -= 1;
                let place = || by_descriptor(dir, &found);
                self.how.say(entry(name.clone(), &stat, target), place)?;
            }
            if depth > 1 && FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                let Ok(below) = open_directory(dir, &found) else { continue };
                name.push(b'/');
                self.descend(below.as_fd(), &name, depth - 1)?;
            }
        }
        Ok(())
    }
}

/// A path of a name in an open directory, however deep that is.
fn by_descriptor(dir: BorrowedFd<'_>, name: &[u8]) -> PathBuf {
    Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(std::ffi::OsStr::from_bytes(name))
}

/// Whether a name fits a pattern of `*` and `?`. Linear in both: the last star is the only one ever tried again.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, n));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match retry {
                Some((after, tried)) => {
                    (p, n) = (after, tried + 1);
                    retry = Some((after, tried + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

fn open_directory(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, rustix::fs::Mode::empty())
}

/// Names in byte order, so that the same tree always lists the same way.
fn sorted_names(dir: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    for found in Dir::read_from(dir)? {
        let found = found?;
        let name = found.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn entry(name: Vec<u8>, stat: &Stat, target: Option<ByteBuf>) -> Entry {
    Entry {
        name: ByteBuf::from(std::ffi::OsStr::from_bytes(&name).as_bytes()),
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Directory,
            FileType::Symlink => EntryKind::Symlink,
            _ => EntryKind::Other,
        },
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified: stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(stat.st_mtime_nsec as i64),
        target,
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns_fit_whole_names() {
        for (pattern, name, wanted) in [
            ("*", "anything", true),
            ("*.py", "a.py", true),
            ("*.py", "a.pyc", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "ab-a", false),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), wanted, "{pattern} {name}");
        }
    }
}
