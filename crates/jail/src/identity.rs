//! Which ids of the host stand behind the ids of a jail.
//!
//! As root each jail gets its own block of 65,536 ids, so that nothing on the host, and no other jail, has the same
//! owner. An ordinary user gets two ids of their subordinate range for each jail, where the host has `newuidmap`;
//! otherwise there is only their own id, and the report says that this wall is missing.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{JailError, doing};
use crate::spec::PAYLOAD_ID;

/// Ids in one block of a jail that root makes.
pub const BLOCK: u32 = 65_536;

/// The blocks that root may give out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    pub start: u32,
    pub blocks: u32,
}

/// The ids of one jail, reserved until this is dropped.
#[derive(Debug)]
pub(crate) struct Identity {
    uids: Vec<Extent>,
    gids: Vec<Extent>,
    how: How,
    /// The lock on the slot; it goes with the descriptor.
    _slot: Option<File>,
}

/// `inside` and the following `count - 1` ids are `outside` and following on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extent {
    inside: u32,
    outside: u32,
    count: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// Written directly, with privilege.
    Direct,
    /// Through `newuidmap` and `newgidmap`.
    Helpers,
    /// Written directly by an ordinary user: one id.
    Single,
}

impl Identity {
    /// Reserves ids for one jail. `runtime` holds the lock file; `next` says where to look first, and is moved on.
    pub(crate) fn reserve(range: IdRange, runtime: &Path, next: &mut u32) -> Result<Self, JailError> {
        let uid = rustix::process::geteuid();
        if uid.is_root() {
            return Self::block(range, runtime, next);
        }
        match Subordinate::of_caller() {
            Some(own) => Self::slice(own, runtime, next),
            None => Ok(Self {
                uids: vec![Extent { inside: PAYLOAD_ID, outside: uid.as_raw(), count: 1 }],
                gids: vec![Extent {
                    inside: PAYLOAD_ID,
                    outside: rustix::process::getegid().as_raw(),
                    count: 1,
                }],
                how: How::Single,
                _slot: None,
            }),
        }
    }

    fn block(range: IdRange, runtime: &Path, next: &mut u32) -> Result<Self, JailError> {
        let (slot, lock) = free_slot(runtime, range.blocks, next)?;
        let whole = vec![Extent { inside: 0, outside: range.start + slot * BLOCK, count: BLOCK }];
        Ok(Self { uids: whole.clone(), gids: whole, how: How::Direct, _slot: Some(lock) })
    }

    fn slice(own: Subordinate, runtime: &Path, next: &mut u32) -> Result<Self, JailError> {
        let (slot, lock) = free_slot(runtime, (own.uids.1.min(own.gids.1) / 2).min(4096), next)?;
        let two = |start: u32| {
            vec![
                Extent { inside: 0, outside: start + slot * 2, count: 1 },
                Extent { inside: PAYLOAD_ID, outside: start + slot * 2 + 1, count: 1 },
            ]
        };
        Ok(Self { uids: two(own.uids.0), gids: two(own.gids.0), how: How::Helpers, _slot: Some(lock) })
    }

    /// Whether PID 1 and payload have different ids, and ones that no other jail has.
    pub(crate) fn is_own(&self) -> bool {
        self.how != How::Single
    }

    /// Whether supplementary groups can be given up inside.
    pub(crate) fn may_drop_groups(&self) -> bool {
        self.how == How::Helpers
    }

    /// What PID 1 writes belongs to this user and group of the host.
    pub(crate) fn init_owner(&self) -> (u32, u32) {
        let of = |extents: &[Extent]| extents.first().map_or(u32::MAX, |extent| extent.outside);
        (of(&self.uids), of(&self.gids))
    }

    /// The id of PID 1 inside.
    pub(crate) fn init_id(&self) -> u32 {
        if self.is_own() { 0 } else { PAYLOAD_ID }
    }

    /// Writes the maps of a new process that waits for them.
    pub(crate) fn apply(&self, pid: i32) -> Result<(), JailError> {
        let proc = PathBuf::from(format!("/proc/{pid}"));
        match self.how {
            How::Helpers => {
                run_helper("newuidmap", pid, &self.uids)?;
                run_helper("newgidmap", pid, &self.gids)
            }
            How::Direct | How::Single => {
                // Groups are given up by the launcher, or cannot be: nobody inside may change them.
                write(&proc.join("setgroups"), "deny")?;
                write(&proc.join("uid_map"), &lines(&self.uids))?;
                write(&proc.join("gid_map"), &lines(&self.gids))
            }
        }
    }
}

fn write(path: &Path, content: &str) -> Result<(), JailError> {
    fs::write(path, content).map_err(doing(format!("write {}", path.display())))
}

fn lines(extents: &[Extent]) -> String {
    extents.iter().map(|e| format!("{} {} {}\n", e.inside, e.outside, e.count)).collect()
}

/// The first slot from `next` on that nobody holds. One file, one locked byte for each slot: nothing to clean up after a
/// crash. Who always began with the first would ask for every living jail's before it found a free one.
fn free_slot(runtime: &Path, slots: u32, next: &mut u32) -> Result<(u32, File), JailError> {
    let path = runtime.join("ids");
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
    let file = options.open(&path).map_err(doing(format!("open {}", path.display())))?;
    let first = *next;
    for slot in (0..slots).map(|offset| (first % slots + offset) % slots) {
        if sandstorm_sys::lock::try_lock_byte(file.as_fd(), slot).map_err(doing("lock a block of ids"))? {
            *next = (slot + 1) % slots;
            return Ok((slot, file));
        }
    }
    Err(JailError::NoFreeIds(slots))
}

/// The caller's ranges in `/etc/subuid` and `/etc/subgid`: `(start, count)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Subordinate {
    uids: (u32, u32),
    gids: (u32, u32),
}

impl Subordinate {
    /// `None` when a range or one of the two helper programs is missing.
    fn of_caller() -> Option<Self> {
        find_helper("newuidmap")?;
        find_helper("newgidmap")?;
        let uid = rustix::process::getuid().as_raw();
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let name = user_name(&passwd, uid);
        Some(Self {
            uids: range_of(&fs::read_to_string("/etc/subuid").ok()?, name, uid)?,
            gids: range_of(&fs::read_to_string("/etc/subgid").ok()?, name, uid)?,
        })
    }
}

fn user_name(passwd: &str, uid: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

fn range_of(text: &str, name: Option<&str>, uid: u32) -> Option<(u32, u32)> {
    text.lines().find_map(|line| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        if Some(owner) != name && owner.parse() != Ok(uid) {
            return None;
        }
        let (start, count): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        // A range that touches root or wraps around is a mistake that must not become a map.
        (start > 0 && count >= 2 && start.checked_add(count).is_some()).then_some((start, count))
    })
}

fn find_helper(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/bin", "/usr/sbin"].iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the launcher starts the set-id helpers that map subordinate ids"
)]
fn run_helper(name: &str, pid: i32, extents: &[Extent]) -> Result<(), JailError> {
    let path = find_helper(name).unwrap_or_else(|| PathBuf::from(name));
    let mut command = std::process::Command::new(&path);
    command.arg(pid.to_string()).env_clear();
    for extent in extents {
        command.args([extent.inside, extent.outside, extent.count].map(|n| n.to_string()));
    }
    let output = command.output().map_err(doing(format!("run {name}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(JailError::Wall { wall: "uid_wall", reason: format!("{name} refused: {said}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_once() {
        let runtime = tempfile::tempdir().unwrap();
        let mut next = 0;
        let (a, first) = free_slot(runtime.path(), 2, &mut next).unwrap();
        let (b, _second) = free_slot(runtime.path(), 2, &mut next).unwrap();
        assert_eq!((a, b), (0, 1));
        assert!(matches!(free_slot(runtime.path(), 2, &mut next), Err(JailError::NoFreeIds(2))));
        drop(first);
        assert_eq!(free_slot(runtime.path(), 2, &mut next).unwrap().0, 0);
    }

    #[test]
    fn a_slot_that_was_just_given_back_is_the_last_to_be_given_again() {
        let runtime = tempfile::tempdir().unwrap();
        let mut next = 0;
        let mut take = || free_slot(runtime.path(), 3, &mut next).unwrap().0;
        assert_eq!([take(), take(), take(), take()], [0, 1, 2, 0]);
    }

    #[test]
    fn a_range_is_found_by_name_or_number() {
        let text = "root:1:65536\nalice:100000:65536\n1007:300000:10\n";
        assert_eq!(range_of(text, Some("alice"), 1006), Some((100_000, 65_536)));
        assert_eq!(range_of(text, None, 1007), Some((300_000, 10)));
        assert_eq!(range_of(text, Some("bob"), 1008), None);
    }

    #[test]
    fn a_range_with_host_root_or_without_room_is_refused() {
        assert_eq!(range_of("a:0:65536\n", Some("a"), 5), None);
        assert_eq!(range_of("a:10:1\n", Some("a"), 5), None);
        assert_eq!(range_of("a:4294967290:100\n", Some("a"), 5), None);
    }

    #[test]
    fn the_name_comes_from_the_third_field() {
        let passwd = "root:x:0:0::/root:/bin/sh\nalice:x:1006:1006::/home/alice:/bin/sh\n";
        assert_eq!(user_name(passwd, 1006), Some("alice"));
        assert_eq!(user_name(passwd, 9), None);
    }
}
