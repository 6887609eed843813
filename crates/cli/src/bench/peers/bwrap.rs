//! bubblewrap: namespaces and mounts, and nothing else of what a jail has.

use super::{Common, Peer};
use crate::bench::command::CommandLine;

pub(super) fn peer(common: &Common) -> impl Peer + use<> {
    let line = CommandLine::from(["/usr/bin/bwrap"]).and(arguments(common));
    move |words: &[&str], _: bool| Ok(line.clone().and(words.iter().copied()))
}

fn arguments(common: &Common) -> Vec<String> {
    let mounts = &common.mounts;
    let mut arguments: Vec<String> =
        ["--unshare-all", "--proc", "/proc", "--dev", "/dev"].map(str::to_owned).to_vec();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
    // The generated files as one tree: cheaper for it than each by itself.
    let etc = common.root.join("etc");
    add(&["--ro-bind", &etc.to_string_lossy(), "/etc"]);
    for path in &mounts.masked {
        add(&["--dev-bind", "/dev/null", path]);
    }
    for path in mounts.emptied.iter().chain(&mounts.scratch) {
        add(&["--tmpfs", path]);
    }
    for path in mounts.fixed.iter().chain(&mounts.trees) {
        add(&["--ro-bind", path, path]);
    }
    for (at, to) in &mounts.links {
        add(&["--symlink", to, at]);
    }
    add(&["--chdir", "/workspace"]);
    arguments
}
