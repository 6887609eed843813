//! The mount call that rustix lacks.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Attributes of a mount; `|` joins them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountAttributes {
    set: u64,
    propagation: u64,
}

impl MountAttributes {
    pub const READ_ONLY: Self = Self::set(libc::MOUNT_ATTR_RDONLY);
    pub const NO_SUID: Self = Self::set(libc::MOUNT_ATTR_NOSUID);
    pub const NO_DEV: Self = Self::set(libc::MOUNT_ATTR_NODEV);
    pub const NO_EXEC: Self = Self::set(libc::MOUNT_ATTR_NOEXEC);
    /// What is mounted or unmounted elsewhere does not show here, nor the other way round.
    pub const PRIVATE: Self = Self { set: 0, propagation: libc::MS_PRIVATE };

    const fn set(attribute: u64) -> Self {
        Self { set: attribute, propagation: 0 }
    }
}

impl std::ops::BitOr for MountAttributes {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self { set: self.set | other.set, propagation: self.propagation | other.propagation }
    }
}

/// Sets attributes on the mount at `path` relative to `dir` (an empty path means `dir` itself), on the whole tree
/// below it when `recursive`.
pub fn set_attributes(
    dir: BorrowedFd<'_>,
    path: &CStr,
    attributes: MountAttributes,
    recursive: bool,
) -> io::Result<()> {
    // SAFETY: `mount_attr` is plain data for which all zeroes means "no change".
    let mut change: libc::mount_attr = unsafe { std::mem::zeroed() };
    change.attr_set = attributes.set;
    change.propagation = attributes.propagation;
    let mut flags = libc::AT_EMPTY_PATH;
    if recursive {
        flags |= libc::AT_RECURSIVE;
    }
    // SAFETY: `path` ends with NUL, `change` has the size that is passed, both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir.as_raw_fd(),
            path.as_ptr(),
            flags,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
