//! Tar archives between host and sandbox, in both directions, with the same rules on both sides.
//!
//! An archive from a sandbox is hostile, and one from a user may be. Entries are made one by one below a directory
//! descriptor; no component may be a link, names may not climb, special files and set-id bits do not exist, and every
//! quantity is bounded. There is one parser (the `tar` crate), and an entry whose two size fields disagree is refused.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use tar::{EntryType, Header};

use crate::protocol::{CHUNK, FileError};

/// What an archive may hold at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub entries: u64,
    pub bytes: u64,
    pub depth: usize,
}

impl Bounds {
    /// Inside a sandbox, where disk and inode limits bound the rest.
    pub const SANDBOX: Self = Self { entries: 1_000_000, bytes: 1 << 40, depth: 64 };
}

/// What was unpacked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unpacked {
    pub files: Vec<PathBuf>,
    pub bytes: u64,
}

/// Why an archive was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("the archive is malformed")]
    Malformed(#[source] io::Error),
    #[error("entry {name:?} of the archive is refused: {why}")]
    Refused { name: PathBuf, why: &'static str },
    #[error("the archive is past its bound of {0}")]
    Bound(&'static str),
    #[error("{name:?} could not be written")]
    Write { name: PathBuf, source: Errno },
    #[error("{name:?} could not be read")]
    Read { name: PathBuf, source: io::Error },
}

impl ArchiveError {
    /// As a file operation's failure.
    pub(crate) fn at(&self, path: &Path) -> FileError {
        let errno = match self {
            Self::Write { source, .. } => *source,
            Self::Read { source, .. } => Errno::from_io_error(source).unwrap_or(Errno::IO),
            Self::Bound(_) => Errno::FBIG,
            Self::Malformed(_) | Self::Refused { .. } => Errno::INVAL,
        };
        FileError { errno: errno.raw_os_error(), message: format!("{}: {self}", path.display()) }
    }
}

/// Unpacks into `root` and nowhere else.
pub fn unpack(reader: impl Read, root: BorrowedFd<'_>, bounds: Bounds) -> Result<Unpacked, ArchiveError> {
    let mut archive = tar::Archive::new(Guarded::new(reader));
    let mut unpacked = Unpacked::default();
    let mut count = 0;
    for entry in archive.entries().map_err(ArchiveError::Malformed)? {
        let mut entry = entry.map_err(ArchiveError::Malformed)?;
        count += 1;
        if count > bounds.entries {
            return Err(ArchiveError::Bound("entries"));
        }
        let name = entry_name(&entry.path_bytes(), bounds)?;
        let refuse = |why| Err(ArchiveError::Refused { name: name.clone(), why });
        let kind = entry.header().entry_type();
        let stated = entry.header().entry_size().map_err(ArchiveError::Malformed)?;
        // Two headers may state a size; a reader that believes one and skips by the other can be made to read file
        // content as headers.
        if kind.is_file() && stated != entry.size() {
            return refuse("its headers disagree on its size");
        }
        // Nobody else gets to write, whatever the archive says.
        let mode = entry.header().mode().map_err(ArchiveError::Malformed)? & 0o755;
        if name.as_os_str().is_empty() {
            // "./": the root itself, which exists.
            continue;
        }
        match kind {
            EntryType::Directory => {
                directory(root, &name)?;
            }
            EntryType::Regular | EntryType::Continuous => {
                unpacked.bytes = unpacked.bytes.saturating_add(entry.size());
                if unpacked.bytes > bounds.bytes {
                    return Err(ArchiveError::Bound("bytes"));
                }
                regular(root, &name, mode, entry.size(), &mut entry)?;
                unpacked.files.push(name);
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                if !stays_inside(&name, Path::new(OsStr::from_bytes(&target))) {
                    return refuse("its link leaves the directory");
                }
                symlink(root, &name, &target)?;
                unpacked.files.push(name);
            }
            EntryType::XGlobalHeader => {}
            _ => return refuse("only files, directories and symbolic links are taken"),
        }
    }
    Ok(unpacked)
}

/// Refuses archives whose extension headers are out of all proportion, before the parser takes them into memory. It
/// only ever refuses: what an entry is remains the parser's word.
struct Guarded<R> {
    reader: R,
    header: Vec<u8>,
    /// Bytes of content until the next header.
    content: u64,
}

/// Long names and attributes of one entry; a path has at most 4 KiB.
const MOST_EXTENSION: u64 = 64 * 1024;

impl<R: Read> Guarded<R> {
    fn new(reader: R) -> Self {
        Self { reader, header: Vec::with_capacity(512), content: 0 }
    }

    fn watch(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let skipped = usize::try_from(self.content).unwrap_or(usize::MAX).min(bytes.len());
            self.content -= skipped as u64;
            bytes = &bytes[skipped..];
            let wanted = (512 - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..wanted]);
            bytes = &bytes[wanted..];
            if self.header.len() == 512 {
                let header = Header::from_byte_slice(&self.header);
                let size = if self.header.iter().all(|b| *b == 0) { 0 } else { header.entry_size()? };
                let kind = header.entry_type();
                let extension = kind.is_gnu_longname()
                    || kind.is_gnu_longlink()
                    || kind.is_pax_local_extensions()
                    || kind.is_pax_global_extensions();
                if extension && size > MOST_EXTENSION {
                    return Err(io::Error::other("an extension header is too long"));
                }
                self.content = size.checked_next_multiple_of(512).ok_or(io::ErrorKind::InvalidData)?;
                self.header.clear();
            }
        }
        Ok(())
    }
}

impl<R: Read> Read for Guarded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buffer)?;
        self.watch(&buffer[..n])?;
        Ok(n)
    }
}

/// A name that cannot climb: plain components only.
fn entry_name(bytes: &[u8], bounds: Bounds) -> Result<PathBuf, ArchiveError> {
    let path = PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()));
    let refuse = |why| Err(ArchiveError::Refused { name: path.clone(), why });
    if bytes.contains(&0) {
        return refuse("its name holds a NUL");
    }
    if bytes.len() > 4096 {
        return refuse("its name is too long");
    }
    let mut name = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) if part.len() <= 255 => name.push(part),
            Component::Normal(_) => return refuse("a part of its name is too long"),
            Component::CurDir => {}
            Component::ParentDir => return refuse("its name climbs with '..'"),
            Component::RootDir | Component::Prefix(_) => return refuse("its name is absolute"),
        }
    }
    if name.components().count() > bounds.depth {
        return Err(ArchiveError::Bound("depth"));
    }
    Ok(name)
}

/// Whether a link at `name` points to somewhere below the root. `name` is made of real directories, so climbing from it
/// can be counted; after any other part a `..` could climb from wherever a further link leads, and is refused.
fn stays_inside(name: &Path, target: &Path) -> bool {
    let mut above = name.components().count().saturating_sub(1);
    let mut climbing = true;
    for component in target.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(_) => climbing = false,
            Component::ParentDir if climbing && above > 0 => above -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

/// Opens the directory `name` below `root`, making what is missing; no component may be a link.
fn directory(root: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, ArchiveError> {
    let fail = |source| ArchiveError::Write { name: name.to_owned(), source };
    let mut at = open_beneath(root, OsStr::new(".")).map_err(fail)?;
    for part in name {
        match rustix::fs::mkdirat(&at, part, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(fail(e)),
        }
        at = open_beneath(at.as_fd(), part).map_err(fail)?;
    }
    Ok(at)
}

fn open_beneath(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(
        dir,
        name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
}

/// The directory that will hold `name`, with anything but a directory removed from that place.
fn cleared(root: BorrowedFd<'_>, name: &Path) -> Result<OwnedFd, ArchiveError> {
    let parent = directory(root, name.parent().unwrap_or(Path::new("")))?;
    match rustix::fs::unlinkat(&parent, last(name), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(parent),
        Err(source) => Err(ArchiveError::Write { name: name.to_owned(), source }),
    }
}

fn last(name: &Path) -> &OsStr {
    name.file_name().unwrap_or_default()
}

fn regular(
    root: BorrowedFd<'_>,
    name: &Path,
    mode: u32,
    size: u64,
    content: &mut impl Read,
) -> Result<(), ArchiveError> {
    let fail = |source| ArchiveError::Write { name: name.to_owned(), source };
    let parent = cleared(root, name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&parent, last(name), flags, Mode::from_raw_mode(mode)).map_err(fail)?;
    let filled = fill(&file, size, content, fail)
        .and_then(|()| rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(fail));
    if filled.is_err() {
        // Half a file looks like a whole one.
        let _ = rustix::fs::unlinkat(&parent, last(name), AtFlags::empty());
    }
    filled
}

fn fill(
    file: &OwnedFd,
    size: u64,
    content: &mut impl Read,
    fail: impl Fn(Errno) -> ArchiveError,
) -> Result<(), ArchiveError> {
    let mut buffer = vec![0; CHUNK];
    let mut left = size;
    loop {
        match content.read(&mut buffer) {
            Ok(0) if left > 0 => return Err(ArchiveError::Malformed(io::ErrorKind::UnexpectedEof.into())),
            Ok(0) => return Ok(()),
            Ok(n) => {
                left = left.saturating_sub(n as u64);
                crate::child::write_all(file.as_fd(), &buffer[..n]).map_err(&fail)?;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(ArchiveError::Malformed(e)),
        }
    }
}

fn symlink(root: BorrowedFd<'_>, name: &Path, target: &[u8]) -> Result<(), ArchiveError> {
    let parent = cleared(root, name)?;
    rustix::fs::symlinkat(target, &parent, last(name))
        .map_err(|source| ArchiveError::Write { name: name.to_owned(), source })
}

/// Writes the content of a directory as an archive. Links that leave the directory and special files are left out, so
/// that whoever unpacks it is safe. `exclude` names paths relative to the directory.
pub fn pack(dir: BorrowedFd<'_>, exclude: &[&[u8]], writer: impl Write) -> Result<(), ArchiveError> {
    let mut builder = tar::Builder::new(writer);
    pack_directory(dir, Path::new(""), exclude, &mut builder)?;
    builder
        .into_inner()
        .and_then(|mut writer| writer.flush())
        .map_err(|source| ArchiveError::Read { name: PathBuf::from("."), source })
}

fn pack_directory<W: Write>(
    dir: BorrowedFd<'_>,
    prefix: &Path,
    exclude: &[&[u8]],
    builder: &mut tar::Builder<W>,
) -> Result<(), ArchiveError> {
    if prefix.components().count() > Bounds::SANDBOX.depth {
        return Err(ArchiveError::Bound("depth"));
    }
    let read = |source: Errno| ArchiveError::Read { name: prefix.to_owned(), source: source.into() };
    let mut names = Vec::new();
    for found in Dir::read_from(dir).map_err(read)? {
        names.push(found.map_err(read)?.file_name().to_bytes().to_vec());
    }
    names.sort_unstable();
    for name in names.iter().filter(|n| n.as_slice() != b"." && n.as_slice() != b"..") {
        let path = prefix.join(OsStr::from_bytes(name));
        if exclude.contains(&path.as_os_str().as_bytes()) {
            continue;
        }
        let fail = |source: io::Error| ArchiveError::Read { name: path.clone(), source };
        // A name that vanished since is simply not part of the archive.
        let Ok(stat) = rustix::fs::statat(dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let mut header = Header::new_gnu();
        header.set_mode(stat.st_mode & 0o777);
        header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let Ok(below) = open_beneath(dir, OsStr::from_bytes(name)) else { continue };
                header.set_entry_type(EntryType::Directory);
                header.set_size(0);
                builder.append_data(&mut header, &path, io::empty()).map_err(fail)?;
                pack_directory(below.as_fd(), &path, exclude, builder)?;
            }
            FileType::RegularFile => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let Ok(file) = rustix::fs::openat(dir, name.as_slice(), flags, Mode::empty()) else {
                    continue;
                };
                let size = rustix::fs::fstat(&file).map_err(read)?.st_size;
                let size = u64::try_from(size).unwrap_or(0);
                header.set_entry_type(EntryType::Regular);
                header.set_size(size);
                let content = Exactly { file: std::fs::File::from(file), left: size };
                builder.append_data(&mut header, &path, content).map_err(fail)?;
            }
            FileType::Symlink => {
                let Ok(target) = rustix::fs::readlinkat(dir, name.as_slice(), Vec::new()) else { continue };
                let target = PathBuf::from(OsStr::from_bytes(target.to_bytes()));
                if stays_inside(&path, &target) {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_size(0);
                    builder.append_link(&mut header, &path, &target).map_err(fail)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// A file read to exactly the size that its header states: cut when it grows, filled with zeroes when it shrinks.
struct Exactly {
    file: std::fs::File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if want == 0 {
            return Ok(0);
        }
        let n = match self.file.read(&mut buffer[..want])? {
            0 => {
                buffer[..want].fill(0);
                want
            }
            n => n,
        };
        self.left -= n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests;
