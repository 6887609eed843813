//! The way out of a sandbox: the host's side of a captured network.
//!
//! The jail hands every TCP connection and every DNS query of a sandbox to sockets that this process holds. Names are
//! answered here, with synthetic addresses and without asking anyone; a connection to such an address is matched by
//! the name it stands for, resolved on the host, checked, and dialled. The sandbox never supplies the address that a
//! name leads to, and which sandbox is speaking is known from the socket, not from anything it says.
//!
//! A name that was matched must also be the name inside the connection: the server name of TLS, the `Host` of every
//! plain HTTP request. What this does not see is what TLS encrypts: fronting on a shared content network, and data sent to
//! an allowed host, remain possible.

mod address;
mod boundary;
mod denial;
mod dns;
mod hello;
mod http;
mod limits;
mod names;
mod permit;
mod proxy;
mod rate;
#[cfg(test)]
mod testing;
mod upstream;
mod watchers;

pub use boundary::Boundary;
pub use denial::{Denial, Host};
pub use limits::{Limits, Options, ServerName};
pub use proxy::{Counters, EgressError, EgressProxy, Refusal, Sockets};
pub use upstream::{Dialer, DirectDialer, Resolver, SystemResolver, Upstream};
pub use watchers::{Watch, Watchers};
