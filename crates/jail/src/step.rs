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
    fn step(self, name: &str) -> Result<T, Failed>
    where
        Self: Sized,
    {
        self.step_with(|| name.to_owned())
    }

    /// With a name that is put together only when it is needed.
    fn step_with(self, name: impl FnOnce() -> String) -> Result<T, Failed>;
}

impl<T> Step<T> for Result<T, Errno> {
    fn step_with(self, name: impl FnOnce() -> String) -> Result<T, Failed> {
        self.map_err(|errno| Failed { step: name(), errno })
    }
}

impl<T> Step<T> for io::Result<T> {
    fn step_with(self, name: impl FnOnce() -> String) -> Result<T, Failed> {
        self.map_err(|e| Failed { step: name(), errno: Errno::from_io_error(&e).unwrap_or(Errno::IO) })
    }
}
