//! Which trees of the host a client with fewer rights than the launcher may show in a jail.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::error::JailError;
use crate::spec::RootSpec;
use crate::template;

/// What a client with fewer rights than its launcher may show in jails, beside the host template's own trees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountSources {
    /// These and everything below them.
    pub trees: Vec<PathBuf>,
    /// Exactly what is called like that, as `/etc/java-*-openjdk`, and is no link: configuration of programs of the host, which
    /// may be installed at any time. A name may have one star.
    pub patterns: Vec<String>,
}

/// Trees that may be shown. What the host has is looked at when somebody wants to show it, because the host changes: what is
/// installed while this runs may be shown like everything else.
#[derive(Debug)]
pub(super) struct Sources {
    trees: Vec<PathBuf>,
    patterns: Vec<String>,
    /// Trees of the host template and roots of others, by how they are named: what they are without links. Links in these
    /// names are followed once.
    real: HashMap<PathBuf, PathBuf>,
}

impl Sources {
    pub(super) fn new(sources: &MountSources) -> Self {
        let real = |path: &PathBuf| Some((path.clone(), fs::canonicalize(path).ok()?));
        Self {
            real: sources.trees.iter().filter_map(real).collect(),
            trees: sources.trees.clone(),
            patterns: sources.patterns.clone(),
        }
    }

    /// Refuses a root that shows anything else. What it shows is renamed to names without links, as far as those are
    /// ours; whoever mounts them must not follow any that are left.
    pub(super) fn confine(&mut self, root: &mut RootSpec) -> Result<(), JailError> {
        if let Some(tree) = root.exposed.first() {
            return Err(refused(&tree.source));
        }
        let targets = root.trees.iter().map(|tree| &tree.target);
        let places =
            targets.chain(root.links.iter().map(|(at, _)| at)).chain(root.files.iter().map(|(at, _)| at));
        for place in places {
            if !is_plain(place) {
                return Err(JailError::Target(place.display().to_string()));
            }
        }
        for tree in &mut root.trees {
            tree.source = self.confined(&tree.source).ok_or_else(|| refused(&tree.source))?;
        }
        Ok(())
    }

    fn confined(&mut self, source: &Path) -> Option<PathBuf> {
        if !is_plain(source) {
            return None;
        }
        if template::host_paths().any(|shown| shown == source) {
            let known = self.real.get(source).cloned();
            // Names that only root can make.
            return known.or_else(|| {
                let real = fs::canonicalize(source).ok()?;
                self.real.insert(source.to_owned(), real.clone());
                Some(real)
            });
        }
        if self.patterns.iter().any(|pattern| is_called_like(source, pattern)) {
            return fs::canonicalize(source).ok().filter(|real| real == source);
        }
        for named in self.trees.clone() {
            let Some(real) = self.real(&named) else { continue };
            let rest = source.strip_prefix(&named).or_else(|_| source.strip_prefix(&real));
            if let Ok(rest) = rest {
                return Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) });
            }
        }
        None
    }

    /// What a tree is without links. One that was not there before may have been made by anybody who can write on the way to
    /// it, so for a new one nobody may but root and ourselves.
    fn real(&mut self, named: &Path) -> Option<PathBuf> {
        if let Some(real) = self.real.get(named) {
            return Some(real.clone());
        }
        let real = fs::canonicalize(named).ok()?;
        if !is_ours(named) || !is_ours(&real) {
            return None;
        }
        self.real.insert(named.to_owned(), real.clone());
        Some(real)
    }
}

/// Whether nobody but root and this user can change what a path leads to, link or not.
fn is_ours(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    path.ancestors().all(|part| {
        fs::symlink_metadata(part).is_ok_and(|found| {
            let writable = !found.is_symlink() && found.mode() & 0o022 != 0;
            (found.uid() == 0 || found.uid() == own) && !writable
        })
    })
}

/// Whether a path has the names of a pattern, each of which may have one star.
fn is_called_like(path: &Path, pattern: &str) -> bool {
    let Some(path) = path.to_str() else { return false };
    let names = |text: &str| -> Vec<String> {
        text.split('/').filter(|name| !name.is_empty() && *name != ".").map(str::to_owned).collect()
    };
    let (path, pattern) = (names(path), names(pattern));
    path.len() == pattern.len()
        && path.iter().zip(&pattern).all(|(name, like)| match like.split_once('*') {
            None => name == like,
            Some((prefix, suffix)) => {
                name.len() >= prefix.len() + suffix.len()
                    && name.starts_with(prefix)
                    && name.ends_with(suffix)
            }
        })
}

/// A path compares by its parts, among which `.` and doubled slashes do not show; `..` would climb.
fn is_plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|part| part != Component::ParentDir)
}

fn refused(source: &Path) -> JailError {
    JailError::Source(source.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::spec::Tree;

    fn spec(source: &Path) -> RootSpec {
        let tree = Tree { source: source.to_owned(), target: "/layer".into() };
        RootSpec {
            trees: vec![tree],
            links: Vec::new(),
            files: Vec::new(),
            scratch_bytes: 1,
            scratch_inodes: 1,
            scratch_on_disk: false,
            exposed: Vec::new(),
        }
    }

    fn allow(trees: &[&Path], patterns: &[&str]) -> MountSources {
        MountSources {
            trees: trees.iter().map(|tree| (*tree).to_owned()).collect(),
            patterns: patterns.iter().map(|pattern| (*pattern).to_owned()).collect(),
        }
    }

    #[test]
    fn what_is_installed_later_may_be_shown_by_its_name_and_no_link_may() {
        let dir = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(dir.path()).unwrap();
        let pattern = home.join("java-*-jdk");
        let mut sources = Sources::new(&allow(&[], &[pattern.to_str().unwrap()]));
        let java = home.join("java-17-jdk");
        assert!(sources.confine(&mut spec(&java)).is_err(), "it is not there");
        fs::create_dir(&java).unwrap();
        sources.confine(&mut spec(&java)).unwrap();
        fs::create_dir(java.join("below")).unwrap();
        symlink("/root", home.join("java-18-jdk")).unwrap();
        fs::create_dir(home.join("java-17")).unwrap();
        for refused in
            ["java-17-jdk/below", "java-18-jdk", "java-17", "java-17-jdk/../java-17-jdk", "java-jdk"]
        {
            assert!(sources.confine(&mut spec(&home.join(refused))).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_tree_that_comes_later_must_not_be_anybody_elses() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir_in("/var/lib").unwrap_or_else(|_| tempfile::tempdir().unwrap());
        let home = fs::canonicalize(dir.path()).unwrap();
        let late = home.join("late");
        let mut sources = Sources::new(&allow(&[&late], &[]));
        assert!(sources.confine(&mut spec(&late)).is_err());
        fs::create_dir(&late).unwrap();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(sources.confine(&mut spec(&late)).is_err(), "anybody may have put it there");
        fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
        if is_ours(&home) {
            sources.confine(&mut spec(&late)).unwrap();
        }
    }

    #[test]
    fn only_what_is_below_a_root_may_be_shown() {
        let dir = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(home.join("layers")).unwrap();
        symlink(home.join("layers"), home.join("named")).unwrap();
        let mut sources = Sources::new(&allow(&[&home.join("named")], &[]));
        for allowed in ["layers", "layers/a", "named/a/b", "named"] {
            let mut spec = spec(&home.join(allowed));
            sources.confine(&mut spec).unwrap();
            assert!(spec.trees[0].source.starts_with(home.join("layers")), "{allowed}");
        }
        for refused in ["layers/../secret", "layersx", "", "named/../x"] {
            assert!(sources.confine(&mut spec(&home.join(refused))).is_err(), "{refused}");
        }
        for refused in ["/root", "/etc/shadow", "/usr/../root", "layers", "/", "/etc"] {
            assert!(sources.confine(&mut spec(Path::new(refused))).is_err(), "{refused}");
        }
        sources.confine(&mut spec(Path::new("/usr"))).unwrap();
        for target in ["/../out", "relative", "/opt/../../out"] {
            let mut climbing = spec(Path::new("/usr"));
            climbing.trees[0].target = target.into();
            assert!(sources.confine(&mut climbing).is_err(), "{target}");
            let mut climbing = spec(Path::new("/usr"));
            climbing.files.push((target.into(), Vec::new()));
            assert!(sources.confine(&mut climbing).is_err(), "{target}");
            let mut climbing = spec(Path::new("/usr"));
            climbing.links.push((target.into(), "/".into()));
            assert!(sources.confine(&mut climbing).is_err(), "{target}");
        }
        let mut exposed = spec(Path::new("/usr"));
        exposed.exposed = exposed.trees.clone();
        assert!(sources.confine(&mut exposed).is_err());
    }
}
