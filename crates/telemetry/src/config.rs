//! What telemetry is made from, and why it may refuse to start.

use std::fmt;

/// How a server reports about itself.
#[derive(Debug, Clone)]
pub struct TelemetryConfig {
    pub log_format: LogFormat,
    /// The least important lines that are written.
    pub log_level: tracing::Level,
    /// Whether lines for people may be coloured; they are on a terminal only.
    pub colours: bool,
    /// The name of this server among others.
    pub service_name: String,
    /// The collector. `None`: nothing is sent.
    pub otlp: Option<Otlp>,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        TelemetryConfig {
            log_format: LogFormat::Pretty,
            log_level: tracing::Level::INFO,
            colours: true,
            service_name: "sandstorm".to_owned(),
            otlp: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Pretty,
    /// One JSON object a line, with the fields of the event and of the spans around it side by side.
    Json,
}

/// A collector that takes OTLP over gRPC.
#[derive(Clone)]
pub struct Otlp {
    /// `http://host:4317` or `https://…`.
    pub endpoint: String,
    /// Names in lower case with their values, which may be secrets.
    pub headers: Vec<(String, String)>,
    /// The share of traces without a caller's choice that are recorded, from 0 to 1.
    pub sample_ratio: f64,
}

impl fmt::Debug for Otlp {
    /// Header values stay out: they are credentials as a rule.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Otlp")
            .field("endpoint", &self.endpoint)
            .field("headers", &names)
            .field("sample_ratio", &self.sample_ratio)
            .finish()
    }
}

/// Why telemetry did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    #[error("logs or metrics of this process were set up before")]
    AlreadyStarted,
    #[error("the address of the collector cannot be used")]
    Endpoint(#[source] tonic::transport::Error),
    #[error("the header `{0}` for the collector is not one that HTTP allows")]
    Header(String),
    #[error("cannot start the thread that sends telemetry")]
    Thread(#[source] std::io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_header_value() {
        let otlp = Otlp {
            endpoint: "http://127.0.0.1:4317".to_owned(),
            headers: vec![("authorization".to_owned(), "hunter2".to_owned())],
            sample_ratio: 1.0,
        };
        let text = format!("{:?}", TelemetryConfig { otlp: Some(otlp), ..TelemetryConfig::default() });
        assert!(text.contains("authorization") && !text.contains("hunter2"), "{text}");
    }
}
