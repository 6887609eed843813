//! What a program sees in a jail, read off one, so that peers can be made to show it the same.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::server::Server;

/// Asked of a jail: its mounts, the links in its root, and the small files of its generated `/etc`.
const LOOK: &str = "cat /proc/self/mountinfo; echo --; find / -maxdepth 1 -type l -printf '%l %p\\n'; echo --; \
    find /etc -xdev -type f -perm -004 -size -64k -printf '%p\\n' | while read -r path; do \
    echo \"$path $(base64 -w 0 \"$path\")\"; done";

/// Devices and file systems that every peer makes by itself.
const THEIR_OWN: [&str; 10] = [
    "/",
    "/proc",
    "/dev",
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/pts",
];

/// The mounts of a jail.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Mounts {
    /// Trees of the host, read-only, at the same place inside.
    pub(super) trees: Vec<String>,
    /// Writable file systems in memory.
    pub(super) scratch: Vec<String>,
    /// Files of `/proc` that are hidden.
    pub(super) masked: Vec<String>,
    /// Folders of `/proc` that are hidden.
    pub(super) emptied: Vec<String>,
    /// Parts of `/proc` that are read-only.
    pub(super) fixed: Vec<String>,
    /// Link and target.
    pub(super) links: Vec<(String, String)>,
    /// Path and content.
    pub(super) files: Vec<(String, Vec<u8>)>,
}

impl Mounts {
    /// Looks into a sandbox of this server.
    pub(super) fn of(server: &Server) -> anyhow::Result<Self> {
        let body: Value = json!({"language": "bash", "code": LOOK});
        let said = server.connect()?.send(&server.request("POST", "/v1/runs", &body))?.json()?;
        let shown = said["stdout"].as_str().context("a look into a sandbox showed nothing")?;
        Self::parse(shown)
    }

    fn parse(shown: &str) -> anyhow::Result<Self> {
        let parts: Vec<&str> = shown.split("--\n").collect();
        let [mounts, links, files] = parts[..] else {
            bail!("a look into a sandbox showed {} parts", parts.len())
        };
        let mut found = Self::default();
        for line in mounts.lines() {
            found.add(line).with_context(|| format!("a mount that cannot be read: {line}"))?;
        }
        found.links = links
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(to, at)| (at.to_owned(), to.to_owned()))
            .collect();
        let points: BTreeSet<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(4)).collect();
        for (path, content) in files.lines().filter_map(|line| line.split_once(' ')) {
            // One that is a mount of its own is there already.
            if !points.contains(path) {
                let content =
                    data_encoding::BASE64.decode(content.as_bytes()).context("a file that cannot be read")?;
                found.files.push((path.to_owned(), content));
            }
        }
        Ok(found)
    }

    /// By a line of `mountinfo`.
    fn add(&mut self, line: &str) -> Option<()> {
        let (fields, kind) = line.split_once(" - ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let (root, point, kind) = (*fields.get(3)?, (*fields.get(4)?).to_owned(), kind.split(' ').next()?);
        if THEIR_OWN.contains(&point.as_str()) {
            return Some(());
        }
        let list = match (point.starts_with("/proc/"), kind) {
            (true, _) if root == "/null" => &mut self.masked,
            (true, "tmpfs") => &mut self.emptied,
            (true, _) => &mut self.fixed,
            (false, "tmpfs") => &mut self.scratch,
            (false, _) => &mut self.trees,
        };
        list.push(point);
        Some(())
    }

    /// A root with nothing in it but places to mount on, links and the generated files.
    pub(super) fn make_root(&self, root: &Path) -> anyhow::Result<()> {
        let folders = ["/proc", "/dev", "/sys"].map(str::to_owned);
        for point in folders.iter().chain(&self.trees).chain(&self.scratch) {
            let inside = inside(root, point);
            if Path::new(point).is_dir() || self.scratch.contains(point) || folders.contains(point) {
                std::fs::create_dir_all(&inside)
            } else {
                inside
                    .parent()
                    .map_or(Ok(()), std::fs::create_dir_all)
                    .and_then(|()| std::fs::write(&inside, b""))
            }
            .with_context(|| format!("could not make {}", inside.display()))?;
        }
        for (at, to) in &self.links {
            symlink(to, inside(root, at)).with_context(|| format!("could not make the link {at}"))?;
        }
        for (path, content) in &self.files {
            let file = inside(root, path);
            file.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            std::fs::write(&file, content).with_context(|| format!("could not write {}", file.display()))?;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))?;
        }
        Ok(())
    }
}

fn inside(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "21 1 0:20 / / ro - tmpfs tmpfs rw\n\
        22 21 8:1 /usr /usr ro,nosuid - ext4 /dev/root rw\n\
        23 21 0:21 / /proc rw - proc proc rw\n\
        24 23 0:5 /null /proc/kcore ro - devtmpfs devtmpfs rw\n\
        25 23 0:22 / /proc/acpi ro - tmpfs tmpfs ro\n\
        26 23 0:21 /sys /proc/sys ro - proc proc rw\n\
        27 21 0:23 /tmp /tmp rw - tmpfs tmpfs rw\n\
        28 21 8:1 /etc/ssl/certs /etc/ssl/certs ro - ext4 /dev/root rw\n\
        --\nusr/bin /bin\n--\n/etc/passwd eDp5\n/etc/ssl/certs AA==\n";

    #[test]
    fn a_jail_is_read_as_it_says() {
        let mounts = Mounts::parse(SHOWN).unwrap();
        assert_eq!(mounts.trees, ["/usr", "/etc/ssl/certs"]);
        assert_eq!(mounts.scratch, ["/tmp"]);
        assert_eq!(
            (mounts.masked, mounts.emptied, mounts.fixed),
            (vec!["/proc/kcore".to_owned()], vec!["/proc/acpi".to_owned()], vec!["/proc/sys".to_owned()])
        );
        assert_eq!(mounts.links, [("/bin".to_owned(), "usr/bin".to_owned())]);
        assert_eq!(mounts.files, [("/etc/passwd".to_owned(), b"x:y".to_vec())]);
    }

    #[test]
    fn half_a_look_is_refused() {
        assert!(Mounts::parse("21 1 0:20 / / ro - tmpfs tmpfs rw\n--\n").is_err());
        assert!(Mounts::parse("nonsense\n--\n--\n").is_err());
    }

    #[test]
    fn a_root_has_places_links_and_files() {
        let root = tempfile::tempdir().unwrap();
        Mounts::parse(SHOWN).unwrap().make_root(root.path()).unwrap();
        assert!(root.path().join("usr").is_dir() && root.path().join("tmp").is_dir());
        assert_eq!(std::fs::read_link(root.path().join("bin")).unwrap(), Path::new("usr/bin"));
        assert_eq!(std::fs::read(root.path().join("etc/passwd")).unwrap(), b"x:y");
    }
}
