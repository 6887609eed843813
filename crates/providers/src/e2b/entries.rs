//! What is at a path, as they tell it and as we do.

use sandstorm_e2b_wire::filesystem::{EntryInfo, FileType};
use sandstorm_provider::{FileInfo, FileKind, Metadata, Result};
use sandstorm_types::{ByteSize, GuestPath, User};

use super::error::senseless;
use super::view::moment;

/// What they tell of a path. A link is told as what it leads to, so that only its permissions are its own; where it leads
/// is told as the place itself, not as it is written in the link.
pub(super) fn info(theirs: &EntryInfo) -> Result<FileInfo> {
    let path: GuestPath = match theirs.path.starts_with('/') {
        true => theirs.path.parse().map_err(|_| senseless("a path is none"))?,
        false => return Err(senseless("a path does not begin at the root")),
    };
    let linked = theirs.symlink_target.is_some() || theirs.kind == FileType::Symlink;
    let kind = match theirs.kind {
        _ if linked => FileKind::Link,
        FileType::File => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink | FileType::Unspecified => FileKind::Other,
    };
    let mode = match linked {
        true => permission_bits(&theirs.permissions).unwrap_or(0o777),
        false => theirs.mode & 0o7777,
    };
    Ok(FileInfo {
        path,
        kind,
        size: ByteSize::bytes(theirs.size),
        mode,
        modified: moment(&theirs.modified_time)?,
        target: theirs.symlink_target.clone(),
        owner: match theirs.owner.as_str() {
            "user" => Some(User::User),
            "root" => Some(User::Root),
            _ => None,
        },
        metadata: Metadata::new(),
    })
}

/// The bits of `-rw-r--r--`.
fn permission_bits(text: &str) -> Option<u32> {
    let letters = text.get(text.len().checked_sub(9)?..)?;
    letters.chars().zip("rwxrwxrwx".chars()).try_fold(0, |bits, (letter, wanted)| match letter {
        '-' => Some(bits << 1),
        letter if letter == wanted => Some(bits << 1 | 1),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &str, kind: FileType) -> EntryInfo {
        EntryInfo {
            path: path.to_owned(),
            kind,
            size: 5,
            mode: 0o100_644,
            permissions: "-rw-r-----".to_owned(),
            modified_time: "2026-01-01T00:00:00Z".to_owned(),
            ..EntryInfo::default()
        }
    }

    #[test]
    fn links_are_links() {
        let file = info(&entry("/a", FileType::File)).unwrap();
        assert_eq!((file.kind, file.mode, file.size.as_u64()), (FileKind::File, 0o644, 5));
        let told = EntryInfo { symlink_target: Some("/b".to_owned()), ..entry("/a", FileType::Directory) };
        let link = info(&told).unwrap();
        assert_eq!((link.kind, link.mode, link.target.as_deref()), (FileKind::Link, 0o640, Some("/b")));
        assert_eq!(info(&entry("/a", FileType::Symlink)).unwrap().kind, FileKind::Link);
        assert_eq!(info(&entry("/a", FileType::Unspecified)).unwrap().kind, FileKind::Other);
    }

    #[test]
    fn paths_are_checked() {
        for bad in ["", "a", "/../etc", "/a\0b"] {
            assert!(info(&entry(bad, FileType::File)).is_err(), "{bad:?}");
        }
        for bad in ["", "rw", "?????????", "ürwxrwxrw"] {
            assert_eq!(permission_bits(bad), None, "{bad}");
        }
    }
}
