//! What a server costs that has nothing to do: how soon it answers, and what it holds.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use super::density::mebibytes;
use super::machine;
use super::place::Place;
use super::samples::{Samples, Summary};
use super::server::Server;

#[derive(Debug, Serialize)]
pub(super) struct Starts {
    /// From its start until it said that it answers, each time on a new state directory.
    pub(super) ready_ms: Summary,
    /// Of the server alone, shared pages counted whole: the median after two idle seconds.
    pub(super) resident_mib: f64,
    /// Of the server and everything that it started, shared pages counted once.
    pub(super) tree_mib: f64,
}

pub(super) fn measure(binary: &Path, place: &Place, count: usize) -> anyhow::Result<Starts> {
    let (mut ready, mut resident, mut tree) = (Samples::default(), Vec::new(), Vec::new());
    for number in 0..count {
        let server = Server::start(binary, place.path().join(format!("start-{number}")), &[])?;
        ready.add(server.ready);
        std::thread::sleep(Duration::from_secs(2));
        resident.push(mebibytes(machine::resident_memory(server.pid())?));
        tree.push(mebibytes(machine::proportional_memory(&machine::family(place.path()))));
        server.stop()?;
    }
    let median = |values: Vec<f64>| {
        values.into_iter().collect::<Samples>().summary().map_or(0.0, |summary| summary.p50)
    };
    Ok(Starts {
        ready_ms: ready.summary().unwrap_or_default(),
        resident_mib: median(resident),
        tree_mib: median(tree),
    })
}
