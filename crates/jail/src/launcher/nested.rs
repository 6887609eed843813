//! What is mounted below the trees that a jail shows.
//!
//! A view of a tree shows one file system. So whatever is mounted below it on the host becomes a tree of its own, with a view
//! of its own.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::mounts::mount_point;
use crate::spec::{JailSpec, Tree};

/// A tree with more below it is shown as it is, which the report says.
const MOST: usize = 64;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The mounts of this process's mount namespace, read again when they changed.
#[derive(Debug)]
pub(super) struct Mounts {
    list: File,
    places: Vec<PathBuf>,
}

impl Mounts {
    pub(super) fn new() -> std::io::Result<Self> {
        let mut mounts = Self { list: File::open("/proc/self/mountinfo")?, places: Vec::new() };
        mounts.read()?;
        Ok(mounts)
    }

    fn read(&mut self) -> std::io::Result<()> {
        let mut text = Vec::new();
        self.list.rewind()?;
        self.list.read_to_end(&mut text)?;
        self.places = text.split(|byte| *byte == b'\n').filter_map(mount_point).collect();
        Ok(())
    }

    fn refresh(&mut self) {
        let changed = {
            let mut list = [PollFd::new(&self.list, PollFlags::PRI)];
            poll(&mut list, Some(&NOW)).is_ok_and(|ready| ready > 0)
        };
        if changed && self.read().is_err() {
            // What cannot be read is taken as it was, and read again when it changes again.
            self.places.clear();
        }
    }

    /// The same jail with a tree for each mount below one of its trees.
    pub(super) fn spread<'a>(&mut self, spec: &'a JailSpec) -> Cow<'a, JailSpec> {
        self.refresh();
        let below: Vec<Tree> = spec.root.trees.iter().flat_map(|tree| below(tree, &self.places)).collect();
        if below.is_empty() || below.len() > MOST {
            return Cow::Borrowed(spec);
        }
        let mut spread = spec.clone();
        for tree in below {
            // One that is named anyway, or that is mounted over another.
            if spread.root.trees.iter().all(|other| other.target != tree.target) {
                spread.root.trees.push(tree);
            }
        }
        // Each behind what it is mounted on.
        spread.root.trees.sort_by(|a, b| a.target.cmp(&b.target));
        Cow::Owned(spread)
    }
}

fn below(tree: &Tree, places: &[PathBuf]) -> Vec<Tree> {
    let Ok(real) = fs::canonicalize(&tree.source) else { return Vec::new() };
    let within = places.iter().filter_map(|place| Some((place, place.strip_prefix(&real).ok()?)));
    within
        .filter(|(_, rest)| *rest != Path::new(""))
        .map(|(place, rest)| Tree { source: place.clone(), target: tree.target.join(rest) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_below_a_tree_is_one_of_its_own() {
        let places = ["/", "/usr", "/usr/local", "/usr/local/a b", "/usrx"].map(PathBuf::from);
        let tree = Tree { source: "/usr".into(), target: "/there".into() };
        let found = below(&tree, &places);
        let targets: Vec<_> = found.iter().map(|tree| tree.target.to_str().unwrap()).collect();
        assert_eq!(targets, ["/there/local", "/there/local/a b"]);
        assert_eq!(found[1].source, Path::new("/usr/local/a b"));
    }

    #[test]
    fn a_list_is_read_again_only_when_it_changed() {
        let mut mounts = Mounts::new().unwrap();
        assert!(mounts.places.contains(&PathBuf::from("/")));
        mounts.places = vec!["/made/up".into()];
        mounts.refresh();
        assert_eq!(mounts.places, [PathBuf::from("/made/up")]);
    }
}
