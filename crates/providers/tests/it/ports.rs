//! Ports of sandboxes there, reached from here.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use sandstorm_provider::altered::{Alteration, Altered};
use sandstorm_provider::memory::MemoryProvider;
use sandstorm_provider::{Duplex, OpContext, Provider, Result, conformance};
use sandstorm_types::{Capabilities, ErrorKind, SandboxId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::world::{World, cx, sandbox};

#[tokio::test]
async fn bytes_go_both_ways() {
    let program = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let behind = program.local_addr().unwrap();
    let memory = Arc::new(MemoryProvider::default());
    let ports = Altered(WithPorts { inner: Arc::clone(&memory), behind });
    let world = World::over(memory, Arc::new(ports), World::settings()).await;
    let adapter = world.adapter().await;
    assert!(adapter.capabilities().connect);
    let id = sandbox(&adapter).await;
    let mut here = adapter.connect(&cx(), &id, behind.port()).await.unwrap();
    let (mut there, _) = program.accept().await.unwrap();
    here.write_all(b"\0ping\xff").await.unwrap();
    let mut said = [0; 6];
    there.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"\0ping\xff");
    let much: Vec<u8> = (0..3 << 20).map(|place: u32| place as u8).collect();
    let sending = async {
        there.write_all(&much).await.unwrap();
        drop(there);
    };
    let mut heard = Vec::new();
    let (_, read) = tokio::join!(sending, here.read_to_end(&mut heard));
    read.unwrap();
    assert!(heard == much, "{} bytes came", heard.len());
    let closed = adapter.connect(&cx(), &id, 9).await.unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::InvalidRequest, "{closed}");
    let unknown = adapter.connect(&cx(), &SandboxId::random(), 80).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);
    let report = conformance::run_cases(&adapter, "network").await;
    assert!(report.passed(), "{report}");
}

/// The provider in memory, with a program of the test behind one port of every sandbox.
#[derive(Debug)]
struct WithPorts {
    inner: Arc<MemoryProvider>,
    behind: SocketAddr,
}

#[async_trait]
impl Alteration for WithPorts {
    fn original(&self) -> &dyn Provider {
        &*self.inner
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { connect: true, ..self.inner.capabilities() }
    }

    async fn connect(&self, cx: &OpContext, id: &SandboxId, port: u16) -> Result<Duplex> {
        self.inner.get(cx, id).await?;
        if port != self.behind.port() {
            return self.inner.connect(cx, id, port).await;
        }
        Ok(Duplex::new(TcpStream::connect(self.behind).await.unwrap()))
    }
}
