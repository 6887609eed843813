//! The listener of a server and what it asks of connections.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandstorm_types::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::form;

/// The server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Serve {
    /// The address that `sandstorm serve` listens on.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// The address of a second listener, for administration: keys, tenants, audit. Those routes are on no other
    /// address. Not set: administration goes through the Unix socket `admin.sock` in the state directory alone.
    #[schemars(with = "Option<String>", example = &"127.0.0.1:7301")]
    pub admin_listen: Option<SocketAddr>,
    /// The user that the server becomes when it was started as root; the launcher alone stays root. It must exist. Not
    /// set: `sandstorm` where there is such a user, else an id behind those of sandboxes that belongs to nobody.
    #[schemars(example = &"sandstorm")]
    pub user: Option<String>,
    /// TLS of both addresses. Without it put a reverse proxy in front of any address but the loopback.
    pub tls: Tls,
    /// The host names that requests may be sent to, such as `sandstorm.example.org` or `10.0.0.5:7300`; without a
    /// port any port is meant. Empty: any name.
    #[schemars(example = one("sandstorm.example.org"))]
    pub allowed_hosts: Vec<String>,
    /// The web pages that may use the API from a browser, as origins such as `https://app.example.org`. Empty: none.
    #[schemars(example = one("https://app.example.org"))]
    pub allowed_origins: Vec<String>,
    /// Whether `/metrics` needs a key. Metrics hold nothing of a tenant, but tell how busy the machine is.
    pub metrics_auth: bool,
    /// Most bytes of a request's body in JSON. Uploads of files are bounded by the disk limit of their sandbox instead.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub body_limit: ByteSize,
    /// Memory for all request bodies that are not answered yet; one tenant may have a quarter of it. It is not promised to
    /// sandboxes.
    #[serde(with = "form::size")]
    #[schemars(with = "form::Size")]
    pub body_memory: ByteSize,
    /// Connections at once.
    pub max_connections: u32,
    /// Connections at once from one address. Behind a reverse proxy all come from the proxy's.
    pub max_connections_per_address: u32,
    /// How long the head of a request may take to arrive.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub header_timeout: Duration,
    /// How long the next piece of a request's body may take to arrive.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub body_timeout: Duration,
    /// How long a request may take as a whole. Streams, terminals and connections to ports are not bound by it.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub request_timeout: Duration,
    /// How long a terminal or a connection to a port may stay open without a byte in either direction, and any other
    /// connection without a request.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub idle_timeout: Duration,
    /// How long a server that is told to stop waits for runs and foreground execs. Sandboxes live on.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub drain_timeout: Duration,
    /// How long sandboxes live on without a server. A server that is back in time finds them as they were.
    #[serde(with = "form::span")]
    #[schemars(with = "form::Span")]
    pub orphan_after: Duration,
}

impl Default for Serve {
    fn default() -> Self {
        Serve {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7300)),
            admin_listen: None,
            user: None,
            tls: Tls::default(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            metrics_auth: false,
            body_limit: ByteSize::mib(16),
            body_memory: ByteSize::mib(512),
            max_connections: 10_000,
            max_connections_per_address: 2_000,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(3_600),
            idle_timeout: Duration::from_secs(1_800),
            drain_timeout: Duration::from_secs(30),
            orphan_after: Duration::from_secs(600),
        }
    }
}

/// TLS of the server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// The server's certificate and those that signed it, as PEM. Not set, with `key`: no TLS.
    #[schemars(example = &"/etc/sandstorm/tls/server.pem")]
    pub cert: Option<PathBuf>,
    /// The certificate's private key, as PEM.
    #[schemars(example = &"/etc/sandstorm/tls/server.key")]
    pub key: Option<PathBuf>,
}

impl Tls {
    /// Certificate and key, where TLS is wanted. A loaded configuration has both or neither.
    pub fn files(&self) -> Option<(&Path, &Path)> {
        self.cert.as_deref().zip(self.key.as_deref())
    }
}

/// An example of a list.
fn one(example: &'static str) -> [&'static str; 1] {
    [example]
}
