//! Whether what sandboxes are to see of this machine can be shown: a mount that cannot be made fails every sandbox.

use std::fs::Metadata;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use sandstorm_config::Mount;

/// Trees that sandboxes see read-only as this machine has them. Nothing can be made in there to mount on.
const SHOWN: [&str; 10] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];

/// Mounts are made in their order, so that one may lie in an earlier one.
pub(super) fn check(mounts: &[Mount]) -> anyhow::Result<()> {
    for (n, mount) in mounts.iter().enumerate() {
        let key = |name| format!("`template.mounts[{n}].{name}`");
        let source = look(&mount.source).with_context(|| key("source"))?;
        let Some(below) = covered(&mount.target, &mounts[..n]) else { continue };
        let there = look(&below).with_context(|| {
            format!(
                "{}: {} is inside what sandboxes see read-only, so it has to be there already",
                key("target"),
                mount.target.display()
            )
        })?;
        if there.is_dir() != source.is_dir() {
            bail!("{}: a directory covers a directory only, and a file a file", key("target"));
        }
    }
    Ok(())
}

fn look(path: &Path) -> anyhow::Result<Metadata> {
    std::fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))
}

/// What of this machine is at a place of the sandbox before the mount covers it; `None`: nothing is.
fn covered(target: &Path, earlier: &[Mount]) -> Option<PathBuf> {
    let mount = earlier.iter().rev().find_map(|one| Some((one, target.strip_prefix(&one.target).ok()?)));
    if let Some((mount, rest)) = mount {
        return Some(mount.source.join(rest));
    }
    SHOWN.iter().any(|shown| target.starts_with(shown)).then(|| target.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_that_can_be_made_pass() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, file) = (dir.path().join("folder"), dir.path().join("file"));
        std::fs::create_dir_all(folder.join("inner")).unwrap();
        std::fs::write(&file, "").unwrap();
        let mount = |source: &Path, target: &str| Mount { source: source.to_owned(), target: target.into() };
        let outer = || mount(&folder, "/opt/a");
        for good in [
            vec![outer(), mount(&file, "/opt/b")],
            vec![mount(&folder, "/usr/share")],
            vec![outer(), mount(&folder, "/opt/a/inner")],
            vec![mount(&file, "/workspace/tool")],
        ] {
            check(&good).unwrap();
        }
        for (bad, named) in [
            (vec![outer(), mount(&dir.path().join("none"), "/opt/b")], "template.mounts[1].source"),
            (vec![mount(&folder, "/usr/share/no-such-folder")], "template.mounts[0].target"),
            (vec![mount(&file, "/usr/share")], "template.mounts[0].target"),
            (vec![outer(), mount(&folder, "/opt/a/other")], "template.mounts[1].target"),
        ] {
            let refused = format!("{:#}", check(&bad).unwrap_err());
            assert!(refused.contains(named), "{refused}");
        }
    }
}
