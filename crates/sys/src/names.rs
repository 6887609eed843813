//! Names of hosts and users, looked up by a statically linked program.
//!
//! glibc looks names up as `/etc/nsswitch.conf` says, and loads a library for each source in it but files and DNS. Such a
//! library brings the machine's own glibc into a program that has another one inside, and the program dies of it (of
//! SIGFPE, for one linked with 2.36 where 2.41 is installed).

use std::io;

/// Databases of `/etc/nsswitch.conf` that a lookup may ask, with the sources that glibc has inside.
#[cfg(target_env = "gnu")]
const BUILT_IN: [(&std::ffi::CStr, &std::ffi::CStr); 7] = [
    (c"hosts", c"files dns"),
    (c"networks", c"files dns"),
    (c"passwd", c"files"),
    (c"group", c"files"),
    (c"initgroups", c"files"),
    (c"services", c"files"),
    (c"protocols", c"files"),
];

/// Makes every lookup of this process, and of those that it forks, use glibc's built-in sources alone.
///
/// Call it before the first lookup. A C library that loads nothing stays as it is.
pub fn use_built_in_sources() -> io::Result<()> {
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            /// Part of glibc's `nss.h` and left out of the libc crate.
            fn __nss_configure_lookup(
                database: *const libc::c_char,
                sources: *const libc::c_char,
            ) -> libc::c_int;
        }
        for (database, sources) in BUILT_IN {
            // SAFETY: both are strings that end in a zero byte and live as long as the process; glibc copies what it keeps.
            if unsafe { __nss_configure_lookup(database.as_ptr(), sources.as_ptr()) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::ToSocketAddrs;

    use super::*;

    #[test]
    fn a_host_of_the_file_is_found() {
        use_built_in_sources().expect("glibc knows each database");
        let found: Vec<_> = ("localhost", 80).to_socket_addrs().expect("it resolves").collect();
        assert!(!found.is_empty() && found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
    }
}
