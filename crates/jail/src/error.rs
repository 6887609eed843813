//! Why a jail could not be made.

use std::io;

use rustix::io::Errno;

/// One variant for each thing that can go wrong around a jail; the steps inside PID 1 go by name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JailError {
    #[error("the step '{step}' of building the jail failed")]
    Step { step: String, source: Errno },
    #[error("the sandbox did not come up: {0}")]
    Unborn(&'static str),
    #[error("user namespaces are not available{}", hint(.0))]
    UserNamespaces(Option<String>, #[source] io::Error),
    #[error("the limit '{limit}' cannot be enforced on this host: {reason}")]
    Limit { limit: &'static str, reason: String },
    #[error("the wall '{wall}' cannot be built on this host: {reason}")]
    Wall { wall: &'static str, reason: String },
    #[error("the writable space cannot be on disk: {0}")]
    Disk(String),
    #[error("no free block of user ids is left; {0} are in use")]
    NoFreeIds(u32),
    #[error("there is no such jail")]
    Gone,
    #[error("there is a jail of that name already")]
    Exists,
    #[error("{0:?} cannot name a jail")]
    Name(String),
    #[error("{0} is not a place in a jail")]
    Target(String),
    #[error("{0} is not among the trees that a jail may show")]
    Source(String),
    #[error("processes cannot be frozen on this host")]
    NoFreezer,
    #[error("not everything in the jail could be stopped")]
    Frozen,
    #[error("guests cannot be put into that jail")]
    NotJoinable,
    #[error("no guest can come into the jail: {0}")]
    Closed(String),
    #[error("no guest can be had now: {0}")]
    Crowded(String),
    #[error("no guest can be had: {0}")]
    NoGuest(String),
    #[error("the guest cannot be copied: {0}")]
    NotCarried(String),
    #[error("{0}")]
    Launcher(String),
    #[error("could not {doing}")]
    Host { doing: String, source: io::Error },
}

fn hint(knob: &Option<String>) -> String {
    knob.as_ref().map(|k| format!("; {k}")).unwrap_or_default()
}

/// Names what was being done to the host when it failed.
pub(crate) fn doing<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> JailError {
    let doing = what.into();
    move |source| JailError::Host { doing, source: source.into() }
}
