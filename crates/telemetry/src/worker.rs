//! The one thread of telemetry: it keeps the metrics small and sends what a collector should have.
//!
//! It has a runtime of its own, so that sending neither waits for the server's work nor holds it up, and the last spans
//! can be flushed when the server's runtime is gone.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::trace::SpanData;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::Dispatch;

use crate::collector::{Address, Collector};
use crate::metrics::{Numbers, to_otlp};
use crate::traces;

const BATCH: usize = 512;
/// How long a span may wait for others to fill a batch.
const BATCH_WAIT: Duration = Duration::from_secs(1);
/// Recorded durations lie in a growing list until they are counted into their buckets; that happens this often even
/// when nobody reads the metrics.
const UPKEEP: Duration = Duration::from_secs(5);
const METRICS_EVERY: Duration = Duration::from_secs(30);
/// What a batch that is under way may still take once the server stops.
const LAST_SEND: Duration = Duration::from_secs(1);

/// What the worker needs.
pub(crate) struct Work {
    pub(crate) numbers: Numbers,
    pub(crate) outlet: Option<Outlet>,
    pub(crate) service_name: String,
}

/// Where spans come from, and where they and the metrics go.
pub(crate) struct Outlet {
    pub(crate) address: Address,
    pub(crate) spans: mpsc::Receiver<SpanData>,
}

/// The running worker. Dropping it stops the thread without waiting.
#[derive(Debug)]
pub(crate) struct Worker {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

impl Worker {
    /// `dispatch` takes the worker's own log lines, where it is not the process's.
    pub(crate) fn start(work: Work, dispatch: Option<Dispatch>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let (alive, ended) = oneshot::channel::<()>();
        std::thread::Builder::new().name("telemetry".to_owned()).spawn(move || {
            let _own_lines = dispatch.as_ref().map(tracing::dispatcher::set_default);
            runtime.block_on(run(work, stopped));
            drop(alive);
        })?;
        Ok(Worker { stop, ended })
    }

    /// Sends what is left, for at most `patience`. Says whether it was done in time.
    pub(crate) async fn finish(self, patience: Duration) -> bool {
        let _ = self.stop.send(());
        // Nothing is ever sent: the other end is dropped when the thread is done.
        tokio::time::timeout(patience, self.ended).await.is_ok()
    }
}

async fn run(work: Work, mut stop: oneshot::Receiver<()>) {
    let Work { numbers, outlet, service_name } = work;
    let resource = ResourceAttributesWithSchema::from(&traces::resource(&service_name));
    let mut sender = None;
    let mut spans = None;
    if let Some(outlet) = outlet {
        let collector = outlet.address.collector(Arc::clone(&numbers.losses));
        sender = Some(Sender { collector, resource, numbers: numbers.clone(), batch: Vec::new() });
        spans = Some(outlet.spans);
    }
    let mut upkeep = ticks(UPKEEP);
    let mut report = ticks(METRICS_EVERY);
    let mut due = None;
    loop {
        let full = sender.as_ref().is_some_and(|sender| sender.batch.len() >= BATCH);
        tokio::select! {
            _ = &mut stop => break,
            _ = upkeep.tick() => numbers.prometheus.run_upkeep(),
            _ = report.tick(), if sender.is_some() => {
                let Some(sender) = &mut sender else { continue };
                if until(&mut stop, sender.send_metrics()).await { break }
            }
            span = next(&mut spans), if !full => {
                let (Some(span), Some(sender)) = (span, &mut sender) else { spans = None; continue };
                sender.batch.push(span);
                let now = Instant::now();
                due = Some(if sender.batch.len() >= BATCH { now } else { due.unwrap_or(now + BATCH_WAIT) });
            }
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                due = None;
                let Some(sender) = &mut sender else { continue };
                if until(&mut stop, sender.send_spans(true)).await { break }
            }
        }
    }
    if let Some(mut sender) = sender {
        while let Some(span) = spans.as_mut().and_then(|spans| spans.try_recv().ok()) {
            sender.batch.push(span);
            if sender.batch.len() >= BATCH {
                sender.send_spans(false).await;
            }
        }
        sender.send_spans(false).await;
        sender.send_metrics().await;
    }
}

/// Waits for `work`; once the server stops, for a moment longer. Says whether it stops.
async fn until(stop: &mut oneshot::Receiver<()>, work: impl Future<Output = ()>) -> bool {
    tokio::pin!(work);
    tokio::select! {
        () = &mut work => false,
        _ = stop => {
            let _ = tokio::time::timeout(LAST_SEND, work).await;
            true
        }
    }
}

async fn next(spans: &mut Option<mpsc::Receiver<SpanData>>) -> Option<SpanData> {
    match spans {
        Some(spans) => spans.recv().await,
        None => std::future::pending().await,
    }
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

struct Sender {
    collector: Collector,
    resource: ResourceAttributesWithSchema,
    numbers: Numbers,
    batch: Vec<SpanData>,
}

impl Sender {
    async fn send_spans(&mut self, retry: bool) {
        let batch = std::mem::take(&mut self.batch);
        if !batch.is_empty() {
            let spans = group_spans_by_resource_and_scope(batch, &self.resource);
            self.collector.send_spans(spans, retry).await;
        }
    }

    async fn send_metrics(&mut self) {
        let resource = self.resource.attributes.0.clone();
        match to_otlp(&self.numbers.render(), self.numbers.process.started_at, resource) {
            Ok(metrics) => self.collector.send_metrics(metrics).await,
            Err(line) => tracing::error!(line, "the metrics cannot be read back, and are not sent"),
        }
    }
}
