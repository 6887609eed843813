//! Removing files and trees, by descriptor and without recursion: a tree may be nested deeper than any stack.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use crate::files::{Ours, about, open, split};
use crate::protocol::FileError;

pub(crate) fn remove(path: &Path, recursive: bool) -> Result<(), FileError> {
    let (parent, name) = split(path)?;
    let parent = open(parent, OFlags::RDONLY | OFlags::DIRECTORY).map_err(about(path))?;
    match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) => return Ok(()),
        Err(Errno::ISDIR) => {}
        Err(e) => return Err(about(path)(e)),
    }
    if recursive {
        let top = rustix::fs::openat(&parent, name, DIRECTORY, Mode::empty()).map_err(about(path))?;
        empty(top).map_err(about(path))?;
    }
    rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR).map_err(about(path))
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Empties a directory. Sub-directories are lifted to the top under a name of ours before they are emptied, so depth
/// never costs more than one descriptor and no path grows.
fn empty(top: OwnedFd) -> Result<(), Errno> {
    let mut lifted = 0u64;
    loop {
        let Some(name) = first_name(&top)? else { return Ok(()) };
        match rustix::fs::unlinkat(&top, name.as_slice(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR) => {}
            Err(e) => return Err(e),
        }
        match rustix::fs::unlinkat(&top, name.as_slice(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
        // The owner may have taken its own rights away; as the owner, give them back.
        let _ = rustix::fs::chmodat(&top, name.as_slice(), Mode::RWXU, AtFlags::empty());
        let below = rustix::fs::openat(&top, name.as_slice(), DIRECTORY, Mode::empty())?;
        while let Some(inner) = first_name(&below)? {
            match rustix::fs::unlinkat(&below, inner.as_slice(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => continue,
                Err(Errno::ISDIR) => {}
                Err(e) => return Err(e),
            }
            lifted += 1;
            let _ = rustix::fs::chmodat(&below, inner.as_slice(), Mode::RWXU, AtFlags::empty());
            rustix::fs::renameat(&below, inner.as_slice(), &top, Ours::Removed(lifted).name())?;
        }
        rustix::fs::unlinkat(&top, name.as_slice(), AtFlags::REMOVEDIR)?;
    }
}

fn first_name(dir: &OwnedFd) -> Result<Option<Vec<u8>>, Errno> {
    for found in Dir::read_from(dir)? {
        let found = found?;
        let name = found.file_name().to_bytes();
        if name != b"." && name != b".." {
            return Ok(Some(name.to_vec()));
        }
    }
    Ok(None)
}
