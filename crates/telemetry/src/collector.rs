//! The connection to a collector: OTLP over gRPC, in the worker's thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::metrics::v1::ResourceMetrics;
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};

use crate::config::{Otlp, TelemetryError};
use crate::traces::Losses;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Waits before each further attempt; then the batch is given up.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3)];
const WARN_EVERY: Duration = Duration::from_secs(60);

/// A collector's address, checked, and what to send along.
#[derive(Debug)]
pub(crate) struct Address {
    endpoint: Endpoint,
    headers: MetadataMap,
}

impl Address {
    pub(crate) fn new(otlp: &Otlp) -> Result<Self, TelemetryError> {
        let mut endpoint = Endpoint::from_shared(otlp.endpoint.clone())
            .map_err(TelemetryError::Endpoint)?
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(EXPORT_TIMEOUT);
        if endpoint.uri().scheme() == Some(&http::uri::Scheme::HTTPS) {
            let tls = ClientTlsConfig::new().with_native_roots();
            endpoint = endpoint.tls_config(tls).map_err(TelemetryError::Endpoint)?;
        }
        let mut headers = MetadataMap::new();
        for (name, value) in &otlp.headers {
            let wrong = || TelemetryError::Header(name.clone());
            let key = AsciiMetadataKey::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            let mut value = AsciiMetadataValue::try_from(value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            headers.insert(key, value);
        }
        Ok(Address { endpoint, headers })
    }

    /// Connects when there is something to send. Needs the runtime that will drive the connection.
    pub(crate) fn collector(self, losses: Arc<Losses>) -> Collector {
        Collector { channel: self.endpoint.connect_lazy(), headers: self.headers, losses, warned: None }
    }
}

pub(crate) struct Collector {
    channel: Channel,
    headers: MetadataMap,
    losses: Arc<Losses>,
    warned: Option<Instant>,
}

impl Collector {
    /// Sends a batch. One that the collector does not take is dropped and counted.
    pub(crate) async fn send_spans(&mut self, spans: Vec<ResourceSpans>, retry: bool) {
        let count: usize =
            spans.iter().flat_map(|spans| &spans.scope_spans).map(|scope| scope.spans.len()).sum();
        let request = ExportTraceServiceRequest { resource_spans: spans };
        let mut outcome = self.export_spans(request.clone()).await;
        for pause in PAUSES.into_iter().filter(|_| retry) {
            match &outcome {
                Err(status) if is_passing(status) => tokio::time::sleep(pause).await,
                _ => break,
            }
            outcome = self.export_spans(request.clone()).await;
        }
        match outcome {
            Ok(0) => {}
            Ok(refused) => self.failed(refused, "the collector refused some spans"),
            Err(status) => self.failed(count as u64, &describe(&status)),
        }
    }

    async fn export_spans(&self, request: ExportTraceServiceRequest) -> Result<u64, Status> {
        let answer = TraceServiceClient::new(self.channel.clone()).export(self.request(request)).await?;
        let refused = answer.into_inner().partial_success.map_or(0, |partial| partial.rejected_spans);
        Ok(refused.unsigned_abs())
    }

    /// Sends the metrics of now. The next ones hold these too, so nothing is retried.
    pub(crate) async fn send_metrics(&mut self, metrics: ResourceMetrics) {
        let request = self.request(ExportMetricsServiceRequest { resource_metrics: vec![metrics] });
        if let Err(status) = MetricsServiceClient::new(self.channel.clone()).export(request).await {
            self.failed(0, &describe(&status));
        }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.headers.clone();
        request
    }

    fn failed(&mut self, spans: u64, why: &str) {
        self.losses.spans.fetch_add(spans, Ordering::Relaxed);
        self.losses.exports.fetch_add(1, Ordering::Relaxed);
        if self.warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            self.warned = Some(Instant::now());
            let lost = self.losses.spans.load(Ordering::Relaxed);
            tracing::warn!(reason = why, spans_lost = lost, "telemetry does not reach the collector");
        }
    }
}

/// Whether the standard says to try again.
fn is_passing(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::ResourceExhausted
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
    )
}

/// The code, and for a failed connection its cause; a collector's own words could be of any length.
fn describe(status: &Status) -> String {
    let text: String = status.message().chars().filter(|c| !c.is_control()).take(200).collect();
    format!("{:?}: {text}", status.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn otlp(endpoint: &str, header: (&str, &str)) -> Otlp {
        let headers = vec![(header.0.to_owned(), header.1.to_owned())];
        Otlp { endpoint: endpoint.to_owned(), headers, sample_ratio: 1.0 }
    }

    #[test]
    fn bad_settings_are_refused_without_repeating_a_secret() {
        let fine = ("authorization", "Bearer hunter2");
        Address::new(&otlp("http://127.0.0.1:4317", fine)).unwrap();
        assert!(matches!(Address::new(&otlp("not an address", fine)), Err(TelemetryError::Endpoint(_))));
        let error = Address::new(&otlp("http://127.0.0.1:4317", ("a", "hunter2\n"))).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        assert!(Address::new(&otlp("http://127.0.0.1:4317", ("bad name", "x"))).is_err());
        let address = Address::new(&otlp("http://127.0.0.1:4317", fine)).unwrap();
        assert!(!format!("{address:?}").contains("hunter2"), "{address:?}");
    }
}
