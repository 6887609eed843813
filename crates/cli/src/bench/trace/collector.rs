//! A collector as small as it can be: it takes spans by OTLP over gRPC and keeps them.

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::sync::oneshot;

/// More than a batch ever has.
const LARGEST_BATCH: usize = 16 << 20;

/// A span that has ended; moments in nanoseconds since 1970.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SpanRecord {
    pub(super) trace: [u8; 16],
    pub(super) id: [u8; 8],
    pub(super) parent: [u8; 8],
    pub(super) name: String,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl SpanRecord {
    fn of(span: Span) -> Option<Self> {
        Some(Self {
            trace: span.trace_id.try_into().ok()?,
            id: span.span_id.try_into().ok()?,
            // The first of a trace has none.
            parent: span.parent_span_id.try_into().unwrap_or_default(),
            name: span.name,
            start: span.start_time_unix_nano,
            end: span.end_time_unix_nano,
        })
    }
}

type Kept = Arc<Mutex<Vec<SpanRecord>>>;

#[derive(Debug)]
pub(super) struct Collector {
    address: SocketAddr,
    kept: Kept,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    pub(super) fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no port for the spans of the server")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let kept = Kept::default();
        let app = Router::new().fallback(take).with_state(Arc::clone(&kept));
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
                tokio::select! {
                    _ = async { axum::serve(listener, app).await } => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { address, kept, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What came so far.
    pub(super) fn spans(&self) -> Vec<SpanRecord> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        drop(self.stop.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Takes any export. Metrics come too, and are thanked for.
async fn take(State(kept): State<Kept>, request: Request) -> Response {
    let traces = request.uri().path().ends_with("TraceService/Export");
    let Ok(body) = axum::body::to_bytes(request.into_body(), LARGEST_BATCH).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    if traces {
        // One message: a byte that says that it is not compressed, four of length, itself.
        let Some(Ok(export)) = body.get(5..).map(ExportTraceServiceRequest::decode) else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        let scopes = export.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        let spans = scopes.flat_map(|scope| scope.spans).filter_map(SpanRecord::of);
        kept.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
    }
    let trailers = HeaderMap::from_iter([(
        "grpc-status".parse().expect("it is a good name"),
        HeaderValue::from_static("0"),
    )]);
    let trailers = std::future::ready(Some(Ok::<_, std::convert::Infallible>(trailers)));
    let empty = Full::new(Bytes::from_static(&[0; 5])).with_trailers(trailers);
    ([("content-type", "application/grpc")], Body::new(empty)).into_response()
}
