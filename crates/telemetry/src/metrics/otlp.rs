//! Metrics as OTLP carries them: cumulative since the start of the server.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::exposition::{Family, Kind, Sample, parse};

/// The metrics of a text. An error names the line that is at fault; our own text has none.
pub(crate) fn to_otlp(
    text: &str,
    since: SystemTime,
    resource: Vec<KeyValue>,
) -> Result<ResourceMetrics, String> {
    let span = Span { start: nanos(since), end: nanos(SystemTime::now()) };
    let metrics = parse(text)?.iter().map(|family| span.metric(family)).collect();
    Ok(ResourceMetrics {
        resource: Some(Resource { attributes: resource, ..Resource::default() }),
        scope_metrics: vec![ScopeMetrics {
            scope: Some(InstrumentationScope {
                name: "sandstorm".to_owned(),
                ..InstrumentationScope::default()
            }),
            metrics,
            ..ScopeMetrics::default()
        }],
        ..ResourceMetrics::default()
    })
}

/// The time that the numbers cover.
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    end: u64,
}

impl Span {
    fn metric(self, family: &Family<'_>) -> Metric {
        let temporality = AggregationTemporality::Cumulative.into();
        let points = || family.samples.iter().map(|sample| self.point(sample)).collect();
        let data = match family.kind {
            Kind::Gauge => metric::Data::Gauge(Gauge { data_points: points() }),
            Kind::Counter => metric::Data::Sum(Sum {
                data_points: points(),
                aggregation_temporality: temporality,
                is_monotonic: true,
            }),
            Kind::Histogram => metric::Data::Histogram(Histogram {
                data_points: self.histograms(family),
                aggregation_temporality: temporality,
            }),
        };
        Metric {
            name: family.name.to_owned(),
            description: family.about.to_owned(),
            unit: unit(family.name).to_owned(),
            data: Some(data),
            ..Metric::default()
        }
    }

    fn point(self, sample: &Sample<'_>) -> NumberDataPoint {
        NumberDataPoint {
            attributes: attributes(&sample.labels),
            start_time_unix_nano: self.start,
            time_unix_nano: self.end,
            value: Some(number_data_point::Value::AsDouble(sample.value)),
            ..NumberDataPoint::default()
        }
    }

    /// Each series stands as a run of lines: its buckets, its sum, its count.
    fn histograms(self, family: &Family<'_>) -> Vec<HistogramDataPoint> {
        let mut points = Vec::new();
        let mut buckets: Vec<(f64, u64)> = Vec::new();
        let mut sum = 0.0;
        for sample in &family.samples {
            match &sample.name[family.name.len()..] {
                "_bucket" => {
                    let bound =
                        sample.labels.iter().find(|(name, _)| *name == "le").map(|(_, bound)| bound.as_str());
                    // Only the last bucket has a bound that is no number, and it is not written down.
                    let bound = bound.and_then(|bound| bound.parse().ok()).unwrap_or(f64::INFINITY);
                    buckets.push((bound, sample.value as u64));
                }
                "_sum" => sum = sample.value,
                _ => {
                    let below = std::iter::once(0).chain(buckets.iter().map(|(_, count)| *count));
                    let counts =
                        buckets.iter().zip(below).map(|((_, count), below)| count.saturating_sub(below));
                    points.push(HistogramDataPoint {
                        attributes: attributes(&sample.labels),
                        start_time_unix_nano: self.start,
                        time_unix_nano: self.end,
                        count: sample.value as u64,
                        sum: Some(sum),
                        bucket_counts: counts.collect(),
                        explicit_bounds: buckets
                            .iter()
                            .map(|(bound, _)| *bound)
                            .filter(|b| b.is_finite())
                            .collect(),
                        ..HistogramDataPoint::default()
                    });
                    buckets.clear();
                }
            }
        }
        points
    }
}

fn attributes(labels: &[(&str, String)]) -> Vec<KeyValue> {
    let text = |value: &String| AnyValue { value: Some(any_value::Value::StringValue(value.clone())) };
    let pairs = labels.iter().map(|(key, value)| KeyValue {
        key: (*key).to_owned(),
        value: Some(text(value)),
        ..KeyValue::default()
    });
    pairs.collect()
}

/// Names end with their unit; the standard has its own spelling of it.
fn unit(name: &str) -> &'static str {
    match name.strip_suffix("_total").unwrap_or(name) {
        name if name.ends_with("_seconds") => "s",
        name if name.ends_with("_bytes") => "By",
        _ => "1",
    }
}

fn nanos(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use metrics::{counter, gauge, histogram};

    use super::*;

    fn metric<'a>(all: &'a ResourceMetrics, name: &str) -> &'a metric::Data {
        let metric = all.scope_metrics[0].metrics.iter().find(|metric| metric.name == name);
        metric.and_then(|metric| metric.data.as_ref()).unwrap_or_else(|| panic!("{name} is missing"))
    }

    #[test]
    fn what_was_counted_is_what_is_sent() {
        let recorder = crate::metrics::recorder();
        metrics::with_local_recorder(&recorder, || {
            counter!("sandstorm_runs_total", "status" => "a\"b\\c").increment(3);
            gauge!("sandstorm_sandboxes").set(7.5);
            for seconds in [0.0002, 0.0002, 3.0, 100.0] {
                histogram!("sandstorm_run_seconds", "language" => "python").record(seconds);
            }
            histogram!("sandstorm_run_seconds", "language" => "ruby").record(0.5);
            histogram!("sandstorm_upload_bytes").record(2048.0);
        });
        let all = to_otlp(&recorder.handle().render(), UNIX_EPOCH, Vec::new()).unwrap();

        let metric::Data::Sum(runs) = metric(&all, "sandstorm_runs_total") else { panic!() };
        assert!(runs.is_monotonic);
        assert_eq!(runs.data_points[0].value, Some(number_data_point::Value::AsDouble(3.0)));
        let label = runs.data_points[0].attributes[0].value.clone().unwrap().value;
        assert_eq!(label, Some(any_value::Value::StringValue("a\"b\\c".to_owned())));
        let metric::Data::Gauge(living) = metric(&all, "sandstorm_sandboxes") else { panic!() };
        assert_eq!(living.data_points[0].value, Some(number_data_point::Value::AsDouble(7.5)));

        let metric::Data::Histogram(times) = metric(&all, "sandstorm_run_seconds") else { panic!() };
        assert_eq!(times.data_points.len(), 2);
        let python = times.data_points.iter().find(|point| point.count == 4).unwrap();
        assert_eq!(python.explicit_bounds, super::super::SECONDS);
        assert_eq!(python.bucket_counts.len(), python.explicit_bounds.len() + 1);
        assert_eq!(python.bucket_counts.iter().sum::<u64>(), 4);
        let at = |bound: f64| python.explicit_bounds.iter().position(|b| *b == bound).unwrap();
        assert_eq!(python.bucket_counts[at(0.00025)], 2);
        assert_eq!(python.bucket_counts[at(5.0)], 1);
        assert_eq!(python.bucket_counts.last(), Some(&1));
        assert!((python.sum.unwrap() - 103.0004).abs() < 1e-9);
        assert_eq!(python.attributes.len(), 1, "the bound is no attribute");
        let metric::Data::Histogram(sizes) = metric(&all, "sandstorm_upload_bytes") else { panic!() };
        assert_eq!(sizes.data_points[0].explicit_bounds, super::super::BYTES);
    }
}
