//! Trees below which or on which something is mounted: what a mount covers on the host stays covered inside.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
use sandstorm_agent::protocol::Ending;
use sandstorm_jail::{JailSpec, Strictness, Tree};

use crate::host::{Case, Host};

pub(crate) const CASES: &[Case] = &[
    ("a crowd of mounts below a tree covers what it covers on the host", crowd),
    ("a large file that is mounted over another is the one that is shown", mounted_file),
    ("a mount that another one covers is in nobody's way", covered),
    ("a tree that cannot be cloned does not keep others from being prepared", unbindable),
];

/// Folders and files of the test, and what it has mounted.
struct Stage {
    dir: tempfile::TempDir,
    mounted: Vec<PathBuf>,
}

impl Stage {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir, mounted: Vec::new() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// A folder with one file.
    fn folder(&self, path: &str, file: &str) {
        fs::create_dir_all(self.at(path)).unwrap();
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(self.at(path).join(file), file).unwrap();
    }

    fn bind(&mut self, what: &str, place: &str) {
        mount_bind(self.at(what), self.at(place)).unwrap();
        self.mounted.push(self.at(place));
    }

    /// A jail that shows this.
    fn spec(&self, name: &str, shown: &str) -> JailSpec {
        let mut spec = Host::spec(name);
        spec.root.trees.push(Tree { source: self.at(shown), target: Path::new("/").join(shown) });
        spec
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for place in self.mounted.iter().rev() {
            unmount(place, UnmountFlags::DETACH).unwrap();
        }
    }
}

fn says(host: &mut Host, name: &str, code: &str, wanted: &str) {
    let ran = host.python(name, None, code);
    assert_eq!((ran.stdout.trim(), ran.ending), (wanted, Ending::Code(0)), "{}", ran.stderr);
}

const LIST: &str = "import os; print(sorted(os.listdir('/layer/0')))";

/// Some of them are trees of their own; too many are shown with their tree as it is, which a strict policy refuses.
fn crowd(host: &mut Host) {
    for (name, mounts, strict) in [("few", 3, true), ("many", 80, false)] {
        let mut stage = Stage::new();
        stage.folder("cover", "cover");
        for i in 0..mounts {
            stage.folder(&format!("layer/{i}"), "below");
            stage.bind("cover", &format!("layer/{i}"));
        }
        let refused = host.launch_spec(stage.spec(name, "layer"));
        assert_eq!(refused.is_ok(), strict, "{refused:?}");
        if !strict {
            let spec = stage.spec(name, "layer");
            host.launch_spec(JailSpec { strictness: Strictness::BestEffort, ..spec }).unwrap();
        }
        says(host, name, LIST, "['cover']");
    }
}

fn mounted_file(host: &mut Host) {
    let mut stage = Stage::new();
    fs::write(stage.at("cover"), vec![b'c'; 3 << 20]).unwrap();
    fs::write(stage.at("below"), vec![b'b'; 3 << 20]).unwrap();
    stage.bind("cover", "below");
    let spec = stage.spec("file", "below");
    host.launch_spec(JailSpec { strictness: Strictness::BestEffort, ..spec }).unwrap();
    says(host, "file", "print(open('/below').read(3))", "ccc");
    drop(stage);
    // One that is not mounted has a view, as ever.
    let stage = Stage::new();
    fs::write(stage.at("plain"), vec![b'p'; 3 << 20]).unwrap();
    host.launch_spec(stage.spec("plain", "plain")).unwrap();
    says(host, "plain", "print(open('/plain').read(3))", "ppp");
}

fn covered(host: &mut Host) {
    let mut stage = Stage::new();
    stage.folder("cover", "cover");
    stage.folder("layer/0/deep", "below");
    stage.bind("cover", "layer/0/deep");
    stage.bind("cover", "layer/0");
    host.launch_spec(stage.spec("covered", "layer")).unwrap();
    says(host, "covered", LIST, "['cover']");
}

fn unbindable(host: &mut Host) {
    const ROOT: &str = "print([l.split(' - ')[1].split()[0] for l in open('/proc/self/mountinfo') if l.split()[4] == '/'][-1])";
    let mut stage = Stage::new();
    stage.folder("layer", "file");
    stage.folder("other", "file");
    let is_prepared = |host: &mut Host, stage: &Stage, shown: &str| {
        for round in 0..2 {
            host.launch_spec(stage.spec(&format!("{shown}-{round}"), shown)).unwrap();
        }
        host.python(&format!("{shown}-1"), None, ROOT).stdout.trim() == "overlay"
    };
    // Before Linux 6.15 none is.
    let possible = is_prepared(host, &stage, "layer");
    stage.folder("stuck", "file");
    stage.bind("stuck", "stuck");
    mount_change(stage.at("stuck"), MountPropagationFlags::UNBINDABLE).unwrap();
    for round in 0..3 {
        host.launch_spec(stage.spec(&format!("stuck-{round}"), "stuck")).unwrap_err();
    }
    assert_eq!(is_prepared(host, &stage, "other"), possible);
}
