//! Roots that several jails have in common, put together once by a launcher that may mount.
//!
//! Everything that is the same for all jails of one description is in it: directories, links, generated files, trees of
//! the host, devices. It is read-only, belongs to the host's root and is attached nowhere; each jail gets a copy of its
//! mounts and adds what is its own. A launcher works with rights that PID 1 does not have, so only descriptions are
//! prepared in which it meets nothing on its way but directories of its own making.

use std::collections::VecDeque;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;
use sandstorm_sys::mount::MountAttributes;

use super::{Taken, bare_root, furnish, is_below_writable, make_directory, make_writable_places, take_those};
use crate::devices;
use crate::spec::{RootSpec, Tree, WRITABLE};
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
    /// This kernel does not let anything be attached to what is attached nowhere.
    impossible: bool,
}

/// A tree of the host by its path, and what was found there: device and inode.
type Source = (PathBuf, (u64, u64));

#[derive(Debug)]
struct Root {
    description: RootSpec,
    mount: OwnedFd,
    /// What each tree was when it was taken.
    sources: Vec<Source>,
    made: Instant,
}

impl Prepared {
    /// The mounts of a root of this description, if there is one that can be had: else PID 1 has to build it.
    pub(crate) fn copy(&mut self, spec: &RootSpec, follow_links: bool) -> Option<OwnedFd> {
        if self.impossible {
            return None;
        }
        self.roots.retain(|root| root.made.elapsed() < OLDEST);
        let found = self.roots.iter().position(|root| same(&root.description, spec));
        if let Some(at) = found {
            if self.roots[at].is_current() {
                return self.roots[at].copy().ok();
            }
            self.roots.remove(at);
        }
        if !is_plain(spec) || !self.was_seen(spec) {
            return None;
        }
        match Root::make(spec, follow_links) {
            Ok(root) => {
                let copy = root.copy().ok();
                self.roots.push_back(root);
                if self.roots.len() > MOST {
                    self.roots.pop_front();
                }
                copy
            }
            Err(failed) => {
                self.impossible = failed.errno == Errno::INVAL;
                None
            }
        }
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
    fn make(spec: &RootSpec, follow_links: bool) -> Result<Self, Failed> {
        let trees = take_those(spec, follow_links, |tree| !is_below_writable(&tree.target))?;
        let sources = trees.sources()?;
        let nodes = devices::take_nodes()?;
        let mount = bare_root()?;
        at(&mount, || {
            furnish(spec, trees)?;
            make_directory(Path::new("proc")).step("proc")?;
            devices::furnish(nodes)?;
            make_writable_places()
        })?;
        sandstorm_sys::mount::set_attributes(mount.as_fd(), c"", MountAttributes::READ_ONLY, false)
            .step("read-only root")?;
        Ok(Self { description: spec.clone(), mount, sources, made: Instant::now() })
    }

    /// Whether its trees are still what is found at their places.
    fn is_current(&self) -> bool {
        self.sources
            .iter()
            .all(|(path, was)| fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == *was))
    }

    fn copy(&self) -> Result<OwnedFd, Errno> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_EMPTY_PATH;
        rustix::mount::open_tree(&self.mount, "", flags)
    }
}

impl Taken<'_> {
    fn sources(&self) -> Result<Vec<Source>, Failed> {
        let identify = |(tree, mount): &(&Tree, OwnedFd)| {
            let found =
                rustix::fs::fstat(mount).step_with(|| format!("look at {}", tree.source.display()))?;
            Ok((tree.source.clone(), (found.st_dev, found.st_ino)))
        };
        self.0.iter().map(identify).collect()
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
    places.extend(["/proc", "/dev"].map(Path::new));
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
