//! The control group that this process was started in, where its user may make groups below it.
//!
//! `systemd-run --user --scope -p Delegate=yes` gives a program such a group, and so do container engines. A group hands
//! controllers on only while no process is in it, so this process moves to a group beside those of jails.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use rustix::io::Errno;

use super::Hierarchies;

/// Where this process goes, with everything that it forks afterwards.
const SERVER: &str = "sandstorm-server";
/// Where the groups of jails are.
const JAILS: &str = "sandstorm";

/// Makes a parent for the groups of jails below the group of this process, relative to the root of the unified tree. On
/// failure says why there is none. Only while there is one thread: the others would stay where they are.
pub fn delegated_parent() -> Result<PathBuf, String> {
    let memberships =
        fs::read_to_string("/proc/self/cgroup").map_err(|e| format!("cannot read /proc/self/cgroup: {e}"))?;
    Delegation::find(&Hierarchies::detect(), &memberships)?.make()
}

/// A group that belongs to this process's user.
#[derive(Debug, PartialEq, Eq)]
struct Delegation {
    /// The root of the unified tree.
    root: PathBuf,
    /// The group of this process, relative to the root.
    own: PathBuf,
    /// The group below which jails get theirs: that one, or the one above it where this process has moved already.
    base: PathBuf,
    controllers: Vec<&'static str>,
}

impl Delegation {
    fn find(hierarchies: &Hierarchies, memberships: &str) -> Result<Self, String> {
        let controllers: Vec<_> = hierarchies.to_enable().collect();
        let Some(root) = hierarchies.unified.clone().filter(|_| !controllers.is_empty()) else {
            // There a process of another id, as each in a jail is, may not be put into the user's group.
            return Err("control groups of version 1 cannot be handed to an ordinary user".to_owned());
        };
        let own = memberships.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let own = PathBuf::from(own);
        let base = match own.file_name() {
            Some(name) if name == SERVER => own.parent().unwrap_or(&own).to_owned(),
            _ => own.clone(),
        };
        // The root of a tree is nobody's in particular.
        if base.as_os_str().is_empty() || !is_ours(&root.join(&base)) {
            return Err(
                "the control group that this program was started in belongs to another user".to_owned()
            );
        }
        Ok(Self { root, own, base, controllers })
    }

    fn make(&self) -> Result<PathBuf, String> {
        let base = self.base.display();
        self.hand_on().map_err(|e| match Errno::from_io_error(&e) {
            Some(Errno::BUSY) => format!("other programs are in the control group {base} too"),
            _ => format!("cannot hand on the controllers of the control group {base}: {e}"),
        })?;
        let parent = self.base.join(JAILS);
        create_directory(&self.root.join(&parent))
            .map_err(|e| format!("cannot make a group below {base}: {e}"))?;
        Ok(parent)
    }

    /// Leaves the group and lets groups below it have its controllers; goes back where that cannot be.
    fn hand_on(&self) -> io::Result<()> {
        let base = self.root.join(&self.base);
        let (server, moves) = (base.join(SERVER), self.own == self.base);
        if moves {
            create_directory(&server)?;
            fs::write(server.join("cgroup.procs"), "0")?;
        }
        for name in &self.controllers {
            match fs::write(base.join("cgroup.subtree_control"), format!("+{name}")) {
                Err(e) if Errno::from_io_error(&e) == Some(Errno::BUSY) => {
                    if moves {
                        fs::write(base.join("cgroup.procs"), "0")?;
                        let _ = fs::remove_dir(&server);
                    }
                    return Err(e);
                }
                // A controller that was not delegated is a limit that cannot be set, and shows as one.
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

fn create_directory(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Whether this user may make groups there and move processes between them.
fn is_ours(group: &Path) -> bool {
    let may_write = |path: &Path| rustix::fs::access(path, Access::WRITE_OK).is_ok();
    may_write(group) && may_write(&group.join("cgroup.procs"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cgroup::Controller;

    /// Directories that look like a tree of groups.
    fn tree(groups: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for group in groups {
            let group = dir.path().join(group);
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join("cgroup.procs"), "").unwrap();
        }
        dir
    }

    fn unified(at: &Path) -> Hierarchies {
        let on_unified = vec![Controller::Memory, Controller::Processes];
        Hierarchies { unified: Some(at.to_owned()), on_unified, ..Hierarchies::default() }
    }

    #[test]
    fn jails_get_groups_beside_the_server() {
        let tree = tree(&["user.slice/run.scope"]);
        let found = Delegation::find(&unified(tree.path()), "0::/user.slice/run.scope\n").unwrap();
        assert_eq!(found.controllers, ["memory", "pids"]);
        assert_eq!(found.make(), Ok("user.slice/run.scope/sandstorm".into()));
        let group = tree.path().join("user.slice/run.scope");
        assert_eq!(fs::read_to_string(group.join("sandstorm-server/cgroup.procs")).unwrap(), "0");
        assert!(group.join("sandstorm").is_dir());
    }

    #[test]
    fn a_server_that_moved_already_stays_where_it_is() {
        let tree = tree(&["run.scope/sandstorm-server", "run.scope"]);
        let found = Delegation::find(&unified(tree.path()), "0::/run.scope/sandstorm-server\n").unwrap();
        assert_eq!(found.make(), Ok("run.scope/sandstorm".into()));
        assert!(!tree.path().join("run.scope/sandstorm-server/sandstorm-server").exists());
    }

    #[test]
    fn what_is_nobodys_or_somebody_elses_is_not_taken() {
        let tree = tree(&["other"]);
        for memberships in ["0::/\n", "0::/missing\n", "0::/sandstorm-server\n", "", "nonsense"] {
            let refused = Delegation::find(&unified(tree.path()), memberships).unwrap_err();
            assert!(refused.contains("another user"), "{memberships}: {refused}");
        }
    }

    #[test]
    fn older_hierarchies_are_left_alone() {
        let tree = tree(&["mine"]);
        let on_v1 = BTreeMap::from([(Controller::Memory, tree.path().to_owned())]);
        for hierarchies in [
            Hierarchies { on_v1: on_v1.clone(), ..Hierarchies::default() },
            Hierarchies { on_v1, unified: Some(tree.path().to_owned()), ..Hierarchies::default() },
        ] {
            let refused = Delegation::find(&hierarchies, "4:memory:/mine\n0::/mine\n").unwrap_err();
            assert!(refused.contains("version 1"), "{refused}");
        }
    }
}
