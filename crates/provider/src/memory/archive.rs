//! Tar archives of a tree.
//!
//! An archive is checked entry by entry before the first one is unpacked, so that a refused archive
//! changes nothing.

use std::io::{self, Read};

use bytes::Bytes;
use sandstorm_types::GuestPath;

use super::error::MemoryError;
use super::tree::Tree;
use crate::{FileEvent, FileKind};

/// Most bytes of an archive that are taken in.
pub(super) const MAX_ARCHIVE: usize = 256 << 20;
const MAX_ENTRIES: usize = 100_000;

pub(super) fn pack(tree: &Tree, root: &GuestPath) -> Result<Bytes, MemoryError> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, info) in tree.below(root)? {
        let name = path.relative_to(root).expect("it was found below the root");
        let mut header = tar::Header::new_gnu();
        header.set_mode(info.mode);
        header.set_mtime(0);
        match info.kind {
            FileKind::Directory => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_size(0);
                builder.append_data(&mut header, name, io::empty())?;
            }
            FileKind::File => {
                header.set_size(info.size.as_u64());
                builder.append_data(&mut header, name, tree.read(path)?.as_ref())?;
            }
            FileKind::Link | FileKind::Other => unreachable!("this tree holds files and folders only"),
        }
    }
    Ok(builder.into_inner()?.into())
}

pub(super) fn unpack(
    tree: &mut Tree,
    root: &GuestPath,
    archive: &[u8],
) -> Result<Vec<FileEvent>, MemoryError> {
    let entries = read(root, archive)?;
    // On a copy, so that running out of room midway leaves the tree as it was.
    let mut copy = tree.clone();
    let mut changes = copy.make_dir(root)?;
    for (path, content, mode) in entries {
        changes.extend(match content {
            Some(bytes) => copy.write(&path, bytes)?,
            None => copy.make_dir(&path)?,
        });
        if path != *root {
            copy.set_mode(&path, mode)?;
        }
    }
    *tree = copy;
    Ok(changes)
}

type Entry = (GuestPath, Option<Bytes>, u32);

fn read(root: &GuestPath, archive: &[u8]) -> Result<Vec<Entry>, MemoryError> {
    let mut found = Vec::new();
    for entry in tar::Archive::new(archive).entries()? {
        let mut entry = entry?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if found.len() == MAX_ENTRIES {
            return Err(io::Error::other("there are too many entries").into());
        }
        let content = match entry.header().entry_type() {
            tar::EntryType::Regular => {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes)?;
                Some(Bytes::from(bytes))
            }
            tar::EntryType::Directory => None,
            _ => return Err(MemoryError::ArchiveKind(name)),
        };
        let mode = entry.header().mode()? & 0o777;
        let path = root.join(&name).map_err(|source| MemoryError::ArchiveName { name, source })?;
        found.push((path, content, mode));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use sandstorm_types::Limits;

    use super::*;

    #[test]
    fn a_refused_archive_changes_nothing() {
        let root: GuestPath = "in".parse().unwrap();
        let mut tree = Tree::new(&Limits::default(), false);
        let mut builder = tar::Builder::new(Vec::new());
        for kind in [tar::EntryType::Regular, tar::EntryType::Symlink] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            header.set_mode(0o644);
            if kind == tar::EntryType::Symlink {
                header.set_link_name("/etc/passwd").unwrap();
            }
            builder.append_data(&mut header, format!("{kind:?}"), io::empty()).unwrap();
        }
        let archive = builder.into_inner().unwrap();
        assert!(matches!(unpack(&mut tree, &root, &archive), Err(MemoryError::ArchiveKind(_))));
        assert!(tree.stat(&root).is_err());
    }
}
