//! Container runtimes without an engine above them: a bundle, and `run`.

use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};

use super::{Common, Peer};
use crate::bench::command::CommandLine;

#[derive(Debug, Clone, Copy)]
pub(super) enum Runtime {
    Runc,
    Runsc,
}

impl Runtime {
    fn name(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Runsc => "runsc",
        }
    }

    fn line(self, state: &Path) -> CommandLine {
        match self {
            Self::Runc => CommandLine::from(["/usr/sbin/runc", "--root"]).and([state]),
            // It does not know hybrid control groups, and would set up a network that a jail does not have.
            Self::Runsc => CommandLine::from(["/usr/bin/runsc", "--root"]).and([state]).and([
                "--ignore-cgroups",
                "--network=none",
                "--platform=systrap",
            ]),
        }
    }
}

/// A bundle of its own for each that is made, written anew when another program is asked for.
pub(super) fn peer(runtime: Runtime, common: &Common) -> anyhow::Result<impl Peer + use<>> {
    let folder = common.folder.join(format!("{}-{}", runtime.name(), unique()));
    let bundle = folder.join("bundle");
    std::fs::create_dir_all(&bundle).context("could not make a bundle")?;
    let (line, common) = (runtime.line(&folder.join("state")), common.clone());
    let mut written: Vec<String> = Vec::new();
    Ok(move |words: &[&str], _: bool| {
        if written != words {
            let config = configuration(&common, words);
            std::fs::write(bundle.join("config.json"), config.to_string())
                .context("could not write a bundle")?;
            written = words.iter().map(|word| (*word).to_owned()).collect();
        }
        let id = format!("bench-{}", unique());
        Ok(line.clone().and(["run", "--bundle"]).and([&bundle]).and([id]))
    })
}

/// A number that no other has in this process.
pub(super) fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    u64::from(std::process::id()) * 1_000_000 + number
}

fn configuration(common: &Common, words: &[&str]) -> Value {
    let mounts = &common.mounts;
    let mut list = vec![
        json!({"destination": "/proc", "type": "proc", "source": "proc"}),
        json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]}),
        json!({"destination": "/dev/pts", "type": "devpts", "source": "devpts",
               "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]}),
    ];
    let tree = |path: &String| json!({"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro", "nosuid", "nodev"]});
    list.extend(mounts.trees.iter().map(tree));
    let scratch = |path: &String| json!({"destination": path, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]});
    list.extend(mounts.scratch.iter().map(scratch));
    let masked: Vec<&String> = mounts.masked.iter().chain(&mounts.emptied).collect();
    let namespaces = ["pid", "network", "ipc", "uts", "mount"].map(|kind| json!({"type": kind}));
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": {"uid": 1000, "gid": 1000},
            "args": words,
            "env": ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/user", "LANG=C.UTF-8"],
            "cwd": "/workspace",
            "noNewPrivileges": true
        },
        "root": {"path": common.root, "readonly": true},
        "hostname": "sandbox",
        "mounts": list,
        "linux": {"namespaces": namespaces, "maskedPaths": masked, "readonlyPaths": mounts.fixed}
    })
}
