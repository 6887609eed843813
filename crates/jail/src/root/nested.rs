//! What is mounted below the trees that a jail shows.
//!
//! A view of a tree shows one file system, and where something is mounted, what lies below that. So whatever is mounted below
//! a tree on the host becomes a tree of its own, with a view of its own. A tree for which that cannot be had is shown as it
//! is, with all that is mounted below it, which the report says.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::mounts::{mount_point, open_place};
use crate::spec::{RootSpec, Tree};

/// With more below its trees, a jail shows them as they are.
const MOST: usize = 64;

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The mounts of this process's mount namespace, read again when they changed.
#[derive(Debug)]
pub(crate) struct Mounts {
    list: File,
    /// `None`: they could not be read.
    places: Option<Vec<PathBuf>>,
}

/// Trees that have no view, since more is mounted below them than has trees of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Whole {
    /// Where they are shown.
    targets: Vec<PathBuf>,
    /// All of them.
    all: bool,
}

impl Whole {
    /// For whoever does not know what is mounted.
    pub(crate) fn all() -> Self {
        Self { targets: Vec::new(), all: true }
    }

    pub(crate) fn has(&self, tree: &Tree) -> bool {
        self.all || self.targets.contains(&tree.target)
    }
}

impl Mounts {
    pub(crate) fn new() -> std::io::Result<Self> {
        let mut mounts = Self { list: File::open("/proc/self/mountinfo")?, places: None };
        mounts.places = Some(mounts.read()?);
        Ok(mounts)
    }

    /// A list of these, which does not change.
    #[cfg(test)]
    pub(crate) fn of(places: &[&str]) -> Self {
        let list = File::open("/proc/self/mountinfo").expect("there is a list of mounts");
        Self { list, places: Some(places.iter().map(PathBuf::from).collect()) }
    }

    fn read(&mut self) -> std::io::Result<Vec<PathBuf>> {
        let mut text = Vec::new();
        self.list.rewind()?;
        self.list.read_to_end(&mut text)?;
        Ok(text.split(|byte| *byte == b'\n').filter_map(mount_point).collect())
    }

    fn refresh(&mut self) {
        let changed = {
            let mut list = [PollFd::new(&self.list, PollFlags::PRI)];
            poll(&mut list, Some(&NOW)).is_ok_and(|ready| ready > 0)
        };
        if changed || self.places.is_none() {
            self.places = self.read().ok();
        }
    }

    /// A tree for each mount below one of a root's trees, and which of its trees are to be shown as they are.
    pub(crate) fn below(&mut self, root: &RootSpec) -> (Vec<Tree>, Whole) {
        self.refresh();
        match &self.places {
            Some(places) => all_below(root, places),
            None => (Vec::new(), Whole::all()),
        }
    }
}

/// Puts trees that are mounted below others behind those.
pub(crate) fn add(root: &mut RootSpec, below: Vec<Tree>) {
    for tree in below {
        // One that is named anyway, or that is mounted over another.
        if root.trees.iter().all(|other| other.target != tree.target) {
            root.trees.push(tree);
        }
    }
    root.trees.sort_by(|a, b| a.target.cmp(&b.target));
}

fn all_below(root: &RootSpec, places: &[PathBuf]) -> (Vec<Tree>, Whole) {
    let (mut found, mut whole) = (Vec::new(), Whole::default());
    for tree in &root.trees {
        match below(tree, places) {
            Some(trees) => found.push((tree, trees)),
            None => whole.targets.push(tree.target.clone()),
        }
    }
    // A tree of its own would be among Landlock's rules.
    let exposed = root.exposed.iter().filter(|tree| !within(tree, places).is_empty());
    whole.targets.extend(exposed.map(|tree| tree.target.clone()));
    if found.iter().map(|(_, trees)| trees.len()).sum::<usize>() > MOST {
        let crowded = found.iter().filter(|(_, trees)| !trees.is_empty());
        whole.targets.extend(crowded.map(|(tree, _)| tree.target.clone()));
        return (Vec::new(), whole);
    }
    (found.into_iter().flat_map(|(_, trees)| trees).collect(), whole)
}

/// The mounts below a tree, each as a tree of its own. `None`: one of them cannot be had.
fn below(tree: &Tree, places: &[PathBuf]) -> Option<Vec<Tree>> {
    let mut found = Vec::new();
    for (place, rest) in within(tree, places) {
        match open_place(&place, false) {
            Ok(_) => found.push(Tree { target: tree.target.join(rest), source: place }),
            // Something was mounted over it, where nothing leads to it any more.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => return None,
        }
    }
    Some(found)
}

/// What is mounted below a tree, and where that is in it.
fn within(tree: &Tree, places: &[PathBuf]) -> Vec<(PathBuf, PathBuf)> {
    let Ok(real) = fs::canonicalize(&tree.source) else { return Vec::new() };
    let within = places.iter().filter_map(|place| Some((place, place.strip_prefix(&real).ok()?)));
    within
        .filter(|(_, rest)| *rest != Path::new(""))
        .map(|(place, rest)| (place.clone(), rest.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{self, Additions};

    fn tree(source: &str, target: &str) -> Tree {
        Tree { source: source.into(), target: target.into() }
    }

    fn root(trees: Vec<Tree>) -> RootSpec {
        RootSpec { trees, ..template::host(1, 1, Additions::default()) }
    }

    fn paths(paths: &[&str]) -> Vec<PathBuf> {
        paths.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn what_is_mounted_below_a_tree_is_one_of_its_own() {
        let found =
            within(&tree("/usr", "/there"), &paths(&["/", "/usr", "/usr/bin", "/usr/bin/a b", "/usrx"]));
        let rests: Vec<_> = found.iter().map(|(_, rest)| rest.to_str().unwrap()).collect();
        assert_eq!(rests, ["bin", "bin/a b"]);
        let (found, whole) =
            all_below(&root(vec![tree("/usr", "/there")]), &paths(&["/", "/usr", "/usr/bin"]));
        assert_eq!((found, whole), (vec![tree("/usr/bin", "/there/bin")], Whole::default()));
    }

    #[test]
    fn what_was_mounted_over_is_left_out() {
        let covered = paths(&["/usr/no-such-folder/here", "/usr/bin/env/here"]);
        let (found, whole) = all_below(&root(vec![tree("/usr", "/usr")]), &covered);
        assert_eq!((found, whole), (Vec::new(), Whole::default()));
    }

    #[test]
    fn a_tree_with_too_much_below_it_or_with_what_cannot_be_had_is_shown_as_it_is() {
        let crowd: Vec<PathBuf> = (0..=MOST).map(|_| "/usr/bin".into()).collect();
        let trees = vec![tree("/usr", "/usr"), tree("/etc/ssl", "/etc/ssl")];
        let (found, whole) = all_below(&root(trees.clone()), &crowd);
        assert_eq!(found, []);
        assert_eq!(trees.iter().map(|tree| whole.has(tree)).collect::<Vec<_>>(), [true, false]);
        let too_long = [PathBuf::from("/usr").join("x".repeat(300))];
        let (found, whole) = all_below(&root(trees.clone()), &too_long);
        assert_eq!(found, []);
        assert!(whole.has(&trees[0]) && !whole.has(&trees[1]));
        let mut exposed = root(Vec::new());
        exposed.exposed = trees.clone();
        assert!(all_below(&exposed, &paths(&["/usr/bin"])).1.has(&trees[0]));
    }

    #[test]
    fn without_the_list_nothing_has_a_view() {
        let mut mounts = Mounts { list: File::open("/dev").unwrap(), places: None };
        let (found, whole) = mounts.below(&root(Vec::new()));
        assert_eq!(found, []);
        assert!(whole.has(&tree("/usr", "/usr")));
    }

    #[test]
    fn a_list_is_read_again_only_when_it_changed() {
        let mut mounts = Mounts::new().unwrap();
        assert!(mounts.places.as_ref().unwrap().contains(&PathBuf::from("/")));
        mounts.places = Some(vec!["/made/up".into()]);
        mounts.refresh();
        assert_eq!(mounts.places, Some(vec![PathBuf::from("/made/up")]));
    }
}
