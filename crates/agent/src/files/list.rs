//! What is there: one name, or a directory with what is below it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat};
use rustix::io::Errno;
use serde_bytes::ByteBuf;

use crate::files::{about, answer, open};
use crate::protocol::{Entry, EntryKind, FileError};

/// Deeper than this nothing is listed: a sandbox can nest directories without end.
const DEEPEST: u32 = 64;

pub(crate) fn stat(path: &Path) -> Result<(), FileError> {
    let stat = rustix::fs::lstat(path).map_err(about(path))?;
    let target = rustix::fs::readlink(path, Vec::new()).ok().map(|t| ByteBuf::from(t.into_bytes()));
    answer(&entry(Vec::new(), &stat, target))
}

pub(crate) fn list(path: &Path, depth: u32, limit: u32) -> Result<(), FileError> {
    let dir = open(path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(about(path))?;
    let mut left = limit;
    walk(dir.as_fd(), &[], depth.clamp(1, DEEPEST), &mut left, path)
}

fn walk(dir: BorrowedFd<'_>, prefix: &[u8], depth: u32, left: &mut u32, top: &Path) -> Result<(), FileError> {
    for found in sorted_names(dir).map_err(about(top))? {
        if *left == 0 {
            return Ok(());
        }
        // A name may vanish between reading the directory and looking at it: then it is not listed.
        let Ok(stat) = rustix::fs::statat(dir, found.as_slice(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let mut name = prefix.to_vec();
        name.extend_from_slice(&found);
        let target =
            rustix::fs::readlinkat(dir, found.as_slice(), Vec::new()).ok().map(|t| ByteBuf::from(t.into_bytes()));
        *left -= 1;
        answer(&entry(name.clone(), &stat, target))?;
        if depth > 1 && FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let Ok(below) = open_directory(dir, &found) else { continue };
            name.push(b'/');
            walk(below.as_fd(), &name, depth - 1, left, top)?;
        }
    }
    Ok(())
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
