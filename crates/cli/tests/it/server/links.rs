//! Root in a directory of the server's user: links that this user made lead root nowhere.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::Path;
use std::process::Output;

use super::instance::Server;
use crate::support::{Who, sandstorm};

fn as_root(server: &Server, arguments: &[&str]) -> Output {
    sandstorm(Who::Root).args(arguments).arg("--state-dir").arg(server.state()).output().unwrap()
}

/// Puts a link where the server's user had something, as that user could.
fn replace(path: &Path, target: &Path) {
    let owner = fs::symlink_metadata(path).unwrap();
    fs::rename(path, path.with_extension("away")).unwrap();
    symlink(target, path).unwrap();
    lchown(path, Some(owner.uid()), Some(owner.gid())).unwrap();
}

fn put_back(path: &Path) {
    fs::remove_file(path).unwrap();
    fs::rename(path.with_extension("away"), path).unwrap();
}

#[test]
fn what_root_owns_stays_roots() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let server = Server::start(Who::Root);
    let state = server.state();
    let user = fs::metadata(&state).unwrap().uid();
    assert_ne!(user, 0, "the server's user has the state directory");
    let victim = server.place.path().join("victim");
    for dir in ["cache/layers", "journal"] {
        fs::create_dir_all(victim.join(dir)).unwrap();
    }
    for name in ["serve", "secrets", "serve/cache"] {
        let mode =
            |path: &Path| fs::metadata(path).map(|found| (found.uid(), found.permissions().mode())).unwrap();
        let all = [victim.clone(), victim.join("cache"), victim.join("cache/layers"), victim.join("journal")];
        let before: Vec<_> = all.iter().map(|path| mode(path)).collect();
        let entries = || fs::read_dir(&victim).unwrap().count();
        let (link, count) = (state.join(name), entries());
        replace(&link, &victim);
        let told = as_root(&server, &["keys", "list"]);
        assert!(!told.status.success(), "{name}: {told:?}");
        assert_eq!(all.iter().map(|path| mode(path)).collect::<Vec<_>>(), before, "{name}");
        assert_eq!(entries(), count, "{name}");
        put_back(&link);
    }
    // What root does there belongs to the server's user, and what root takes away is root's.
    let copy = server.place.path().join("copy.db");
    let told = as_root(&server, &["backup", copy.to_str().unwrap()]);
    assert!(told.status.success(), "{told:?}");
    for path in [copy.clone(), copy.with_extension("db.anchor")] {
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o777), (0, 0o600), "{}", path.display());
    }
    assert!(!as_root(&server, &["backup", copy.to_str().unwrap()]).status.success(), "it was written over");
    for name in ["sandstorm.db", "audit.anchor", "secrets/pepper"] {
        assert_eq!(fs::metadata(state.join(name)).unwrap().uid(), user, "{name}");
    }
    // A link instead of the directory itself is no directory to give away.
    let named = server.place.path().join("named");
    symlink(&victim, &named).unwrap();
    let told = sandstorm(Who::Root).args(["keys", "list", "--state-dir"]).arg(&named).output().unwrap();
    assert!(!told.status.success(), "{told:?}");
    assert_eq!(fs::metadata(&victim).unwrap().uid(), 0);
}
