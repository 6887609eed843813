//! A collector for tests: real gRPC over HTTP/2, as far as OTLP needs it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

#[derive(Default)]
struct Received {
    spans: Vec<Span>,
    metrics: Vec<Metric>,
    authorization: Vec<String>,
    largest_batch: usize,
}

pub(super) struct Receiver {
    address: std::net::SocketAddr,
    received: Arc<Mutex<Received>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    pub(super) fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::<Mutex<Received>>::default();
        let (stop, stopped) = oneshot::channel();
        let kept = received.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, kept) => {}
                    _ = stopped => {}
                }
            });
        });
        Receiver { address, received, stop: Some(stop), thread: Some(thread) }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn spans(&self) -> Vec<Span> {
        self.received.lock().unwrap().spans.clone()
    }

    pub(super) fn metrics(&self) -> Vec<Metric> {
        self.received.lock().unwrap().metrics.clone()
    }

    pub(super) fn largest_batch(&self) -> usize {
        self.received.lock().unwrap().largest_batch
    }

    /// What came as credentials, each once.
    pub(super) fn authorization(&self) -> Vec<String> {
        let mut all = self.received.lock().unwrap().authorization.clone();
        all.dedup();
        all
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

async fn accept(listener: std::net::TcpListener, received: Arc<Mutex<Received>>) {
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let received = received.clone();
        connections.spawn(async move {
            let answer = service_fn(|request| answer(request, received.clone()));
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    received: Arc<Mutex<Received>>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let path = request.uri().path().to_owned();
    let authorization =
        request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let body = request.into_body().collect().await.unwrap().to_bytes();
    // One message: not compressed, its length, itself.
    assert_eq!(body[0], 0);
    assert_eq!(u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize, body.len() - 5);
    let message = body.slice(5..);
    {
        let mut received = received.lock().unwrap();
        received.authorization.extend(authorization);
        if path.ends_with("TraceService/Export") {
            let request = ExportTraceServiceRequest::decode(message).unwrap();
            let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
            let spans: Vec<_> = scopes.flat_map(|scope| scope.spans).collect();
            received.largest_batch = received.largest_batch.max(spans.len());
            received.spans.extend(spans);
        } else {
            let request = ExportMetricsServiceRequest::decode(message).unwrap();
            let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
            received.metrics.extend(scopes.flat_map(|scope| scope.metrics));
        }
    }
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
    let body = Full::new(Bytes::from_static(&[0; 5])).with_trailers(std::future::ready(Some(Ok(trailers))));
    Ok(Response::builder().header("content-type", "application/grpc").body(body).unwrap())
}
