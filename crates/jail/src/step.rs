//! Names for the steps of building a jail, so that a failure says which one it was.

use std::io;

use rustix::io::Errno;

/// A step that failed inside PID 1.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) step: String,
    pub(crate) errno: Errno,
}

pub(crate) trait Step<T> {
    fn step(self, name: impl Into<String>) -> Result<T, Failed>;
}

impl<T> Step<T> for Result<T, Errno> {
    fn step(self, name: impl Into<String>) -> Result<T, Failed> {
        self.map_err(|errno| Failed { step: name.into(), errno })
    }
}

impl<T> Step<T> for io::Result<T> {
    fn step(self, name: impl Into<String>) -> Result<T, Failed> {
        self.map_err(|e| Failed { step: name.into(), errno: Errno::from_io_error(&e).unwrap_or(Errno::IO) })
    }
}
