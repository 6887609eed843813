//! Spans of the server on their way to a collector: recorded by the layer, queued here, sent by the worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, Span, SpanData, SpanProcessor};
use tokio::sync::mpsc;
use tracing::Level;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::registry::Registry;

use crate::config::TelemetryConfig;

/// Spans that may wait for the worker. At a few hundred bytes each this bounds what a stuck collector can cost.
const QUEUE: usize = 4_096;

/// What was not sent, for metrics.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    pub(crate) spans: AtomicU64,
    pub(crate) exports: AtomicU64,
}

/// Who this server is, as the collector sees it.
pub(crate) fn resource(service_name: &str) -> Resource {
    // Made from nothing: the usual builder reads the environment, where our settings do not come from.
    Resource::builder_empty()
        .with_attributes([
            KeyValue::new("service.name", service_name.to_owned()),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
            KeyValue::new("process.pid", i64::from(std::process::id())),
        ])
        .build()
}

/// The layer that records spans, and the end of the queue that the worker reads.
pub(crate) fn layer(
    config: &TelemetryConfig,
    sample_ratio: f64,
    losses: &Arc<Losses>,
) -> (Box<dyn Layer<Registry> + Send + Sync>, mpsc::Receiver<SpanData>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let provider = SdkTracerProvider::builder()
        .with_resource(resource(&config.service_name))
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(sample_ratio))))
        .with_span_processor(Queue { sender, losses: losses.clone() })
        .build();
    let level = config.log_level.max(Level::INFO);
    // Our own spans alone: libraries trace too, among them those that carry the spans away.
    let ours =
        filter_fn(move |metadata| metadata.target().starts_with("sandstorm") && *metadata.level() <= level);
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("sandstorm"))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(ours.with_max_level_hint(LevelFilter::from_level(level)))
        .boxed();
    (layer, receiver)
}

/// Hands ended spans to the worker, and never waits.
#[derive(Debug)]
struct Queue {
    sender: mpsc::Sender<SpanData>,
    losses: Arc<Losses>,
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.sender.try_send(span).is_err() {
            self.losses.spans.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Flushing and stopping are the worker's: it is told by `Telemetry`, which knows when.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
