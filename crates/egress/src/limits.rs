//! What one sandbox may take of the way out.

use std::time::Duration;

/// How a proxy behaves towards its sandbox.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub limits: Limits,
    pub server_name: ServerName,
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
    /// Names that stay answerable at one time; the least recently used goes first.
    pub names: usize,
    /// Time to resolve a name and to reach an address, each.
    pub connect_timeout: Duration,
    /// Time for the client's first TLS message.
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
            names: 4096,
            connect_timeout: Duration::from_secs(10),
            hello_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
        }
    }
}

/// How strictly the server name of TLS must agree with the name that was matched. It is checked on every connection
/// to a name that opens with TLS, whatever its port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerName {
    /// Port 443 must speak TLS; the name must be there, once, and equal; encrypted client hellos are refused, because
    /// they hide the name that counts.
    #[default]
    Strict,
    /// A name that is there must be equal. Anything else passes.
    WhenPresent,
}
