//! Telemetry as a whole, set up for a closure instead of the process, with a collector that speaks gRPC over HTTP/2.

mod receiver;

use std::io;
use std::time::Instant;

use opentelemetry_proto::tonic::metrics::v1::metric;
use tracing_subscriber::fmt::MakeWriter;

use self::receiver::Receiver;
use super::*;
use crate::config::{LogFormat, Otlp};
use crate::{current_traceparent, extract};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Lines that were written, for tests to read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Captured {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        self.clone()
    }
}

/// What `work` logs under a configuration.
pub(crate) fn logged(config: TelemetryConfig, work: impl FnOnce()) -> String {
    let captured = Captured::default();
    let parts = Parts::new(config, captured.clone()).unwrap();
    tracing::dispatcher::with_default(&parts.dispatch, work);
    captured.text()
}

/// How long anything may take that has to happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `work` under telemetry that sends to `endpoint`; gives what it logged and whether all of it was sent. However busy
/// the machine is, a collector that listens gets it.
fn sending(endpoint: &str, sample_ratio: f64, work: impl FnOnce(&Telemetry)) -> (String, bool) {
    sending_within(PATIENCE, endpoint, sample_ratio, work)
}

fn sending_within(
    patience: Duration,
    endpoint: &str,
    sample_ratio: f64,
    work: impl FnOnce(&Telemetry),
) -> (String, bool) {
    let headers = vec![("authorization".to_owned(), "Bearer hunter2".to_owned())];
    let otlp = Otlp { endpoint: endpoint.to_owned(), headers, sample_ratio };
    let config =
        TelemetryConfig { otlp: Some(otlp), log_format: LogFormat::Json, ..TelemetryConfig::default() };
    let captured = Captured::default();
    let parts = Parts::new(config, captured.clone()).unwrap();
    let (dispatch, recorder) = (parts.dispatch, parts.recorder);
    let telemetry = Telemetry::with(parts.work, Some(dispatch.clone())).unwrap();
    metrics::with_local_recorder(&recorder, || {
        tracing::dispatcher::with_default(&dispatch, || work(&telemetry));
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let worker = telemetry.worker.lock().unwrap().take().unwrap();
    let in_time = runtime.block_on(worker.finish(patience));
    (captured.text(), in_time)
}

fn parent(traceparent: &str) -> crate::TraceParent {
    let value = traceparent.parse().unwrap();
    extract(&http::HeaderMap::from_iter([(http::header::HeaderName::from_static("traceparent"), value)]))
        .unwrap()
}

#[test]
fn a_trace_reaches_the_collector_under_its_callers_span() {
    let receiver = Receiver::start();
    let mut inside = None;
    let (logs, in_time) = sending(&receiver.endpoint(), 1.0, |_| {
        let request = tracing::info_span!(
            "request",
            otel.name = "POST /v1/runs",
            otel.kind = "server",
            request_id = "r1"
        );
        parent(PARENT).adopt(&request);
        let _request = request.entered();
        tracing::info_span!("run").in_scope(|| inside = current_traceparent());
        tracing::info_span!(target: "h2", "chatter").in_scope(|| {});
        metrics::counter!("sandstorm_runs_total").increment(2);
    });
    assert!(in_time, "{logs}");

    let spans = receiver.spans();
    let find = |name: &str| {
        spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name}: {spans:?}"))
    };
    let (request, run) = (find("POST /v1/runs"), find("run"));
    assert_eq!(spans.len(), 2, "{spans:?}");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&request.trace_id), &PARENT[3..35]);
    assert_eq!(hex(&request.parent_span_id), &PARENT[36..52]);
    assert_eq!((&run.trace_id, &run.parent_span_id), (&request.trace_id, &request.span_id));
    assert!(request.attributes.iter().any(|attribute| attribute.key == "request_id"));
    assert_eq!(inside, Some(format!("00-{}-{}-01", &PARENT[3..35], hex(&run.span_id))));

    assert_eq!(receiver.authorization(), ["Bearer hunter2"]);
    let metrics = receiver.metrics();
    let counted = metrics.iter().find(|metric| metric.name == "sandstorm_runs_total").unwrap();
    assert!(matches!(&counted.data, Some(metric::Data::Sum(sum)) if sum.is_monotonic));
    assert!(metrics.iter().any(|metric| metric.name == "process_resident_memory_bytes"));
    assert!(!logs.contains("hunter2") && !logs.contains("does not reach"), "{logs}");
}

#[test]
fn a_flood_of_spans_leaves_in_full_batches() {
    let receiver = Receiver::start();
    let (logs, in_time) = sending(&receiver.endpoint(), 1.0, |telemetry| {
        let start = Instant::now();
        for sent in 1..=3_000 {
            tracing::info_span!("one of many").in_scope(|| {});
            // Paced, so that the queue never overflows; a batch a second would take six.
            if sent % 500 == 0 {
                while receiver.spans().len() + 1_000 < sent {
                    assert!(start.elapsed() < Duration::from_secs(120), "{}", telemetry.render());
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
    });
    assert!(in_time, "{logs}");
    assert_eq!(receiver.spans().len(), 3_000);
    // The exporter looks whether it has enough before it takes the next, so one more may be in it.
    assert!((512..=513).contains(&receiver.largest_batch()), "{}", receiver.largest_batch());
}

#[test]
fn the_caller_decides_whether_its_trace_is_recorded() {
    let receiver = Receiver::start();
    let (_, in_time) = sending(&receiver.endpoint(), 0.0, |_| {
        tracing::info_span!("ours").in_scope(|| {});
        let followed = tracing::info_span!("followed");
        parent(PARENT).adopt(&followed);
        followed.in_scope(|| {});
        let unwanted = tracing::info_span!("unwanted");
        parent(&PARENT.replace("-01", "-00")).adopt(&unwanted);
        let seen = unwanted.in_scope(current_traceparent).unwrap();
        assert!(seen.starts_with(&PARENT[..36]) && seen.ends_with("-00"), "{seen}");
    });
    assert!(in_time);
    let names: Vec<_> = receiver.spans().into_iter().map(|span| span.name).collect();
    assert_eq!(names, ["followed"]);
}

#[test]
fn a_collector_that_is_gone_costs_nobody_anything() {
    // Taken, so that nobody else listens there, and never listened on: it refuses.
    let taken = tokio::net::TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let endpoint = format!("http://{}", taken.local_addr().unwrap());
    let start = Instant::now();
    let mut made = Duration::ZERO;
    let mut rendered = String::new();
    let (logs, _) = sending(&endpoint, 1.0, |telemetry| {
        for _ in 0..10_000 {
            tracing::info_span!("request").in_scope(|| {});
        }
        made = start.elapsed();
        // Until the worker has tried once.
        while !telemetry.render().contains("sandstorm_telemetry_exports_failed_total 1") {
            assert!(start.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(20));
        }
        rendered = telemetry.render();
    });
    // Generous for a debug build on a busy machine; waiting for a connection even once in a hundred would take longer.
    assert!(made < Duration::from_secs(30), "{made:?}");
    assert!(start.elapsed() < 2 * PATIENCE);
    let warnings =
        logs.lines().filter(|line| line.contains("telemetry does not reach the collector")).count();
    assert_eq!(warnings, 1, "{logs}");
    let lost =
        rendered.lines().find_map(|line| line.strip_prefix("sandstorm_telemetry_spans_lost_total ")).unwrap();
    assert!(lost.parse::<u64>().unwrap() > 0, "{rendered}");
    assert!(!logs.contains("hunter2"), "{logs}");
}

#[test]
fn a_collector_that_hangs_does_not_keep_the_server_from_stopping() {
    // Accepts by its backlog, and never says a word.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let mut begun = Instant::now();
    let (_, in_time) = sending_within(SHUTDOWN, &endpoint, 1.0, |_| {
        tracing::info_span!("request").in_scope(|| {});
        begun = Instant::now();
    });
    assert!(!in_time);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

#[test]
fn where_tls_is_asked_for_nothing_goes_without_it() {
    let receiver = Receiver::start();
    let (logs, _) = sending(&receiver.endpoint().replace("http://", "https://"), 1.0, |_| {
        tracing::info_span!("request").in_scope(|| {});
    });
    assert!(logs.contains("telemetry does not reach the collector"), "{logs}");
    assert!(receiver.spans().is_empty() && receiver.authorization().is_empty());
}

#[test]
fn metrics_are_prometheus_text() {
    let parts = Parts::new(TelemetryConfig::default(), Captured::default()).unwrap();
    metrics::with_local_recorder(&parts.recorder, || {
        metrics::describe_histogram!("sandstorm_request_seconds", "Time of a request.");
        metrics::histogram!("sandstorm_request_seconds", "route" => "/v1/runs/{id}").record(0.3);
        metrics::gauge!("sandstorm_sandboxes_ready").set(2);
    });
    let telemetry = Telemetry::with(parts.work, None).unwrap();
    let text = telemetry.render();
    for line in [
        "# TYPE sandstorm_request_seconds histogram",
        "sandstorm_request_seconds_bucket{route=\"/v1/runs/{id}\",le=\"0.0001\"} 0",
        "sandstorm_request_seconds_bucket{route=\"/v1/runs/{id}\",le=\"60\"} 1",
        "sandstorm_sandboxes_ready 2",
        concat!("sandstorm_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        "# TYPE process_resident_memory_bytes gauge",
        "# TYPE process_open_fds gauge",
        "# TYPE sandstorm_uptime_seconds gauge",
        "sandstorm_telemetry_spans_lost_total 0",
    ] {
        assert!(text.lines().any(|given| given == line), "{line} is missing in\n{text}");
    }
    crate::metrics::to_otlp(&text, std::time::SystemTime::now(), Vec::new()).unwrap();
    assert_eq!(telemetry.renderer()().lines().count(), text.lines().count());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let stopped = || runtime.block_on(telemetry.shutdown());
    assert!(stopped() && stopped());
}
