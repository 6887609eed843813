//! Locks on single bytes of a file, owned by the open file and not by the process: they vanish with the last
//! descriptor, however its holder ends.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Tries to lock one byte for writing. `false`: somebody else has it.
pub fn try_lock_byte(file: BorrowedFd<'_>, offset: u32) -> io::Result<bool> {
    // SAFETY: `flock` is plain data; all zeroes is a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = i64::from(offset);
    lock.l_len = 1;
    // SAFETY: the command takes a pointer to a `flock`, which outlives the call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        -1 => match io::Error::last_os_error() {
            e if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            e => Err(e),
        },
        _ => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_byte_is_locked_by_one_open_file_at_a_time() {
        let path = std::env::temp_dir().join(format!("sandstorm-sys-lock-{}", std::process::id()));
        let open =
            || OpenOptions::new().write(true).create(true).truncate(false).open(&path).expect("it opens");
        let (one, two) = (open(), open());
        assert!(try_lock_byte(one.as_fd(), 7).expect("it locks"));
        assert!(!try_lock_byte(two.as_fd(), 7).expect("it answers"));
        assert!(try_lock_byte(two.as_fd(), 8).expect("it locks"));
        drop(one);
        assert!(try_lock_byte(two.as_fd(), 7).expect("it locks"));
        std::fs::remove_file(&path).expect("it goes");
    }
}
