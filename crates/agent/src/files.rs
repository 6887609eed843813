//! File operations, done in a child that already is the payload's user inside the sandbox: the kernel's own view is
//! the policy, and there is no second interpretation of a path.
//!
//! Content travels on stdin and stdout; structured answers are frames on stdout; a failure is one [`FileError`] frame
//! on stderr and exit code 1.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::Serialize;
use serde_bytes::ByteBuf;

use crate::child::write_all;
use crate::protocol::{CHUNK, FileError, FileTask};
use crate::{archive, frame, watch};

mod carry;
mod list;
mod metadata;
mod remove;
mod root;
mod temporary;

pub(crate) use root::works_as_root;
pub(crate) use temporary::Ours;

/// Does the operation; the result is the child's exit code.
pub(crate) fn perform(task: &FileTask) -> i32 {
    match attempt(task) {
        Ok(()) => 0,
        Err(error) => {
            if let Ok(bytes) = frame::encode(&error) {
                let _ = write_all(rustix::stdio::stderr(), &bytes);
            }
            1
        }
    }
}

fn attempt(task: &FileTask) -> Result<(), FileError> {
    match task {
        FileTask::Read { path, offset, length } => read(as_path(path), *offset, *length),
        FileTask::Write { path, mode } => write(as_path(path), *mode, &[]),
        FileTask::Put { path, mode, metadata } => write(as_path(path), *mode, metadata),
        FileTask::Stat { path } => list::stat(as_path(path), list::Answer::Entry),
        FileTask::List { path, depth, limit } => {
            list::list(as_path(path), *depth, *limit, list::Answer::Entry)
        }
        FileTask::Describe(task) => match &**task {
            FileTask::Stat { path } => list::stat(as_path(path), list::Answer::Described),
            FileTask::List { path, depth, limit } => {
                list::list(as_path(path), *depth, *limit, list::Answer::Described)
            }
            _ => Err(refuse(Path::new("description"), Errno::INVAL, "of neither a name nor a listing")),
        },
        // Who does it was decided before the child became anybody.
        FileTask::AsRoot(task) => attempt(task),
        FileTask::Remove { path, recursive } => remove::remove(as_path(path), *recursive),
        FileTask::Move { from, to } => rename(as_path(from), as_path(to)),
        FileTask::MakeDirectory { path, mode } => make_directory(as_path(path), *mode),
        FileTask::SetMode { path, mode } => set_mode(as_path(path), *mode),
        FileTask::Search { path, pattern, limit } => list::search(as_path(path), pattern, *limit),
        FileTask::Watch { path, recursive } => watch::watch(as_path(path), *recursive),
        FileTask::Pack { path, exclude } => pack(as_path(path), exclude),
        FileTask::Unpack { path } => unpack(as_path(path)),
        FileTask::Export { paths } => export(paths),
        FileTask::Import => import(),
    }
}

fn as_path(bytes: &ByteBuf) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Names the operation's object, so that the message stands on its own.
pub(crate) fn about(path: &Path) -> impl Fn(Errno) -> FileError + '_ {
    move |errno| FileError {
        errno: errno.raw_os_error(),
        message: format!("{}: {}", path.display(), io::Error::from(errno)),
    }
}

pub(crate) fn refuse(path: &Path, errno: Errno, why: &str) -> FileError {
    FileError { errno: errno.raw_os_error(), message: format!("{}: {why}", path.display()) }
}

/// Sends one structured answer.
pub(crate) fn answer<T: Serialize>(message: &T) -> Result<(), FileError> {
    let bytes = frame::encode(message)
        .map_err(|e| FileError { errno: Errno::OVERFLOW.raw_os_error(), message: e.to_string() })?;
    write_all(rustix::stdio::stdout(), &bytes).map_err(about(Path::new("output")))
}

/// Opens without blocking on a FIFO, without taking a terminal, and never through the magic links of `/proc`.
pub(crate) fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(
        rustix::fs::CWD,
        path,
        flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK,
        Mode::empty(),
        ResolveFlags::NO_MAGICLINKS,
    )
}

fn read(path: &Path, offset: u64, length: Option<u64>) -> Result<(), FileError> {
    let file = open(path, OFlags::RDONLY).map_err(about(path))?;
    let stat = rustix::fs::fstat(&file).map_err(about(path))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(about(path)(Errno::ISDIR)),
        _ => return Err(refuse(path, Errno::INVAL, "not a regular file")),
    }
    // A file that grows while it is read ends where it ended when it was opened.
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let mut at = offset.min(size);
    let end = length.map_or(size, |length| at.saturating_add(length).min(size));
    let mut buffer = vec![0; CHUNK];
    while at < end {
        let want = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
        match rustix::io::pread(&file, &mut buffer[..want], at) {
            Ok(0) => break,
            Ok(n) => {
                write_all(rustix::stdio::stdout(), &buffer[..n]).map_err(about(path))?;
                at += n as u64;
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(about(path)(e)),
        }
    }
    Ok(())
}

/// Writes beside the target and renames: readers see the old content or the new, never half of it, and a link at the
/// target is replaced, not followed.
fn write(path: &Path, mode: u32, metadata: &[(ByteBuf, ByteBuf)]) -> Result<(), FileError> {
    let (dir, name) = split(path)?;
    make_directory(dir, 0o755)?;
    let dir_fd = open(dir, OFlags::RDONLY | OFlags::DIRECTORY).map_err(about(dir))?;
    let there = rustix::fs::statat(&dir_fd, name, AtFlags::SYMLINK_NOFOLLOW);
    if there.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory) {
        return Err(about(path)(Errno::ISDIR));
    }
    // Who watches the directory is told by the name whether there was a file before.
    let ours = if there.is_ok() { Ours::Replacing } else { Ours::New };
    let temporary = ours.name();
    // Without a name until it is whole: of a helper that is killed nothing is left.
    let file = rustix::fs::openat(
        &dir_fd,
        ".",
        OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC,
        Mode::from_raw_mode(mode & 0o777),
    )
    .map_err(about(path))?;
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    let written = copy_input(&file)
        .and_then(|()| rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777)))
        .and_then(|()| metadata::keep(&file, metadata))
        .and_then(|()| {
            rustix::fs::linkat(rustix::fs::CWD, itself, &dir_fd, &temporary, AtFlags::SYMLINK_FOLLOW)
        })
        .and_then(|()| rustix::fs::renameat(&dir_fd, &temporary, &dir_fd, name));
    if written.is_err() {
        let _ = rustix::fs::unlinkat(&dir_fd, &temporary, AtFlags::empty());
    }
    written.map_err(about(path))
}

/// Writes a whole file that is at hand, making the directories above it.
pub(crate) fn place(path: &[u8], content: &[u8]) -> Result<(), Errno> {
    let path = Path::new(OsStr::from_bytes(path));
    let errno = |e: FileError| Errno::from_raw_os_error(e.errno);
    let (dir, _) = split(path).map_err(errno)?;
    make_directory(dir, 0o755).map_err(errno)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?;
    write_all(file.as_fd(), content)
}

fn copy_input(file: &OwnedFd) -> Result<(), Errno> {
    let mut buffer = vec![0; CHUNK];
    loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => write_all(file.as_fd(), &buffer[..n])?,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

pub(crate) fn split(path: &Path) -> Result<(&Path, &OsStr), FileError> {
    match (path.parent(), path.file_name()) {
        (Some(dir), Some(name)) => Ok((dir, name)),
        _ => Err(refuse(path, Errno::INVAL, "not a path of a file")),
    }
}

fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    // The source is looked at first, so that a mistake makes no directories.
    rustix::fs::lstat(from).map_err(about(from))?;
    make_directory(split(to)?.0, 0o755)?;
    match rustix::fs::rename(from, to) {
        // `/workspace`, `/tmp` and the home directory are mounts of one file system, which rename will not cross.
        Err(Errno::XDEV) => Err(refuse(from, Errno::XDEV, "cannot be moved to another mount; copy it")),
        other => other.map_err(about(from)),
    }
}

/// Makes a directory and those above it; one that is there already is success.
fn make_directory(path: &Path, mode: u32) -> Result<(), FileError> {
    let mut walked = PathBuf::new();
    for component in path.components() {
        walked.push(component);
        match rustix::fs::mkdir(&walked, Mode::from_raw_mode(mode & 0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            // A read-only parent that exists answers EROFS before EEXIST.
            Err(e) if !walked.is_dir() => return Err(about(&walked)(e)),
            Err(_) => {}
        }
    }
    if path.is_dir() { Ok(()) } else { Err(about(path)(Errno::NOTDIR)) }
}

fn set_mode(path: &Path, mode: u32) -> Result<(), FileError> {
    let file = open(path, OFlags::RDONLY).map_err(about(path))?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777)).map_err(about(path))
}

fn pack(path: &Path, exclude: &[ByteBuf]) -> Result<(), FileError> {
    let dir = open(path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(about(path))?;
    let exclude: Vec<&[u8]> = exclude.iter().map(|e| e.as_slice()).collect();
    let mut output = io::BufWriter::with_capacity(CHUNK, io::stdout().lock());
    archive::pack(dir.as_fd(), &exclude, &mut output).map_err(|e| e.at(path))
}

fn unpack(path: &Path) -> Result<(), FileError> {
    make_directory(path, 0o755)?;
    let dir = open(path, OFlags::RDONLY | OFlags::DIRECTORY).map_err(about(path))?;
    // The sandbox's own disk, inode and time limits bound what is written here.
    let input = io::BufReader::with_capacity(CHUNK, io::stdin().lock());
    archive::unpack(input, dir.as_fd(), archive::Bounds::SANDBOX).map(drop).map_err(|e| e.at(path))
}

fn export(paths: &[ByteBuf]) -> Result<(), FileError> {
    let paths: Vec<&Path> = paths.iter().map(as_path).collect();
    let mut output = io::BufWriter::with_capacity(CHUNK, io::stdout().lock());
    carry::export(&paths, &mut output, name_left)
}

fn import() -> Result<(), FileError> {
    let mut input = io::BufReader::with_capacity(CHUNK, io::stdin().lock());
    carry::import(Path::new("/"), &mut input, name_left)
}

/// Names something that stayed behind, on the error stream.
fn name_left(left: FileError) {
    if let Ok(bytes) = frame::encode(&left) {
        let _ = write_all(rustix::stdio::stderr(), &bytes);
    }
}
