//! Loop devices, which make a disk of a file, and the end of an ext4 file system that nobody reads again.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// What the kernel reads and writes at once: a whole page, so that the file below can be written to without the page cache.
const BLOCK: u32 = 4096;

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
/// The device lets go of its file when nobody has it open and nothing of it is mounted any more.
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// `_IOR('X', 125, __u32)`.
const EXT4_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
const EXT4_GOING_FLAGS_NOLOGFLUSH: u32 = 2;

/// `struct loop_info64` of the kernel.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    real_device: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of the kernel.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// The number of a loop device that nobody uses, by the word of `/dev/loop-control`. Somebody else may be quicker to take it.
pub fn free_loop(control: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: the question has no argument; on what is not the control device it is refused.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// Makes a disk of a file, for as long as anybody has the device open or mounted. `name` is what people are shown who list
/// the devices. Writes do not go through the page cache a second time where the file's own file system can do without.
pub fn attach_loop(device: BorrowedFd<'_>, file: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    // SAFETY: `loop_config` is plain data for which all zeroes means "nothing asked for".
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.fd = file.as_raw_fd() as u32;
    config.block_size = BLOCK;
    config.info.flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
    // The last byte stays zero.
    for (to, from) in config.info.file_name[..63].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    // SAFETY: `config` is laid out as the kernel's own structure, and outlives the call.
    match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Ends an ext4 file system: what was not written to its disk yet never is, and nothing can be read or written any more.
/// Without this, whoever lets go of it last waits until all of that is on the disk.
pub fn shut_down(root: BorrowedFd<'_>) -> io::Result<()> {
    let how = EXT4_GOING_FLAGS_NOLOGFLUSH;
    // SAFETY: the argument is a number that outlives the call; on another file system the word is refused.
    match unsafe { libc::ioctl(root.as_raw_fd(), EXT4_IOC_SHUTDOWN as _, &raw const how) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_words_are_laid_out_as_the_kernel_reads_them() {
        assert_eq!((size_of::<LoopInfo>(), size_of::<LoopConfig>()), (232, 304));
    }

    #[test]
    fn what_is_no_disk_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(free_loop(file.as_fd()).is_err());
        assert!(attach_loop(file.as_fd(), file.as_fd(), "x").is_err());
        assert!(shut_down(file.as_fd()).is_err());
    }
}
