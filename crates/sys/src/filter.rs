//! Installing a seccomp filter.

use std::io;

/// One classic BPF instruction, laid out as the kernel reads it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub operand: u32,
}

impl Instruction {
    /// One as it lies in memory.
    pub fn read([a, b, jump_true, jump_false, operand @ ..]: [u8; 8]) -> Self {
        Self { code: u16::from_ne_bytes([a, b]), jump_true, jump_false, operand: u32::from_ne_bytes(operand) }
    }
}

/// Puts every thread of this process behind the filter. There is no way back, and no privilege is needed once
/// `no_new_privs` is set.
pub fn install(program: &[Instruction]) -> io::Result<()> {
    #[repr(C)]
    struct SockFprog {
        length: u16,
        filter: *const Instruction,
    }
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let fprog = SockFprog { length, filter: program.as_ptr() };
    // SAFETY: `fprog` has the layout of `sock_fprog` and describes `length` instructions that outlive the call; the
    // kernel copies and verifies them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const fprog,
        )
    };
    // With TSYNC a positive value is the id of a thread that could not be moved.
    match result {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!("thread {thread} kept another filter"))),
    }
}

/// The seccomp mode of this thread: 0 none, 2 filter.
pub fn mode() -> io::Result<u32> {
    // SAFETY: PR_GET_SECCOMP reads no pointer.
    match unsafe { libc::prctl(libc::PR_GET_SECCOMP) } {
        -1 => Err(io::Error::last_os_error()),
        mode => Ok(mode as u32),
    }
}
