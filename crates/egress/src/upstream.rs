//! How the host resolves and dials: the two things that tests replace.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Turns a name into addresses, on the host's side.
#[async_trait]
pub trait Resolver: fmt::Debug + Send + Sync + 'static {
    /// A name that ends in a dot is absolute: no search domain may be tried on it.
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// Opens a connection to exactly the given address.
#[async_trait]
pub trait Dialer: fmt::Debug + Send + Sync + 'static {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream>;
}

const LOOKUPS: usize = 64;
const LOOKUPS_PER_SANDBOX: usize = 8;

/// The host's own name service.
///
/// A lookup holds a thread until it ends, even when nobody waits for it any more, and how long it takes can be up to
/// a name server that a sandbox's owner runs. So lookups are counted until they end: those of one sandbox, and all.
#[derive(Clone, Debug)]
pub struct SystemResolver {
    all: Arc<Semaphore>,
    own: Arc<Semaphore>,
}

impl SystemResolver {
    /// A resolver for one more sandbox, which shares only the total with the others.
    pub fn for_sandbox(&self) -> Self {
        Self { all: Arc::clone(&self.all), own: Arc::new(Semaphore::new(LOOKUPS_PER_SANDBOX)) }
    }
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(LOOKUPS)), own: Arc::new(Semaphore::new(LOOKUPS_PER_SANDBOX)) }
    }
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let own = Arc::clone(&self.own).acquire_owned().await.map_err(io::Error::other)?;
        let all = Arc::clone(&self.all).acquire_owned().await.map_err(io::Error::other)?;
        let name = name.to_owned();
        let lookup = tokio::task::spawn_blocking(move || {
            let addresses = (name.as_str(), 0).to_socket_addrs();
            drop((own, all));
            addresses.map(|addresses| addresses.map(|address| address.ip()).collect())
        });
        lookup.await.map_err(io::Error::other)?
    }
}

/// Plain TCP from the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectDialer;

#[async_trait]
impl Dialer for DirectDialer {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// What lies behind the proxy.
#[derive(Clone, Debug)]
pub struct Upstream {
    pub resolver: Arc<dyn Resolver>,
    pub dialer: Arc<dyn Dialer>,
}

impl Default for Upstream {
    fn default() -> Self {
        Self { resolver: Arc::new(SystemResolver::default()), dialer: Arc::new(DirectDialer) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn finds_this_machine() {
        let addresses = SystemResolver::default().lookup("localhost").await.unwrap();
        assert!(addresses.iter().all(IpAddr::is_loopback) && !addresses.is_empty(), "{addresses:?}");
    }

    #[tokio::test]
    async fn one_sandbox_cannot_take_every_lookup() {
        let everyone = SystemResolver::default();
        let (greedy, modest) = (everyone.for_sandbox(), everyone.for_sandbox());
        let _stuck = Arc::clone(&greedy.own).acquire_many_owned(LOOKUPS_PER_SANDBOX as u32).await.unwrap();
        assert!(timeout(Duration::from_millis(50), greedy.lookup("localhost")).await.is_err());
        assert!(modest.lookup("localhost").await.is_ok());
        let _all = Arc::clone(&everyone.all).acquire_many_owned(LOOKUPS as u32).await.unwrap();
        assert!(timeout(Duration::from_millis(50), modest.lookup("localhost")).await.is_err());
    }
}
