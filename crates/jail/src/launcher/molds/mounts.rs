//! What the mold of a launcher that may mount sees of the host's file system.
//!
//! Every PID 1 begins with a copy of all these mounts and throws it away. Nothing of it is needed but a place to put a new
//! root, `/proc` and `/dev`; and nothing that somebody wants to unmount on the host is to be kept busy by a mold.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::mount::{MountPropagationFlags, UnmountFlags};

use crate::step::{Failed, Step};

/// What hides parts of these stays as well.
const KEPT: [&str; 2] = ["/proc", "/dev"];

/// Detaches all other mounts, in a mount namespace that is this process's own.
pub(super) fn let_go() -> Result<(), Failed> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).step("private mounts")?;
    let mounts = fs::read("/proc/self/mountinfo").step("mounts")?;
    // From the last to the first: what is below or above another goes before it.
    for place in mounts.split(|byte| *byte == b'\n').rev().filter_map(place) {
        if place != Path::new("/") && !KEPT.iter().any(|kept| place.starts_with(kept)) {
            // One that stays only costs time.
            let _ = rustix::mount::unmount(&place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }
    Ok(())
}

/// The fifth word of a line, in which bytes that would end it are written in octal.
fn place(line: &[u8]) -> Option<PathBuf> {
    let word = line.split(|byte| *byte == b' ').nth(4)?;
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, others)) = rest.split_first() {
        let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
        match others.get(..3).filter(|_| *first == b'\\').and_then(octal) {
            Some(byte) => {
                path.push(byte);
                rest = &others[3..];
            }
            None => {
                path.push(*first);
                rest = others;
            }
        }
    }
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(&path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_with_their_spaces() {
        let line = b"36 35 98:0 /mnt1 /mnt/a\\040b\\134c rw,noatime master:1 - ext3 /dev/root rw";
        assert_eq!(place(line).unwrap(), Path::new("/mnt/a b\\c"));
        assert_eq!(place(b""), None);
    }
}
