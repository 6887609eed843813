//! Everything below some directories, copied as it is from one sandbox into another: for live forks.
//!
//! This is not for archives that people see. Both ends are sandboxes of one owner with the same walls, so links may point
//! anywhere and nothing has to be refused; what matters is that nothing is lost in silence. What cannot be copied, such as
//! a socket, is named on the error stream, one [`FileError`] each, and the copy goes on.
//!
//! The stream is a record for each name, parents before what they hold: kind, mode, time, path, then what the kind has.
//! Files come in pieces with their places, so that holes stay holes, and what is kept with one comes before it. The last record
//! says that all was sent.

mod import;
mod record;

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use self::record::{Head, Kind};
use crate::protocol::{CHUNK, FileError};

pub(super) use import::import;

/// Names of what could not be copied that are told; of more only that there are more.
const MOST_NAMED: usize = 50;

/// Writes everything below `roots` to `output`; what cannot be copied goes to `left`.
pub(super) fn export(
    roots: &[&Path],
    output: &mut impl Write,
    left: impl FnMut(FileError),
) -> Result<(), FileError> {
    let mut export =
        Export { output, left: Left { tell: left, named: 0 }, known: HashMap::new(), buffer: vec![0; CHUNK] };
    for root in roots {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(*root, flags, Mode::empty()).map_err(super::about(root))?;
        export.directory(dir.as_fd(), root).map_err(broken)?;
    }
    Head::END.write(export.output, Path::new("")).map_err(broken)?;
    export.output.flush().map_err(broken)
}

/// The other end went away, or sent what makes no sense.
fn broken(error: io::Error) -> FileError {
    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
    FileError { errno: errno.raw_os_error(), message: format!("the copy was broken off: {error}") }
}

/// Tells what is left behind, within bounds.
struct Left<F> {
    tell: F,
    named: usize,
}

impl<F: FnMut(FileError)> Left<F> {
    fn note(&mut self, path: &Path, why: &str) {
        self.named += 1;
        match self.named {
            0..=MOST_NAMED => (self.tell)(super::refuse(path, Errno::OPNOTSUPP, why)),
            n if n == MOST_NAMED + 1 => {
                (self.tell)(super::refuse(path, Errno::OPNOTSUPP, "and more like it"))
            }
            _ => {}
        }
    }
}

struct Export<'a, W, F> {
    output: &'a mut W,
    left: Left<F>,
    /// Where files with several names were first met.
    known: HashMap<(u64, u64), PathBuf>,
    buffer: Vec<u8>,
}

impl<W: Write, F: FnMut(FileError)> Export<'_, W, F> {
    /// Leaves something behind and goes on.
    fn leave(&mut self, path: &Path, why: &str) -> io::Result<()> {
        self.left.note(path, why);
        Ok(())
    }

    fn directory(&mut self, dir: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
        let entries = match Dir::read_from(dir) {
            Ok(entries) => entries,
            Err(errno) => return self.leave(path, &words(errno)),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => return self.leave(path, &words(errno)),
            };
            let name = entry.file_name();
            if name.to_bytes() == b"." || name.to_bytes() == b".." {
                continue;
            }
            let path = path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
            // A name that vanished since was removed before the copy.
            let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            self.entry(dir, name, &path, &stat)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &std::ffi::CStr,
        path: &Path,
        stat: &Stat,
    ) -> io::Result<()> {
        if path.as_os_str().len() > record::LONGEST {
            return self.leave(path, "its path is too long");
        }
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::Directory && stat.st_nlink > 1 {
            let first = self.known.entry((stat.st_dev, stat.st_ino)).or_insert_with(|| path.to_owned());
            if first != path {
                Head::of(Kind::Link, stat).write(self.output, path)?;
                return record::bytes(self.output, first.as_os_str().as_bytes());
            }
        }
        let opened = |flags: OFlags| {
            rustix::fs::openat(
                dir,
                name,
                flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            )
        };
        match kind {
            FileType::Directory => {
                Head::of(Kind::Directory, stat).write(self.output, path)?;
                match opened(OFlags::DIRECTORY) {
                    Ok(below) => self.directory(below.as_fd(), path),
                    Err(errno) => self.leave(path, &words(errno)),
                }
            }
            FileType::RegularFile => match opened(OFlags::NONBLOCK) {
                Ok(file) => self.file(&file, path, stat),
                Err(errno) => self.leave(path, &words(errno)),
            },
            FileType::Symlink => match rustix::fs::readlinkat(dir, name, Vec::new()) {
                Ok(target) => {
                    Head::of(Kind::Symlink, stat).write(self.output, path)?;
                    record::bytes(self.output, target.to_bytes())
                }
                Err(errno) => self.leave(path, &words(errno)),
            },
            FileType::Fifo => Head::of(Kind::Fifo, stat).write(self.output, path),
            FileType::Socket => self.leave(path, "a socket cannot be copied"),
            _ => self.leave(path, "a device cannot be copied"),
        }
    }

    /// Its pieces that hold something, as they are when they are read.
    fn file(&mut self, file: &OwnedFd, path: &Path, stat: &Stat) -> io::Result<()> {
        for (name, text) in super::metadata::kept(path) {
            Head::of(Kind::Metadata, stat).write(self.output, path)?;
            record::bytes(self.output, name.as_bytes())?;
            record::bytes(self.output, text.as_bytes())?;
        }
        Head::of(Kind::File, stat).write(self.output, path)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let mut at = 0;
        while at < size {
            let Ok(start) = rustix::fs::seek(file, SeekFrom::Data(at)) else { break };
            let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
            at = start;
            while at < end {
                let want = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
                let read = match rustix::io::pread(file, &mut self.buffer[..want], at) {
                    // It became shorter meanwhile.
                    Ok(0) => return record::piece(self.output, size, &[]),
                    Ok(read) => read,
                    Err(Errno::INTR) => continue,
                    Err(errno) => {
                        self.left.note(path, &words(errno));
                        return record::piece(self.output, size, &[]);
                    }
                };
                record::piece(self.output, at, &self.buffer[..read])?;
                at += read as u64;
            }
        }
        record::piece(self.output, size, &[])
    }
}

fn words(errno: Errno) -> String {
    io::Error::from(errno).to_string()
}

#[cfg(test)]
mod tests;
