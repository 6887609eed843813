//! Operations on the files of a sandbox, and what comes back.

use std::collections::BTreeMap;
use std::time::SystemTime;

use sandstorm_types::{ByteSize, GuestPath, User};

use crate::ByteStream;

/// An operation on files, other than reading and writing one.
#[derive(Debug)]
pub enum FileOp {
    /// What is at a path; a link is described, not followed.
    Stat { path: GuestPath },
    /// What lies below a folder down to `depth` levels, sorted by path, at most `limit` entries.
    List { path: GuestPath, depth: u32, limit: usize },
    /// Makes a folder and those above it; an existing folder is success.
    MakeDir { path: GuestPath },
    /// Renames; a file in the way is replaced, folders above the target are made.
    Move { from: GuestPath, to: GuestPath },
    /// Removes a file, a link or a folder; a folder that holds something only if `recursive`.
    Remove { path: GuestPath, recursive: bool },
    /// Sets the permission bits; those above `0o777` are refused.
    SetMode { path: GuestPath, mode: u32 },
    /// Paths below `root` whose last part fits `pattern` (`*` and `?`), at most `limit`.
    Search { root: GuestPath, pattern: String, limit: usize },
    /// A folder as a tar archive with names relative to it.
    Pack { path: GuestPath },
    /// Unpacks a tar archive below a folder. Names that would leave it, devices and links out of it are
    /// refused, and nothing outside is touched.
    Unpack { path: GuestPath, archive: ByteStream },
}

/// What a [`FileOp`] gives.
#[derive(Debug)]
pub enum FileReply {
    Done,
    Info(FileInfo),
    List {
        entries: Vec<FileInfo>,
        /// Whether there was more than the limit let through.
        more: bool,
    },
    Found {
        paths: Vec<GuestPath>,
        more: bool,
    },
    Archive(ByteStream),
}

/// Texts that a caller keeps with a file, by name.
pub type Metadata = BTreeMap<String, String>;

/// Most bytes of the names and texts of one file's metadata together.
pub const MOST_METADATA: usize = 4096;

/// How to write a file. [`Default`] is one without metadata.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// Replaces everything that was kept with the file; needs `files_metadata` unless it is empty.
    pub metadata: Metadata,
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    pub path: GuestPath,
    pub kind: FileKind,
    pub size: ByteSize,
    /// Permission bits.
    pub mode: u32,
    pub modified: SystemTime,
    /// Where a link points, as it is written.
    pub target: Option<String>,
    /// The sandbox's user whose it is. `None`: neither's, or the provider does not tell.
    pub owner: Option<User>,
    /// What is kept with a file or folder, where the provider has `files_metadata`.
    pub metadata: Metadata,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    File,
    Directory,
    Link,
    /// A pipe, socket or device; it is listed but never opened.
    Other,
}

/// Which part of a file to read. [`Default`] is all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadRange {
    /// Bytes to leave out at the start; past the end of the file nothing is read.
    pub offset: u64,
    /// Bytes to read at most; to the end unless given.
    pub length: Option<u64>,
}

/// How to watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WatchOptions {
    /// Whether folders below are watched too.
    pub recursive: bool,
}

/// A change that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEvent {
    pub path: GuestPath,
    pub change: FileChange,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileChange {
    Created,
    Modified,
    /// Its permissions, its owner or what is kept with it changed, and its content did not.
    Attributes,
    Removed,
    /// Renamed from another watched path.
    MovedFrom(GuestPath),
    /// Changes came faster than they could be told; some below `path` are missing.
    Lost,
}

/// Whether a name fits a pattern of `*` and `?`. On a mismatch only the last star is tried again, which is
/// enough and keeps the work at length times length.
pub fn name_fits(name: &str, pattern: &str) -> bool {
    let (name, pattern): (Vec<char>, Vec<char>) = (name.chars().collect(), pattern.chars().collect());
    let (mut at, mut want) = (0, 0);
    let mut star = None;
    while at < name.len() {
        match pattern.get(want) {
            Some('*') => {
                star = Some((want, at));
                want += 1;
            }
            Some(c) if *c == '?' || *c == name[at] => {
                at += 1;
                want += 1;
            }
            _ => match star {
                Some((star_at, from)) => {
                    star = Some((star_at, from + 1));
                    (want, at) = (star_at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[want..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (name, pattern, wanted) in [
            ("a.py", "*.py", true),
            ("a.pyc", "*.py", false),
            ("abc", "a?c", true),
            ("abc", "*", true),
            ("", "", true),
            ("abcbc", "a*bc", true),
            ("abc", "a*d", false),
            ("ab", "ab?", false),
        ] {
            assert_eq!(name_fits(name, pattern), wanted, "{name} {pattern}");
        }
    }
}
