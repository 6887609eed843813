//! Answering on listeners: one accept loop, strict HTTP, bounded connections, an orderly end.
//!
//! A connection passes a count (of all and per address), TLS where configured, and a filter that refuses ambiguous
//! HTTP/1 before it is parsed; then hyper serves it. Each connection is one task of a tracker, so that none outlives
//! [`serve`].

mod again;
mod listener;
mod refusal;
mod rest;
mod seats;
mod stall;
mod strict;
mod tls;

use sandstorm_provider::Tasks;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use again::Again;
pub use listener::Listener;
use listener::{Accepted, Stream};
use refusal::Refusals;
use rest::{Patience, Places};
use seats::Seats;
use stall::StallGuard;
use strict::StrictHttp;
pub use tls::Tls;

/// Why serving could not begin or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    #[error("there is nothing to listen on")]
    NoListener,
    #[error("the certificate or its key cannot be used")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Bounds on connections. [`Default`] suits one machine.
#[derive(Debug, Clone, Copy)]
pub struct ServeLimits {
    /// Connections at once, of everybody and of one address. More are closed at once.
    pub connections: usize,
    pub connections_per_peer: usize,
    /// Longest time from the start of a connection, or the end of its last answer, to the end of the next head.
    pub head_time: Duration,
    /// Most bytes of a request's head, and most headers in it.
    pub head_bytes: usize,
    pub headers: usize,
    /// HTTP/2 requests at once on one connection.
    pub streams: u32,
    /// A client that takes nothing of what is sent to it for this long is cut off.
    pub write_stall: Duration,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: 8192,
            connections_per_peer: 4096,
            head_time: Duration::from_secs(30),
            head_bytes: 64 << 10,
            headers: 100,
            streams: 256,
            write_stall: Duration::from_secs(120),
        }
    }
}

/// How to serve.
#[derive(Debug, Clone, Default)]
pub struct ServeOptions {
    pub limits: ServeLimits,
    /// For TCP listeners; Unix sockets never leave the machine.
    pub tls: Option<Tls>,
}

/// Serves `router` until `shutdown` resolves, then lets connections finish for as long as that says and cuts the rest.
pub async fn serve(
    listeners: Vec<Listener>,
    router: Router,
    options: ServeOptions,
    shutdown: impl Future<Output = Duration> + Send,
) -> Result<(), ServeError> {
    if listeners.is_empty() {
        return Err(ServeError::NoListener);
    }
    let ServeOptions { limits, tls } = options;
    let server = Arc::new(Server {
        router,
        limits,
        acceptor: tls.map(|tls| TlsAcceptor::from(tls.config())),
        refusals: Refusals::new(),
        places: Places::new(),
        seats: Seats::new(limits.connections, limits.connections_per_peer),
        stopping: CancellationToken::new(),
        connections: Tasks::default(),
    });
    let accepting = Tasks::default();
    for listener in listeners {
        accepting.start("accept", accept(listener, Arc::clone(&server)));
    }
    let grace = shutdown.await;
    accepting.stop().await;
    server.stopping.cancel();
    if tokio::time::timeout(grace, server.connections.finished()).await.is_err() {
        tracing::warn!("connections were cut because they did not finish in time");
    }
    server.connections.stop().await;
    Ok(())
}

struct Server {
    router: Router,
    limits: ServeLimits,
    acceptor: Option<TlsAcceptor>,
    refusals: Refusals,
    places: Places,
    seats: Seats,
    stopping: CancellationToken,
    connections: Tasks,
}

async fn accept(listener: Listener, server: Arc<Server>) {
    loop {
        let Accepted { stream, peer } = match listener.accept().await {
            Ok(Some(accepted)) => accepted,
            Ok(None) => continue,
            // The client was faster than we were: its own matter.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                // Out of descriptors, mostly: trying again at once would burn a processor.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Some(seat) = server.seats.take(peer) else {
            metrics::counter!("sandstorm_http_connections_refused_total").increment(1);
            continue;
        };
        let here = Arc::clone(&server);
        server.connections.start("connection", async move {
            let served = match (stream, &here.acceptor) {
                (Stream::Tcp(stream), Some(acceptor)) => {
                    match handshake(acceptor, stream, &here.limits).await {
                        Ok(stream) => here.connection(stream).await,
                        Err(error) => Err(error.into()),
                    }
                }
                (Stream::Tcp(stream), None) => here.connection(stream).await,
                (Stream::Unix(stream), _) => here.connection(stream).await,
            };
            if let Err(error) = served {
                tracing::debug!(error, "a connection ended");
            }
            drop(seat);
        });
    }
}

async fn handshake(
    acceptor: &TlsAcceptor,
    stream: tokio::net::TcpStream,
    limits: &ServeLimits,
) -> io::Result<tokio_rustls::server::TlsStream<tokio::net::TcpStream>> {
    let shaken = tokio::time::timeout(limits.head_time, acceptor.accept(stream)).await;
    shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

impl Server {
    /// The router's answer. What it leaves of the body is read beside it.
    async fn answer(
        &self,
        request: Request<Incoming>,
        patience: &Arc<Patience>,
    ) -> Result<Response, Infallible> {
        let (request, rest) = rest::lend(request);
        let mut response = self.router.clone().oneshot(request).await?;
        let reading = rest.and_then(|rest| rest.beside(&mut response, patience, &self.places));
        if let Some(reading) = reading {
            let stopping = self.stopping.clone();
            self.connections.start("rest of a body", async move {
                tokio::select! {
                    () = reading => {}
                    () = stopping.cancelled() => {}
                }
            });
        }
        Ok(response)
    }

    async fn connection(
        self: &Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let limits = &self.limits;
        let upgraded = Arc::new(AtomicBool::new(false));
        let stream = StallGuard::new(stream, limits.write_stall);
        let stream = StrictHttp::new(stream, limits, self.refusals.clone(), Arc::clone(&upgraded));
        let (server, patience) = (Arc::clone(self), Arc::new(Patience::new()));
        let service = service_fn(move |request: Request<Incoming>| {
            let refused = server.refusals.answer(request.headers());
            let (server, patience, upgraded) =
                (Arc::clone(&server), Arc::clone(&patience), Arc::clone(&upgraded));
            async move {
                let response = match refused {
                    Some(response) => response,
                    None => server.answer(request, &patience).await?,
                };
                if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    upgraded.store(true, Ordering::Release);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let builder = builder(limits);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let connection = pin!(connection);
        let mut connection = Again::new(connection);
        tokio::select! {
            served = &mut connection => return served,
            () = self.stopping.cancelled() => connection.get_mut().as_mut().graceful_shutdown(),
        }
        connection.await
    }
}

fn builder(limits: &ServeLimits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_headers(limits.headers)
        .max_buf_size(limits.head_bytes + (64 << 10))
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(256)
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(1 << 20)
        .max_send_buf_size(256 << 10)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}
