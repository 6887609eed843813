//! The files of a sandbox, with its quotas of bytes and entries.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bytes::Bytes;
use sandstorm_types::{ByteSize, GuestPath, Limits, User};

use super::error::MemoryError;
use crate::{FileChange, FileEvent, FileInfo, FileKind, Metadata, name_fits};

type Changes = Result<Vec<FileEvent>, MemoryError>;

/// Folders that are there from the start; below those in `WRITABLE` anything may be made.
const FOLDERS: [&str; 10] =
    ["/", "/dev", "/dev/shm", "/home", "/home/user", "/proc", "/proc/net", "/root", "/tmp", "/workspace"];
const WRITABLE: [&str; 5] = ["/dev/shm", "/home/user", "/root", "/tmp", "/workspace"];
/// The one of them that is root's alone to write.
const ROOT_HOME: &str = "/root";
/// What a kernel shows where there is only loopback.
const PROC_NET_DEV: &str = "Inter-|   Receive                                                |  Transmit\n \
    face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0\n";

#[derive(Debug, Clone)]
pub(super) struct Tree {
    nodes: BTreeMap<GuestPath, Node>,
    max_bytes: u64,
    max_inodes: u64,
    writable_root: bool,
}

#[derive(Debug, Clone)]
struct Node {
    /// `None` is a folder.
    content: Option<Bytes>,
    mode: u32,
    modified: SystemTime,
    owner: User,
    metadata: Metadata,
}

impl Node {
    fn folder(owner: User) -> Self {
        Self { content: None, mode: 0o755, modified: SystemTime::now(), owner, metadata: Metadata::new() }
    }

    fn file(owner: User, bytes: Bytes, metadata: Metadata) -> Self {
        Self { content: Some(bytes), mode: 0o644, modified: SystemTime::now(), owner, metadata }
    }

    fn len(&self) -> u64 {
        self.content.as_ref().map_or(0, |bytes| bytes.len() as u64)
    }

    fn info(&self, path: &GuestPath) -> FileInfo {
        FileInfo {
            path: path.clone(),
            kind: if self.content.is_some() { FileKind::File } else { FileKind::Directory },
            size: ByteSize::bytes(self.len()),
            mode: self.mode,
            modified: self.modified,
            target: None,
            owner: Some(self.owner),
            metadata: self.metadata.clone(),
        }
    }
}

fn constant(path: &str) -> GuestPath {
    path.parse().expect("a path in this file is a path")
}

impl Tree {
    pub(super) fn new(limits: &Limits, writable_root: bool) -> Self {
        let owner = |path: &str| match path != ROOT_HOME && WRITABLE.contains(&path) {
            true => User::User,
            false => User::Root,
        };
        let folder = |path: &&str| (constant(path), Node::folder(owner(path)));
        let mut nodes: BTreeMap<_, _> = FOLDERS.iter().map(folder).collect();
        let devices = Bytes::from_static(PROC_NET_DEV.as_bytes());
        nodes.insert(constant("/proc/net/dev"), Node::file(User::Root, devices, Metadata::new()));
        Self { nodes, max_bytes: 0, max_inodes: 0, writable_root }.with_limits(limits, writable_root)
    }

    pub(super) fn with_limits(mut self, limits: &Limits, writable_root: bool) -> Self {
        (self.max_bytes, self.max_inodes) = (limits.disk.as_u64(), limits.inodes);
        self.writable_root = writable_root;
        self
    }

    /// Whether it is within its quotas, which it may have come to later than its content.
    pub(super) fn check_room(&self) -> Result<(), MemoryError> {
        let (bytes, inodes) = self.used();
        match (bytes > self.max_bytes, inodes > self.max_inodes) {
            (true, _) => Err(MemoryError::NoRoom(GuestPath::workspace())),
            (_, true) => Err(MemoryError::NoInodes(GuestPath::workspace())),
            _ => Ok(()),
        }
    }

    /// Bytes and entries that count against the quotas.
    pub(super) fn used(&self) -> (u64, u64) {
        let counted =
            self.nodes.iter().filter(|(path, _)| WRITABLE.iter().any(|base| below(path, &constant(base))));
        counted.fold((0, 0), |(bytes, inodes), (_, node)| (bytes + node.len(), inodes + 1))
    }

    pub(super) fn is_file(&self, path: &GuestPath) -> bool {
        self.nodes.get(path).is_some_and(|node| node.content.is_some())
    }

    pub(super) fn is_folder(&self, path: &GuestPath) -> bool {
        self.nodes.get(path).is_some_and(|node| node.content.is_none())
    }

    fn node(&self, path: &GuestPath) -> Result<&Node, MemoryError> {
        self.nodes.get(path).ok_or_else(|| MemoryError::NoFile(path.clone()))
    }

    pub(super) fn stat(&self, path: &GuestPath) -> Result<FileInfo, MemoryError> {
        self.node(path).map(|node| node.info(path))
    }

    pub(super) fn read(&self, path: &GuestPath) -> Result<Bytes, MemoryError> {
        self.node(path)?.content.clone().ok_or_else(|| MemoryError::IsDirectory(path.clone()))
    }

    /// Everything below a folder, in the order of paths.
    pub(super) fn below(
        &self,
        root: &GuestPath,
    ) -> Result<impl Iterator<Item = (&GuestPath, FileInfo)>, MemoryError> {
        if self.node(root)?.content.is_some() {
            return Err(MemoryError::NotDirectory(root.clone()));
        }
        let root = root.clone();
        let found = self.nodes.iter().filter(move |(path, _)| below(path, &root));
        Ok(found.map(|(path, node)| (path, node.info(path))))
    }

    pub(super) fn list(
        &self,
        root: &GuestPath,
        depth: u32,
        limit: usize,
    ) -> Result<(Vec<FileInfo>, bool), MemoryError> {
        let level = |path: &GuestPath| path.relative_to(root).map_or(0, |rest| rest.split('/').count());
        let near = self.below(root)?.filter(|(path, _)| level(path) <= depth as usize).map(|(_, info)| info);
        Ok(at_most(near, limit))
    }

    pub(super) fn search(
        &self,
        root: &GuestPath,
        pattern: &str,
        limit: usize,
    ) -> Result<(Vec<GuestPath>, bool), MemoryError> {
        let fits = |path: &GuestPath| path.file_name().is_some_and(|name| name_fits(name, pattern));
        let found = self.below(root)?.filter(|(path, _)| fits(path)).map(|(path, _)| path.clone());
        Ok(at_most(found, limit))
    }

    pub(super) fn write(&mut self, path: &GuestPath, bytes: Bytes) -> Changes {
        self.write_as(User::User, path, bytes, Metadata::new())
    }

    pub(super) fn write_as(
        &mut self,
        user: User,
        path: &GuestPath,
        bytes: Bytes,
        metadata: Metadata,
    ) -> Changes {
        self.may_write(user, path)?;
        let old = match self.nodes.get(path) {
            Some(Node { content: None, .. }) => return Err(MemoryError::IsDirectory(path.clone())),
            Some(node) => Some(node.clone()),
            None => None,
        };
        let (used, _) = self.used();
        if used - old.as_ref().map_or(0, Node::len) + bytes.len() as u64 > self.max_bytes {
            return Err(MemoryError::NoRoom(path.clone()));
        }
        let mut changes = self.make_parents(user, path)?;
        let mut node = Node::file(user, bytes, metadata);
        let change = match old {
            Some(old) => {
                node.mode = old.mode;
                self.nodes.insert(path.clone(), node);
                FileChange::Modified
            }
            None => {
                self.insert(path, node)?;
                FileChange::Created
            }
        };
        changes.push(FileEvent { path: path.clone(), change });
        Ok(changes)
    }

    pub(super) fn make_dir(&mut self, path: &GuestPath) -> Changes {
        self.make_dir_as(User::User, path)
    }

    pub(super) fn make_dir_as(&mut self, user: User, path: &GuestPath) -> Changes {
        match self.nodes.get(path) {
            Some(Node { content: None, .. }) => return Ok(Vec::new()),
            Some(_) => return Err(MemoryError::NotDirectory(path.clone())),
            None => self.may_write(user, path)?,
        }
        let mut changes = self.make_parents(user, path)?;
        self.insert(path, Node::folder(user))?;
        changes.push(FileEvent { path: path.clone(), change: FileChange::Created });
        Ok(changes)
    }

    fn make_parents(&mut self, user: User, path: &GuestPath) -> Changes {
        match path.parent() {
            Some(parent) => self.make_dir_as(user, &parent),
            None => Ok(Vec::new()),
        }
    }

    pub(super) fn rename(&mut self, from: &GuestPath, to: &GuestPath) -> Changes {
        self.node(from)?;
        self.may_change(from)?;
        self.may_change(to)?;
        if to.is_within(from) {
            return Err(MemoryError::IntoItself { from: from.clone() });
        }
        if self.is_folder(to) {
            return Err(MemoryError::IsDirectory(to.clone()));
        }
        if self.is_file(to) && self.is_folder(from) {
            return Err(MemoryError::NotDirectory(to.clone()));
        }
        let mut changes = self.make_parents(User::User, to)?;
        let moved: Vec<_> = self.nodes.keys().filter(|path| path.is_within(from)).cloned().collect();
        for path in moved {
            let node = self.nodes.remove(&path).expect("the key was just found");
            let rest = &path.as_str()[from.as_str().len()..];
            self.nodes.insert(constant(&format!("{to}{rest}")), node);
        }
        changes.push(FileEvent { path: from.clone(), change: FileChange::Removed });
        changes.push(FileEvent { path: to.clone(), change: FileChange::MovedFrom(from.clone()) });
        Ok(changes)
    }

    pub(super) fn remove(&mut self, path: &GuestPath, recursive: bool) -> Changes {
        self.node(path)?;
        self.may_change(path)?;
        let inside = self.nodes.keys().filter(|inner| below(inner, path)).cloned().collect::<Vec<_>>();
        if !inside.is_empty() && !recursive {
            return Err(MemoryError::NotEmpty(path.clone()));
        }
        let gone = inside.into_iter().rev().chain([path.clone()]).inspect(|path| {
            self.nodes.remove(path);
        });
        Ok(gone.map(|path| FileEvent { path, change: FileChange::Removed }).collect())
    }

    pub(super) fn set_mode(&mut self, path: &GuestPath, mode: u32) -> Changes {
        if mode > 0o777 {
            return Err(MemoryError::Mode(mode));
        }
        self.node(path)?;
        self.may_change(path)?;
        self.nodes.get_mut(path).expect("the node was just found").mode = mode;
        Ok(vec![FileEvent { path: path.clone(), change: FileChange::Attributes }])
    }

    fn may_write(&self, user: User, path: &GuestPath) -> Result<(), MemoryError> {
        if user == User::User && path.is_within(&constant(ROOT_HOME)) {
            return Err(MemoryError::ReadOnly(path.clone()));
        }
        self.may_change(path)
    }

    /// Whether the place can be written by its owner.
    fn may_change(&self, path: &GuestPath) -> Result<(), MemoryError> {
        let fixed = FOLDERS.contains(&path.as_str()) || path.as_str().starts_with("/proc/");
        let open = self.writable_root || WRITABLE.iter().any(|base| below(path, &constant(base)));
        if open && !fixed { Ok(()) } else { Err(MemoryError::ReadOnly(path.clone())) }
    }

    fn insert(&mut self, path: &GuestPath, node: Node) -> Result<(), MemoryError> {
        let (_, inodes) = self.used();
        if inodes >= self.max_inodes {
            return Err(MemoryError::NoInodes(path.clone()));
        }
        self.nodes.insert(path.clone(), node);
        Ok(())
    }
}

fn below(path: &GuestPath, root: &GuestPath) -> bool {
    path != root && path.is_within(root)
}

fn at_most<T>(mut all: impl Iterator<Item = T>, limit: usize) -> (Vec<T>, bool) {
    let kept = all.by_ref().take(limit).collect();
    (kept, all.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(disk: u64, inodes: u64) -> Tree {
        let limits = Limits { disk: ByteSize::bytes(disk), inodes, ..Limits::default() };
        Tree::new(&limits, false)
    }

    #[test]
    fn quotas_count_what_the_sandbox_made() {
        let mut tree = tree(10, 3);
        assert_eq!(tree.used(), (0, 0));
        tree.write(&constant("a"), Bytes::from_static(b"12345678")).unwrap();
        assert!(matches!(
            tree.write(&constant("b"), Bytes::from_static(b"123")),
            Err(MemoryError::NoRoom(_))
        ));
        tree.write(&constant("a"), Bytes::from_static(b"1234567890")).unwrap();
        tree.make_dir(&constant("c/d")).unwrap();
        assert!(matches!(tree.make_dir(&constant("e")), Err(MemoryError::NoInodes(_))));
        assert_eq!(tree.used(), (10, 3));
    }

    #[test]
    fn the_system_stays_as_it_is() {
        let mut tree = tree(100, 100);
        for path in ["/usr/x", "/workspace", "/proc/net/dev", "/"] {
            assert!(
                matches!(tree.write(&constant(path), Bytes::new()), Err(MemoryError::ReadOnly(_))),
                "{path}"
            );
            assert!(tree.remove(&constant(path), true).is_err(), "{path}");
        }
    }

    #[test]
    fn what_is_kept_with_a_file_goes_with_the_next_one() {
        let mut tree = tree(100, 100);
        let (root, kept) = (constant("/root/a"), Metadata::from([("k".to_owned(), "v".to_owned())]));
        assert!(tree.write(&root, Bytes::new()).is_err());
        tree.write_as(User::Root, &root, Bytes::new(), kept.clone()).unwrap();
        let info = tree.stat(&root).unwrap();
        assert_eq!((info.owner, info.metadata), (Some(User::Root), kept));
        tree.write_as(User::Root, &root, Bytes::new(), Metadata::new()).unwrap();
        assert!(tree.stat(&root).unwrap().metadata.is_empty());
    }

    #[test]
    fn folders_move_with_what_they_hold() {
        let mut tree = tree(100, 100);
        tree.write(&constant("a/b/c"), Bytes::from_static(b"x")).unwrap();
        assert!(matches!(
            tree.rename(&constant("a"), &constant("a/b/d")),
            Err(MemoryError::IntoItself { .. })
        ));
        tree.rename(&constant("a"), &constant("n/m")).unwrap();
        assert_eq!(tree.read(&constant("n/m/b/c")).unwrap(), "x");
        assert!(tree.stat(&constant("a")).is_err());
    }
}
