//! Setting everything up for a process, and taking it down.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusRecorder;
use tracing::Dispatch;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

use crate::collector::Address;
use crate::config::{TelemetryConfig, TelemetryError};
use crate::metrics::{self as numbers, Numbers, Process};
use crate::worker::{Outlet, Work, Worker};
use crate::{logs, traces};

/// What the last spans and metrics may take to leave.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// Logs, traces and metrics of this process.
pub struct Telemetry {
    numbers: Numbers,
    worker: Mutex<Option<Worker>>,
}

impl Telemetry {
    /// Sets up logs, traces and metrics for the whole process; once. Starts one thread, so a process forks, and changes
    /// its user, before it calls this. A collector that cannot be reached is no error.
    pub fn start(config: TelemetryConfig) -> Result<Self, TelemetryError> {
        let parts = Parts::new(config, std::io::stderr)?;
        tracing::dispatcher::set_global_default(parts.dispatch)
            .map_err(|_| TelemetryError::AlreadyStarted)?;
        metrics::set_global_recorder(parts.recorder).map_err(|_| TelemetryError::AlreadyStarted)?;
        Self::with(parts.work, None)
    }

    fn with(work: Work, dispatch: Option<Dispatch>) -> Result<Self, TelemetryError> {
        let numbers = work.numbers.clone();
        let worker = Worker::start(work, dispatch).map_err(TelemetryError::Thread)?;
        Ok(Telemetry { numbers, worker: Mutex::new(Some(worker)) })
    }

    /// All metrics in Prometheus' text form.
    pub fn render(&self) -> String {
        self.numbers.render()
    }

    /// The same as a function that can be handed on.
    pub fn renderer(&self) -> impl Fn() -> String + Clone + Send + Sync + 'static {
        let numbers = self.numbers.clone();
        move || numbers.render()
    }

    /// Sends what is left and stops sending; takes 2 s at most. Says whether all of it was handled in time. Logs and
    /// metrics go on; calling it again does nothing. Dropping the future leaves the rest to its thread.
    pub async fn shutdown(&self) -> bool {
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        match worker {
            Some(worker) => worker.finish(SHUTDOWN).await,
            None => true,
        }
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

/// Everything made, nothing installed.
struct Parts {
    dispatch: Dispatch,
    recorder: PrometheusRecorder,
    work: Work,
}

impl Parts {
    fn new<W>(config: TelemetryConfig, writer: W) -> Result<Self, TelemetryError>
    where
        W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
    {
        let losses = Arc::default();
        let mut layers: Vec<Box<dyn Layer<Registry> + Send + Sync>> = vec![logs::layer(&config, writer)];
        let mut outlet = None;
        if let Some(otlp) = &config.otlp {
            let address = Address::new(otlp)?;
            let (layer, spans) = traces::layer(&config, otlp.sample_ratio, &losses);
            layers.push(layer);
            outlet = Some(Outlet { address, spans });
        }
        let recorder = numbers::recorder();
        let numbers = Numbers { prometheus: recorder.handle(), process: Process::new(), losses };
        let work = Work { numbers, outlet, service_name: config.service_name };
        Ok(Parts { dispatch: Registry::default().with(layers).into(), recorder, work })
    }
}

#[cfg(test)]
pub(crate) mod tests;
