//! Who the server is once it needs no privilege any more.

use std::fs::{self, DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;

use anyhow::{Context, bail};
use rustix::fs::OFlags;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use sandstorm_config::Loaded;

/// Who a server becomes that is not told, where this user exists.
const USUAL: &str = "sandstorm";

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
        let wanted = loaded.config.serve.user.as_deref();
        let name = wanted.unwrap_or(USUAL);
        let passwd = fs::read_to_string("/etc/passwd").context("could not read /etc/passwd")?;
        if let Some(user) = find(&passwd, name) {
            if user.uid == 0 {
                bail!("`serve.user` is {name}, which is root: the server must not run as root");
            }
            return Ok(Some(user));
        }
        if wanted.is_some() {
            bail!(
                "`serve.user`: there is no user {name} on this machine; make it with `useradd --system {name}`"
            );
        }
        // On a machine where nobody made the user, an id that belongs to nobody: the one behind those of sandboxes.
        let ids = &loaded.config.ids;
        let id = ids.start.saturating_add(ids.blocks.saturating_mul(65_536));
        Ok(Some(Self { uid: id, gid: id }))
    }

    /// Makes a directory, or finds it, and gives it to this user alone. By descriptor: once it is theirs, so is every
    /// name in it, and root must not act on a name that somebody else can turn into a link.
    pub(crate) fn own(self, dir: &Path) -> anyhow::Result<()> {
        let failed = || format!("could not give {} to the server's user", dir.display());
        DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(failed)?;
        let flags = OFlags::NOFOLLOW | OFlags::DIRECTORY;
        let opened =
            OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(dir).with_context(failed)?;
        let found = opened.metadata().with_context(failed)?;
        if found.uid() != self.uid && found.uid() != 0 {
            bail!(
                "{} belongs to user {}, who is neither root nor the server's user",
                dir.display(),
                found.uid()
            );
        }
        if (found.uid(), found.gid()) != (self.uid, self.gid) {
            fchown(&opened, Some(self.uid), Some(self.gid)).with_context(failed)?;
        }
        opened.set_permissions(fs::Permissions::from_mode(0o700)).with_context(failed)
    }

    /// Works with this user's rights and takes root's back afterwards. For everything that root has to do below a
    /// directory of this user: links there lead no further than the user could go. Only while there is one thread;
    /// threads that start meanwhile keep this user's rights.
    pub(crate) fn act<T>(self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let groups = rustix::process::getgroups().context("could not look at supplementary groups")?;
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        let (own_uid, own_gid) = (rustix::process::geteuid(), rustix::process::getegid());
        set_thread_groups(&[]).context("could not give up supplementary groups")?;
        set_thread_res_gid(own_gid, gid, own_gid).context("could not act for the server's group")?;
        set_thread_res_uid(own_uid, uid, own_uid).context("could not act for the server's user")?;
        let done = work();
        set_thread_res_uid(own_uid, own_uid, own_uid).context("could not take root's rights back")?;
        set_thread_res_gid(own_gid, own_gid, own_gid).context("could not take root's group back")?;
        set_thread_groups(&groups).context("could not take supplementary groups back")?;
        done
    }

    /// Becomes this user for good. Only while there is one thread: the others would keep their rights.
    pub(crate) fn become_it(self) -> anyhow::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&[]).context("could not give up supplementary groups")?;
        set_thread_res_gid(gid, gid, gid).context("could not become the server's group")?;
        set_thread_res_uid(uid, uid, uid).context("could not become the server's user")?;
        if set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_ok() {
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
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nsandstorm2:x:7:7::/:\nsandstorm:x:998:997::/:/bin/false\n";
        assert_eq!(find(passwd, "sandstorm"), Some(ServerUser { uid: 998, gid: 997 }));
        assert_eq!(find(passwd, "sand"), None);
    }
}
