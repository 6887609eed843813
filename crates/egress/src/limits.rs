//! What one sandbox may take of the way out.

use std::sync::Arc;
use std::time::Duration;

use sandstorm_types::Rule;
use tokio::sync::mpsc;

use crate::boundary::Boundary;
use crate::denial::Denial;
use crate::watchers::Watchers;

/// How a proxy behaves towards its sandbox.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub limits: Limits,
    pub server_name: ServerName,
    /// What lies inside and still may be reached by sandboxes whose own list names it. The operator's word, never a
    /// tenant's.
    pub opened: Arc<[Rule]>,
    /// Where no policy of a tenant reaches.
    pub boundary: Arc<Boundary>,
    /// Where denials go. They are never waited for: what the channel has no room for is counted.
    pub denials: Option<mpsc::Sender<Denial>>,
    /// Who collects what did not get through.
    pub watchers: Arc<Watchers>,
}

/// Bounds on one sandbox's traffic. Reaching a rate or a count makes the sandbox wait; reaching a byte total ends its
/// connections.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections open at one time.
    pub connections: usize,
    /// New connections per second, in the long run.
    pub connections_per_second: u32,
    /// New connections that may come at once after a pause.
    pub connection_burst: u32,
    /// Bytes sent out, over the sandbox's life.
    pub bytes_up: u64,
    /// Bytes brought in, over the sandbox's life.
    pub bytes_down: u64,
    /// DNS queries per second, in the long run; more are dropped.
    pub queries_per_second: u32,
    pub query_burst: u32,
    /// New names per second, in the long run: with the length of a name this bounds what lookups can carry out.
    pub names_per_second: u32,
    pub name_burst: u32,
    /// Names that stay answerable at one time; the least recently used goes first.
    pub names: usize,
    /// Time to resolve a name and to reach an address, each.
    pub connect_timeout: Duration,
    /// Time for the client's first TLS message or the first line of its first request.
    pub hello_timeout: Duration,
    /// A connection on which nothing moves for this long is closed.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 128,
            connections_per_second: 100,
            connection_burst: 400,
            bytes_up: 4 << 30,
            bytes_down: 16 << 30,
            queries_per_second: 100,
            query_burst: 500,
            names_per_second: 20,
            name_burst: 200,
            names: 4096,
            connect_timeout: Duration::from_secs(10),
            hello_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
        }
    }
}

/// How strictly the name inside a connection must agree with the name that was matched. On every port, a connection to a
/// name that opens with TLS or with an HTTP request is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerName {
    /// Port 443 must speak TLS; the name must be there, once, and equal; encrypted client hellos are refused, because
    /// they hide the name that counts. Port 80 must speak HTTP/1 or TLS.
    #[default]
    Strict,
    /// A name that is there must be equal. Anything else passes.
    WhenPresent,
}
