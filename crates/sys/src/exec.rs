//! Replacing this process by a program.

use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Runs the program behind a descriptor. Returns only on failure.
pub fn execute_descriptor(program: BorrowedFd<'_>, argv: &[CString], envp: &[CString]) -> io::Error {
    let argv = pointers(argv);
    let envp = pointers(envp);
    // SAFETY: both arrays end with a null pointer and point at strings that end with NUL and outlive the call; the
    // path is the empty string that AT_EMPTY_PATH asks for.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            program.as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            envp.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    io::Error::last_os_error()
}

/// Runs the program at a path. Returns only on failure.
pub fn execute_path(program: &CStr, argv: &[CString], envp: &[CString]) -> Result<Infallible, io::Error> {
    let argv = pointers(argv);
    let envp = pointers(envp);
    // SAFETY: both arrays end with a null pointer and point at strings that end with NUL and outlive the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    Err(io::Error::last_os_error())
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
}
