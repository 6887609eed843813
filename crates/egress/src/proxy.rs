//! One proxy per sandbox: it owns the sandbox's sockets and every connection that came through them.

mod answer;
mod connection;
mod opening;
mod relay;
mod report;
mod shared;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use sandstorm_types::NetworkPolicy;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use report::{Counters, Refusal};
pub(crate) use shared::Shared;

use crate::denial::Denial;
use crate::dns;
use crate::limits::Options;
use crate::rate::Rate;
use crate::upstream::Upstream;

const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

/// The host's ends of a captured network, as the jail made them.
#[derive(Debug)]
pub struct Sockets {
    /// Listeners that every TCP connection of the sandbox reaches, whatever its destination.
    pub tcp: Vec<OwnedFd>,
    /// UDP sockets that receive every DNS query.
    pub dns_udp: Vec<OwnedFd>,
    /// Listeners for DNS over TCP.
    pub dns_tcp: Vec<OwnedFd>,
}

/// A socket that was handed over cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("could not take over the {what} socket")]
pub struct EgressError {
    what: &'static str,
    #[source]
    source: io::Error,
}

/// A running proxy. Dropping it ends every connection at once; [`EgressProxy::shutdown`] also waits until they have
/// ended.
#[derive(Debug)]
pub struct EgressProxy {
    shared: Arc<Shared>,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
}

impl EgressProxy {
    /// Starts serving the sandbox's sockets. Must be called inside a tokio runtime. The proxy also ends when `cancel`
    /// fires.
    pub fn start(
        sockets: Sockets,
        policy: NetworkPolicy,
        upstream: Upstream,
        options: Options,
        cancel: CancellationToken,
    ) -> Result<Self, EgressError> {
        let shared = Arc::new(Shared::new(policy, upstream, options));
        let cancel = cancel.child_token();
        let connections = Arc::new(Semaphore::new(shared.limits().connections));
        let mut tasks = JoinSet::new();
        for descriptor in sockets.tcp {
            let accept =
                accept_all(Arc::clone(&shared), listener("proxy", descriptor)?, Arc::clone(&connections));
            tasks.spawn(until(cancel.clone(), accept));
        }
        for descriptor in sockets.dns_udp {
            let serve = dns::serve_udp(Arc::clone(&shared), datagram("resolver", descriptor)?);
            tasks.spawn(until(cancel.clone(), serve));
        }
        for descriptor in sockets.dns_tcp {
            let serve = dns::serve_tcp(Arc::clone(&shared), listener("resolver", descriptor)?);
            tasks.spawn(until(cancel.clone(), serve));
        }
        Ok(Self { shared, cancel, tasks })
    }

    /// Replaces the policy, at once: for queries, for new connections and for those on their way. Connections that the
    /// new one does not permit end, and so do those whose server name it would have asked for and nobody looked at.
    pub fn set_policy(&self, policy: NetworkPolicy) {
        self.shared.set_policy(policy);
    }

    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// The latest that was refused or did not get through, oldest first. Their number is bounded; the counters know all.
    pub fn refused(&self) -> Vec<Denial> {
        self.shared.refused()
    }

    pub async fn shutdown(mut self) {
        self.cancel.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn until(cancel: CancellationToken, work: impl Future<Output = ()>) {
    cancel.run_until_cancelled(work).await;
}

fn listener(what: &'static str, descriptor: OwnedFd) -> Result<TcpListener, EgressError> {
    let listener = std::net::TcpListener::from(descriptor);
    listener
        .set_nonblocking(true)
        .and_then(|()| TcpListener::from_std(listener))
        .map_err(|source| EgressError { what, source })
}

fn datagram(what: &'static str, descriptor: OwnedFd) -> Result<UdpSocket, EgressError> {
    let socket = std::net::UdpSocket::from(descriptor);
    socket
        .set_nonblocking(true)
        .and_then(|()| UdpSocket::from_std(socket))
        .map_err(|source| EgressError { what, source })
}

/// Accepts for ever. Over the limits it stops, one connection later, so that the sandbox waits in its own kernel queue
/// and takes no memory of ours. The connections are its children: they end when it is dropped.
async fn accept_all(shared: Arc<Shared>, listener: TcpListener, slots: Arc<Semaphore>) {
    let mut rate = Rate::new(shared.limits().connections_per_second, shared.limits().connection_burst);
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                rate.wait().await;
                let slot = Arc::clone(&slots).acquire_owned().await.expect("the semaphore is never closed");
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    connection::serve(&shared, client).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a sandbox's connection could not be accepted");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}
