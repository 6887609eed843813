//! Which trees of the host a client with fewer rights than the launcher may show in a jail.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::error::JailError;
use crate::spec::RootSpec;
use crate::template;

/// Trees that may be shown: each as it is named, and as it is named without links.
#[derive(Debug)]
pub(super) struct Sources {
    /// These and everything below them.
    roots: Vec<(PathBuf, PathBuf)>,
    /// Exactly these: what the host template shows.
    exact: Vec<(PathBuf, PathBuf)>,
}

impl Sources {
    /// Links in the names of the roots themselves are followed now and never again.
    pub(super) fn new(roots: &[PathBuf]) -> Self {
        let real = |path: &PathBuf| Some((path.clone(), fs::canonicalize(path).ok()?));
        Self {
            roots: roots.iter().filter_map(real).collect(),
            exact: template::host_paths().iter().filter_map(real).collect(),
        }
    }

    /// Refuses a root that shows anything else. What it shows is renamed to names without links, as far as those are
    /// ours; whoever mounts them must not follow any that are left.
    pub(super) fn confine(&self, root: &mut RootSpec) -> Result<(), JailError> {
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

    fn confined(&self, source: &Path) -> Option<PathBuf> {
        if !is_plain(source) {
            return None;
        }
        if let Some((_, real)) = self.exact.iter().find(|(named, _)| named == source) {
            return Some(real.clone());
        }
        self.roots.iter().flat_map(|(named, real)| [(named, real), (real, real)]).find_map(|(named, real)| {
            let rest = source.strip_prefix(named).ok()?;
            Some(if rest.as_os_str().is_empty() { real.clone() } else { real.join(rest) })
        })
    }
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
            exposed: Vec::new(),
        }
    }

    #[test]
    fn only_what_is_below_a_root_may_be_shown() {
        let dir = tempfile::tempdir().unwrap();
        let home = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir(home.join("layers")).unwrap();
        symlink(home.join("layers"), home.join("named")).unwrap();
        let sources = Sources::new(&[home.join("named")]);
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
