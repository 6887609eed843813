//! How many descriptors a process may have, and which it starts with.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandstorm_sys::process::{close_on_exec_from, place_descriptor};

use crate::step::{Failed, Step};

/// Lets this process have as many as its user may give it.
pub(crate) fn allow_all() {
    // A host that forbids it only has room for fewer jails.
    let _ = setrlimit(Resource::Nofile, for_others());
}

/// Lets this process have as many as the kernel gives to anybody, where it is root, and says which limit is to be that of
/// the processes that it starts.
pub(crate) fn allow_most() -> Rlimit {
    let others = for_others();
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|most| most.trim().parse().ok());
    let raised = Rlimit { current: most, maximum: most };
    let is_more = most > others.maximum && others.maximum.is_some();
    if !is_more || setrlimit(Resource::Nofile, raised).is_err() {
        allow_all();
    }
    others
}

fn for_others() -> Rlimit {
    let limit = getrlimit(Resource::Nofile);
    Rlimit { current: limit.maximum, ..limit }
}

/// Before an exec: the null device at 0 to 2, the socket at 3, and nothing else, under a limit that is not the launcher's.
/// What is open anywhere else belongs to the launcher.
pub(crate) fn settle(socket: &OwnedFd, limit: Rlimit) -> Result<(), Failed> {
    let socket = out_of_the_way(socket)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let null = out_of_the_way(null.step("null device")?)?;
    for number in 0..3 {
        place_descriptor(null.as_fd(), number).step("standard streams")?;
    }
    place_descriptor(socket.as_fd(), 3).step("socket")?;
    close_on_exec_from(4).step("descriptors")?;
    setrlimit(Resource::Nofile, limit).step("limit of descriptors")
}

/// A copy at a number that nothing is going to be put at.
pub(crate) fn out_of_the_way(descriptor: impl AsFd) -> Result<OwnedFd, Failed> {
    rustix::io::fcntl_dupfd_cloexec(descriptor, 10).step("descriptors")
}
