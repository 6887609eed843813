//! Metrics: collected through the `metrics` facade, shown as Prometheus' text, sent as OTLP.
//!
//! There is one set of numbers. The text form is rendered from it, and what goes to a collector is read off that text,
//! so that both always say the same.

mod exposition;
mod otlp;
mod process;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

pub(crate) use otlp::to_otlp;
pub(crate) use process::Process;

use crate::traces::Losses;

/// From a tenth of a millisecond, a warm start, to a minute, a long run.
const SECONDS: [f64; 18] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0,
];
/// From 1 KiB to 16 GiB.
const BYTES: [f64; 13] = [
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
    1_073_741_824.0,
    4_294_967_296.0,
    17_179_869_184.0,
];

pub(crate) fn recorder() -> PrometheusRecorder {
    let builder = PrometheusBuilder::new();
    let builder = builder.set_buckets(&SECONDS).expect("the list of buckets is not empty");
    let bytes = Matcher::Suffix("_bytes".to_owned());
    builder.set_buckets_for_metric(bytes, &BYTES).expect("the list of buckets is not empty").build_recorder()
}

/// Everything that there is to say in numbers.
#[derive(Clone)]
pub(crate) struct Numbers {
    pub(crate) prometheus: PrometheusHandle,
    pub(crate) process: Process,
    pub(crate) losses: Arc<Losses>,
}

impl Numbers {
    pub(crate) fn render(&self) -> String {
        let mut text = self.prometheus.render();
        self.process.render(&mut text);
        for (name, about, value) in [
            ("spans_lost", "Spans that did not reach the collector.", &self.losses.spans),
            ("exports_failed", "Batches that the collector did not take.", &self.losses.exports),
        ] {
            let value = value.load(Ordering::Relaxed);
            process::line(&mut text, &format!("sandstorm_telemetry_{name}_total"), "counter", about, value);
        }
        text
    }
}
