//! Who the server is once it needs no privilege any more.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use anyhow::{Context, bail};
use rustix::process::{Gid, Uid};
use sandstorm_config::{Loaded, Origin};

/// The user that a server started by root becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl ServerUser {
    /// `None`: we are not root and stay who we are.
    pub(crate) fn choose(loaded: &Loaded) -> anyhow::Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let name = &loaded.config.serve.user;
        let passwd = fs::read_to_string("/etc/passwd").context("could not read /etc/passwd")?;
        if let Some(user) = find(&passwd, name) {
            if user.uid == 0 {
                bail!("`serve.user` is {name}, which is root: the server must not run as root");
            }
            return Ok(Some(user));
        }
        if loaded.provenance.of("serve.user") != Origin::Default {
            bail!("there is no user {name}, as `serve.user` has it");
        }
        // On a machine where nobody made the user, an id that belongs to nobody: the one behind those of sandboxes.
        let ids = &loaded.config.ids;
        let id = ids.start.saturating_add(ids.blocks.saturating_mul(65_536));
        Ok(Some(Self { uid: id, gid: id }))
    }

    /// Makes a directory, or finds it, and gives it to this user alone.
    pub(crate) fn own(self, dir: &Path) -> anyhow::Result<()> {
        let found = fs::symlink_metadata(dir).with_context(|| format!("could not look at {}", dir.display()))?;
        if (found.uid(), found.gid()) != (self.uid, self.gid) {
            chown(dir, Some(self.uid), Some(self.gid))
                .with_context(|| format!("could not give {} to the server's user", dir.display()))?;
        }
        Ok(())
    }

    /// Becomes this user for good. Only while there is one thread: the others would keep their rights.
    pub(crate) fn become_it(self) -> anyhow::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        rustix::thread::set_thread_groups(&[]).context("could not give up supplementary groups")?;
        rustix::thread::set_thread_res_gid(gid, gid, gid).context("could not become the server's group")?;
        rustix::thread::set_thread_res_uid(uid, uid, uid).context("could not become the server's user")?;
        if rustix::thread::set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_ok() {
            bail!("the server could take root's rights back");
        }
        Ok(())
    }
}

/// A user by name, as `/etc/passwd` has it.
fn find(passwd: &str, name: &str) -> Option<ServerUser> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (found, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        (found == name).then_some(ServerUser { uid: uid.parse().ok()?, gid: gid.parse().ok()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_user_by_its_whole_name() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nsandstorm2:x:7:7::/:\nsandstorm:x:998:997::/:/bin/false\n";
        assert_eq!(find(passwd, "sandstorm"), Some(ServerUser { uid: 998, gid: 997 }));
        assert_eq!(find(passwd, "sand"), None);
    }
}
