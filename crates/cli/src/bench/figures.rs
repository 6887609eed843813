//! Everything that one bench measured.

use serde::Serialize;

use super::density::Density;
use super::load::{Burst, Load};
use super::rounds::Case;
use super::samples::Summary;
use super::starts::Starts;

#[derive(Debug, Default, Serialize)]
pub(super) struct Figures {
    pub(super) rows: Vec<Row>,
    pub(super) throughput: Vec<Throughput>,
    pub(super) burst_create: Option<Burst>,
    pub(super) burst_run: Option<Burst>,
    pub(super) memory: Vec<Memory>,
    pub(super) density: Option<Density>,
    pub(super) server: Option<Starts>,
    /// What the server itself counted meanwhile: how often a sandbox was ready, how programs were started.
    pub(super) counters: Vec<(String, f64)>,
    /// Parts of ours that could not be measured.
    pub(super) failures: Vec<String>,
}

/// One case.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) ours: bool,
    pub(super) latency_ms: Option<Summary>,
    pub(super) cpu_ms: Option<f64>,
    pub(super) error: Option<String>,
    pub(super) skipped: Option<String>,
    pub(super) samples_ms: Vec<f64>,
}

/// Ours and bubblewrap's, with the same number of clients.
#[derive(Debug, Serialize)]
pub(super) struct Throughput {
    pub(super) clients: usize,
    pub(super) ours: Load,
    /// Why it is missing, where it is.
    pub(super) bwrap: Result<Load, String>,
}

/// Of one program that waits for its input, and of all that runs because of it.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) mib: Option<f64>,
    pub(super) error: Option<String>,
}

impl Figures {
    pub(super) fn add(&mut self, case: Case) {
        if case.ours
            && let Some(error) = &case.error
        {
            self.failures.push(format!("{}: {error}", case.title));
        }
        self.rows.push(Row {
            cpu_ms: case.cpu_ms(),
            latency_ms: case.samples.summary(),
            samples_ms: case.samples.values(),
            name: case.name,
            title: case.title,
            ours: case.ours,
            error: case.error,
            skipped: case.skipped,
        });
    }

    pub(super) fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    pub(super) fn latency(&self, name: &str) -> Option<Summary> {
        self.row(name)?.latency_ms
    }
}
