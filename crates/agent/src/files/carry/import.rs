//! The receiving end of a copy.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use serde_bytes::ByteBuf;

use super::record::{self, Head, Kind};
use super::{Left, broken, words};
use crate::files::metadata;
use crate::protocol::{FileError, MOST_METADATA};

/// Makes what the stream says below `onto`; what cannot be made goes to `left`, unless there is no room: a copy that lacks
/// room is none.
pub(in crate::files) fn import(
    onto: &Path,
    input: &mut impl Read,
    left: impl FnMut(FileError),
) -> Result<(), FileError> {
    let mut left = Left { tell: left, named: 0 };
    // Modes and times of directories come last: making something in one changes them, or cannot be done any more.
    let mut directories: Vec<(PathBuf, Head)> = Vec::new();
    let mut kept = Kept::new();
    loop {
        let (head, path) = Head::read(input).map_err(broken)?;
        if head.kind == Kind::End {
            break;
        }
        let path = below(onto, &path);
        let made = match head.kind {
            Kind::Directory => {
                directories.push((path.clone(), head));
                directory(&path)
            }
            Kind::File => file(&path, head, &std::mem::take(&mut kept), input)?,
            Kind::Metadata => {
                let name = record::read_bytes(input).map_err(broken)?;
                let text = record::read_bytes(input).map_err(broken)?;
                let size: usize = kept.iter().map(|(name, text)| name.len() + text.len()).sum();
                if size + name.len() + text.len() > MOST_METADATA {
                    return Err(broken(std::io::ErrorKind::InvalidData.into()));
                }
                kept.push((name.into(), text.into()));
                Ok(())
            }
            Kind::Symlink => {
                let target = record::read_bytes(input).map_err(broken)?;
                rustix::fs::symlinkat(target, rustix::fs::CWD, &path).and_then(|()| stamp(&path, head))
            }
            Kind::Link => {
                let first = record::read_bytes(input).map_err(broken)?;
                let first = below(onto, Path::new(std::ffi::OsStr::from_bytes(&first)));
                rustix::fs::link(&first, &path)
            }
            Kind::Fifo => rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, mode(head), 0)
                .and_then(|()| settle(&path, head)),
            Kind::End => Ok(()),
        };
        match made {
            Ok(()) => {}
            Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::NOMEM)) => {
                return Err(crate::files::about(&path)(errno));
            }
            Err(errno) => left.note(&path, &words(errno)),
        }
    }
    for (path, head) in directories.iter().rev() {
        if let Err(errno) = settle(path, *head) {
            left.note(path, &words(errno));
        }
    }
    Ok(())
}

/// What is to be kept with the next file.
type Kept = Vec<(ByteBuf, ByteBuf)>;

fn below(onto: &Path, path: &Path) -> PathBuf {
    onto.join(path.strip_prefix("/").unwrap_or(path))
}

fn mode(head: Head) -> Mode {
    Mode::from_raw_mode(head.mode & 0o777)
}

/// One that is there already is success: it may have come with the sandbox.
fn directory(path: &Path) -> Result<(), Errno> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o700)) {
        Err(Errno::EXIST) if path.is_dir() => Ok(()),
        other => other,
    }
}

/// Takes all of its pieces from the stream, whatever becomes of the file.
fn file(
    path: &Path,
    head: Head,
    kept: &[(ByteBuf, ByteBuf)],
    input: &mut impl Read,
) -> Result<Result<(), Errno>, FileError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut made = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600));
    loop {
        let (at, piece) = record::read_piece(input).map_err(broken)?;
        if piece.is_empty() {
            return Ok(made.and_then(|file| finish(&file, at, head, kept)));
        }
        made = made.and_then(|file| write_at(&file, at, &piece).map(|()| file));
    }
}

fn write_at(file: &OwnedFd, mut at: u64, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                bytes = &bytes[written..];
                at += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The rest is done also where nothing can be kept with a file.
fn finish(file: &OwnedFd, size: u64, head: Head, kept: &[(ByteBuf, ByteBuf)]) -> Result<(), Errno> {
    rustix::fs::ftruncate(file, size)?;
    let keeps = metadata::keep(file, kept);
    rustix::fs::fchmod(file, Mode::from_raw_mode(head.mode))?;
    rustix::fs::futimens(file, &times(head))?;
    keeps
}

/// Mode and time of what has no descriptor.
fn settle(path: &Path, head: Head) -> Result<(), Errno> {
    rustix::fs::chmod(path, Mode::from_raw_mode(head.mode))?;
    stamp(path, head)
}

fn stamp(path: &Path, head: Head) -> Result<(), Errno> {
    rustix::fs::utimensat(rustix::fs::CWD, path, &times(head), AtFlags::SYMLINK_NOFOLLOW)
}

fn times(head: Head) -> Timestamps {
    let modified = Timespec { tv_sec: head.seconds, tv_nsec: head.nanoseconds.min(999_999_999).into() };
    Timestamps { last_access: modified, last_modification: modified }
}
