//! The network of a jail: a namespace whose only device is `lo`, and, when the policy lets anything out, the rules
//! that hand every connection to sockets which the host holds.
//!
//! Nothing here forwards packets. The namespace never gets a second device, so what leaves it leaves through a
//! descriptor: `capture_all` makes every address local, redirects TCP to one listener and DNS to one resolver
//! socket, drops the rest, and returns those sockets. The host's proxy accepts on them from outside; it decides, this
//! module does not. No program is started and no file is read: all of it is netlink.
//!
//! Both functions act on the network namespace of the calling thread and need CAP_NET_ADMIN over it; `capture_all`
//! also needs CAP_NET_BIND_SERVICE. Root has them, and so has any user in a user namespace of their own.

mod capture;
mod netlink;
mod nftables;
mod route;
mod wire;

use std::net::Ipv4Addr;

use rustix::io::Errno;

pub use capture::{Captured, DNS_PORT, PROXY_PORT};

/// The address for `nameserver` in the jail's `/etc/resolv.conf`. Queries to any other address reach the same
/// resolver; this one only has to be a name that nobody else uses.
pub const NAMESERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// Which step of building the network failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    #[error("could not open a netlink socket")]
    Open(#[source] Errno),
    #[error("could not send the netlink request to {step}")]
    Send {
        step: &'static str,
        #[source]
        source: Errno,
    },
    #[error("could not read the kernel's answer to the request to {step}")]
    Receive {
        step: &'static str,
        #[source]
        source: Errno,
    },
    #[error("the kernel refused to {step}")]
    Refused {
        step: &'static str,
        #[source]
        source: Errno,
    },
    #[error("the kernel acknowledged {acknowledged} of {sent} messages of the request to {step}")]
    Unacknowledged { step: &'static str, sent: usize, acknowledged: usize },
    #[error("could not make the {what} socket")]
    Socket {
        what: &'static str,
        #[source]
        source: Errno,
    },
    #[error("{0} descriptors do not make a captured network")]
    Descriptors(usize),
}

/// Brings `lo` up, so that programs in the namespace can speak to each other on 127.0.0.1 and ::1.
///
/// This is the whole of a jail without network.
pub fn loopback_up() -> Result<(), NetworkError> {
    route::Routes::open()?.loopback_up()
}

/// Builds the captured network in the calling thread's namespace and returns the host's ends of it.
///
/// The rules go in as one transaction before `lo` comes up, so there is no moment in which a packet meets a
/// namespace without rules. On failure the namespace is left half-built and must be thrown away.
pub fn capture_all() -> Result<Captured, NetworkError> {
    nftables::install(&capture::ruleset())?;
    let mut routes = route::Routes::open()?;
    routes.loopback_up()?;
    let captured = capture::listen()?;
    routes.everything_is_local(captured.has_ipv6())?;
    Ok(captured)
}
