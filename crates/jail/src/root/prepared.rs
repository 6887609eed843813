//! Roots that several jails have in common, put together once by a launcher that may mount.
//!
//! Everything that is the same for all jails of one description is in it: directories, links, generated files, devices. It
//! belongs to the host's root and is attached nowhere. Each jail gets a view of it, with views of the host's trees, so that
//! no inode is two jails' ([`super::trees`]), and adds what is its own. A launcher works with rights that PID 1 does not
//! have, so only descriptions are prepared in which it meets nothing on its way but directories of its own making.

use std::collections::VecDeque;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;

use super::trees::{Copied, copy, open_places, show};
use super::{
    DIRECTORY, Whole, bare_root, is_below_writable, make_directory, make_parents, make_writable_places,
    relative, write_own,
};
use crate::devices;
use crate::mounts::{attach_to, own_view};
use crate::spec::{ROOT_HOME, RootSpec, Tree, WRITABLE};
use crate::step::{Failed, Step};

/// Roots that are kept.
const MOST: usize = 8;

/// Descriptions that are remembered: one that is never seen again is not worth a root.
const REMEMBERED: usize = 32;

/// A root is made anew after this time. What was mounted below a tree of the host in between shows from then on, and what
/// was unmounted is let go of.
const OLDEST: Duration = Duration::from_secs(10);

/// All roots of a launcher.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    roots: VecDeque<Root>,
    seen: VecDeque<u64>,
    /// This kernel shows nothing that is attached nowhere, as all before Linux 6.15. Then each PID 1 builds its root, which
    /// takes it longer.
    impossible: bool,
}

#[derive(Debug)]
struct Root {
    description: RootSpec,
    /// Trees that have no view.
    whole: Whole,
    /// What all jails have in common, and an empty directory.
    common: OwnedFd,
    empty: OwnedFd,
    /// Directories of the host that are shown in it.
    trees: Vec<Source>,
    made: Instant,
}

/// A tree of the host, and where it was found: device and inode.
#[derive(Debug)]
struct Source {
    tree: Tree,
    place: OwnedFd,
    was: (u64, u64),
}

/// A root of one jail's own, not attached yet.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) mount: OwnedFd,
    /// What has inodes that others have as well.
    pub(crate) shared: Vec<String>,
}

impl Prepared {
    /// A view of a root of this description, if there is one that can be had: else PID 1 has to build it.
    pub(crate) fn view(&mut self, spec: &RootSpec, follow_links: bool, whole: &Whole) -> Option<View> {
        if self.impossible {
            return None;
        }
        self.roots.retain(|root| root.made.elapsed() < OLDEST);
        let found = self.roots.iter().position(|root| same(&root.description, spec) && root.whole == *whole);
        if let Some(at) = found {
            if self.roots[at].is_current() {
                return self.roots[at].view().ok();
            }
            self.roots.remove(at);
        }
        if !is_plain(spec) || !self.was_seen(spec) {
            return None;
        }
        let root = Root::make(spec, follow_links, whole).ok()?;
        let mount = match root.bare_view() {
            Ok(mount) => mount,
            Err(errno) => {
                self.impossible = errno == Errno::INVAL;
                return None;
            }
        };
        // One tree that cannot be shown so says nothing about other roots.
        let view = root.furnish(mount).ok()?;
        self.roots.push_back(root);
        if self.roots.len() > MOST {
            self.roots.pop_front();
        }
        Some(view)
    }

    /// Whether it was asked for before.
    fn was_seen(&mut self, spec: &RootSpec) -> bool {
        let mut hasher = DefaultHasher::new();
        (&spec.trees, &spec.links, &spec.files, &spec.exposed).hash(&mut hasher);
        let hash = hasher.finish();
        if self.seen.contains(&hash) {
            return true;
        }
        self.seen.push_back(hash);
        if self.seen.len() > REMEMBERED {
            self.seen.pop_front();
        }
        false
    }
}

impl Root {
    fn make(spec: &RootSpec, follow_links: bool, whole: &Whole) -> Result<Self, Failed> {
        let places = open_places(spec, follow_links, |tree| !is_below_writable(&tree.target))?;
        let base = bare_root()?;
        let (mut directories, mut files) = (Vec::new(), Vec::new());
        for (tree, place) in places {
            let found =
                rustix::fs::fstat(&place).step_with(|| format!("look at {}", tree.source.display()))?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => {
                    let was = (found.st_dev, found.st_ino);
                    directories.push(Source { tree: tree.clone(), place, was });
                }
                FileType::RegularFile => files.push((tree, place)),
                _ => return Err(Errno::NOTDIR).step_with(|| format!("look at {}", tree.source.display())),
            }
        }
        let part = |name: &str| {
            rustix::fs::mkdirat(&base, name, Mode::from_raw_mode(0o755))
                .and_then(|()| rustix::fs::chmodat(&base, name, Mode::from_raw_mode(0o755), AtFlags::empty()))
                .and_then(|()| rustix::fs::openat(&base, name, DIRECTORY, Mode::empty()))
                .step("root file system")
        };
        let (common, empty) = (part("common")?, part("empty")?);
        at(&common, || {
            for (tree, place) in files {
                copy_only(tree, &place)?;
            }
            write_own(spec)?;
            for directory in directories.iter().map(|source| source.tree.target.as_path()) {
                make_directory(relative(directory))
                    .step_with(|| format!("place for {}", directory.display()))?;
            }
            make_directory(Path::new("proc")).step("proc")?;
            make_directory(Path::new("dev")).step("device directory")?;
            let devices = rustix::fs::open("dev", DIRECTORY, Mode::empty()).step("device directory")?;
            devices::make_in(&devices)?;
            make_writable_places()
        })?;
        let (description, whole) = (spec.clone(), whole.clone());
        Ok(Self { description, whole, common, empty, trees: directories, made: Instant::now() })
    }

    /// Whether its trees are still what is found at their places.
    fn is_current(&self) -> bool {
        self.trees.iter().all(|Source { tree, was, .. }| {
            fs::metadata(&tree.source).is_ok_and(|found| (found.dev(), found.ino()) == *was)
        })
    }

    fn view(&self) -> Result<View, Errno> {
        self.furnish(self.bare_view()?)
    }

    /// A view of what all jails have in common.
    fn bare_view(&self) -> Result<OwnedFd, Errno> {
        own_view(self.common.as_fd(), self.empty.as_fd(), MountAttrFlags::MOUNT_ATTR_NOSUID)
    }

    /// The same with the trees.
    fn furnish(&self, mount: OwnedFd) -> Result<View, Errno> {
        let mut shared = Vec::new();
        for Source { tree, place, .. } in &self.trees {
            let empty = Some(self.empty.as_fd()).filter(|_| !self.whole.has(tree));
            let (part, own) = show(place, empty)?;
            attach_to(&mount, &part, relative(&tree.target))?;
            if !own {
                shared.push(tree.target.display().to_string());
            }
        }
        Ok(View { mount, shared })
    }
}

/// Puts a file of the host into a root that several jails are going to see views of. One that cannot be copied is left to PID 1.
fn copy_only(tree: &Tree, place: &OwnedFd) -> Result<(), Failed> {
    let step = || format!("copy {}", tree.source.display());
    make_parents(&tree.target).step_with(step)?;
    match copy(place, relative(&tree.target)).step_with(step)? {
        Copied::Whole => Ok(()),
        Copied::TooLarge | Copied::Closed => Err(Errno::FBIG).step_with(step),
    }
}

/// Does something in another directory and under the file mode mask of a PID 1. What follows a failure to come back would
/// happen there: there is no going on from that.
fn at<T>(dir: &OwnedFd, work: impl FnOnce() -> Result<T, Failed>) -> Result<T, Failed> {
    let home = rustix::fs::open(".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .step("working directory")?;
    rustix::process::fchdir(dir).step("root file system")?;
    let mask = rustix::process::umask(Mode::from_raw_mode(0o022));
    let done = work();
    rustix::process::umask(mask);
    if rustix::process::fchdir(&home).is_err() {
        sandstorm_sys::fork::exit_now(1);
    }
    done
}

/// The same but for the writable file system, which is each jail's own.
fn same(a: &RootSpec, b: &RootSpec) -> bool {
    (&a.trees, &a.links, &a.files, &a.exposed) == (&b.trees, &b.links, &b.files, &b.exposed)
}

/// Whether nothing in it is below anything else: then no way to any place leads through a tree of the host or a link.
fn is_plain(spec: &RootSpec) -> bool {
    let trees = spec.trees.iter().chain(&spec.exposed).map(|tree| tree.target.as_path());
    let own =
        spec.links.iter().map(|(path, _)| path.as_path()).chain(spec.files.iter().map(|(p, _)| p.as_path()));
    let mut places: Vec<&Path> = trees.filter(|target| !is_below_writable(target)).chain(own).collect();
    let is_simple = |path: &&Path| {
        let mut parts = path.components();
        parts.next() == Some(Component::RootDir)
            && path.parent().is_some()
            && parts.all(|part| matches!(part, Component::Normal(_)))
    };
    if !places.iter().all(is_simple) {
        return false;
    }
    places.extend(["/proc", "/dev", ROOT_HOME].map(Path::new));
    places
        .extend(WRITABLE.iter().map(|(path, _, _)| Path::new(path)).filter(|path| !path.starts_with("/dev")));
    // Paths sort by their parts, so that what is below another comes right behind it or behind what else is below.
    places.sort_unstable();
    places.windows(2).all(|pair| !pair[1].starts_with(pair[0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{self, Additions};

    fn host() -> RootSpec {
        template::host(1 << 20, 100, Additions::default())
    }

    #[test]
    fn the_template_is_plain_and_what_leads_through_another_is_not() {
        assert!(is_plain(&host()));
        let tree = |target: &str| Tree { source: "/usr/share".into(), target: target.into() };
        for target in
            ["/usr/local/go", "/bin/x", "/etc", "/etc/passwd/x", "/dev/x", "/proc", "/", "/a/../b", "a"]
        {
            let mut spec = host();
            spec.links.push(("/bin".into(), "/usr/bin".into()));
            spec.links.dedup();
            spec.trees.push(tree(target));
            assert!(!is_plain(&spec), "{target}");
            let mut spec = host();
            spec.files.push((target.into(), Vec::new()));
            spec.links.retain(|(at, _)| at != Path::new("/bin"));
            spec.links.push(("/bin".into(), "/etc".into()));
            assert!(!is_plain(&spec), "{target}");
        }
        for target in ["/opt/layer", "/usrx", "/workspace/deps"] {
            let mut spec = host();
            spec.trees.push(tree(target));
            assert!(is_plain(&spec), "{target}");
        }
    }

    #[test]
    fn a_file_below_a_link_would_be_written_elsewhere() {
        let mut spec = host();
        spec.links.push(("/opt".into(), "/etc".into()));
        assert!(is_plain(&spec));
        spec.files.push(("/opt/passwd".into(), Vec::new()));
        assert!(!is_plain(&spec));
    }

    #[test]
    fn only_what_is_asked_for_again_is_worth_a_root() {
        let mut prepared = Prepared::default();
        assert!(!prepared.was_seen(&host()));
        let mut larger = host();
        larger.scratch_bytes *= 2;
        assert!(prepared.was_seen(&larger), "the writable file system is no part of it");
        larger.files.push(("/etc/more".into(), Vec::new()));
        assert!(!prepared.was_seen(&larger));
    }
}
