//! Traces and metrics that a server sends.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::secret::SecretRef;

/// Traces and metrics of a server over OpenTelemetry's protocol. Metrics for Prometheus are at `/metrics` in any case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// The collector that takes OTLP over gRPC. Not set: nothing is sent.
    #[schemars(example = &"http://127.0.0.1:4317")]
    pub otlp_endpoint: Option<String>,
    /// Headers for the collector by name. Each value is a reference to a secret, `env:NAME` or `file:/path`.
    #[schemars(example = headers())]
    pub otlp_headers: BTreeMap<String, SecretRef>,
    /// The name of this server among others.
    pub service_name: String,
    /// The share of requests that are traced, from `0` to `1`. A request that is part of a caller's trace follows the
    /// caller's choice.
    pub sample_ratio: f64,
}

impl Default for Telemetry {
    fn default() -> Self {
        Telemetry {
            otlp_endpoint: None,
            otlp_headers: BTreeMap::new(),
            service_name: "sandstorm".to_owned(),
            sample_ratio: 1.0,
        }
    }
}

fn headers() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([("authorization", "file:/etc/sandstorm/collector.token")])
}
