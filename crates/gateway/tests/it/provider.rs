//! The provider in memory, with a server of the test behind every port.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use sandstorm_provider::altered::Alteration;
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{Duplex, Error, OpContext, Provider, Result};
use sandstorm_types::{Capabilities, ErrorKind, SandboxId};
use tokio::net::TcpStream;

/// Connections into sandboxes go to `behind`, when there is something.
#[derive(Debug, Default)]
pub(crate) struct WithPorts {
    inner: MemoryProvider,
    behind: Mutex<Option<SocketAddr>>,
    cannot_fork: AtomicBool,
}

impl WithPorts {
    pub(crate) fn forget_how_to_fork(&self) {
        self.cannot_fork.store(true, Ordering::SeqCst);
    }

    pub(crate) fn listen(&self, address: SocketAddr) {
        *self.behind.lock().unwrap() = Some(address);
    }
}

#[async_trait]
impl Alteration for WithPorts {
    fn original(&self) -> &dyn Provider {
        &self.inner
    }

    fn capabilities(&self) -> Capabilities {
        let live_fork = !self.cannot_fork.load(Ordering::SeqCst);
        Capabilities { connect: true, live_fork, ..self.inner.capabilities() }
    }

    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex> {
        self.inner.get(cx, id).await?;
        let behind = *self.behind.lock().unwrap();
        let Some(address) = behind else { return self.inner.connect(cx, id, port).await };
        let refused =
            |error| Error::new(ErrorKind::InvalidRequest, "nothing listens there").with_source(error);
        Ok(Duplex::new(TcpStream::connect(address).await.map_err(refused)?))
    }
}
