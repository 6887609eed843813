//! Logs, traces and metrics of a server.
//!
//! [`Telemetry::start`] sets up all three for the process: lines on standard error, metrics in Prometheus' text form, and
//! both traces and metrics to an OpenTelemetry collector where one is configured. Code elsewhere knows the facades
//! alone, `tracing` and `metrics`, and the W3C trace context of this crate. Nothing here ever waits for a collector on
//! behalf of a request: queues are bounded, what does not fit is dropped, counted and said once a minute.

mod collector;
mod config;
mod context;
mod logs;
mod metrics;
mod telemetry;
mod traces;
mod worker;

pub use config::{LogFormat, Otlp, TelemetryConfig, TelemetryError};
pub use context::{TraceParent, current_traceparent, extract, inject, traceparent_of};
pub use telemetry::Telemetry;
