//! Many idle Python sandboxes, each with a living interpreter.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;

use super::machine;
use super::ours::{new_context, new_sandbox};
use super::progress;
use super::samples::Samples;
use super::server::Server;

const CLIENTS: usize = 4;
/// How long kernel and server have to come to rest before memory is read.
const REST: Duration = Duration::from_secs(2);

#[derive(Debug, Serialize)]
pub(super) struct Density {
    pub(super) sandboxes: usize,
    pub(super) processes: usize,
    /// Of all their processes, pages that they share counted once.
    pub(super) pss_mib_each: f64,
    /// What the machine has less, kernel memory and the server's own share included.
    pub(super) available_mib_each: f64,
    pub(super) slab_mib_each: f64,
    pub(super) server_mib_more: f64,
    pub(super) seconds_to_make: f64,
    pub(super) list_ms: f64,
    pub(super) cell_ms: f64,
    pub(super) seconds_to_end: f64,
}

pub(super) fn measure(server: &Server, folder: &Path, count: usize) -> anyhow::Result<Density> {
    std::thread::sleep(REST);
    let before = Look::take(server, folder)?;
    let began = Instant::now();
    let made = make(server, count)?;
    let seconds_to_make = began.elapsed().as_secs_f64();
    std::thread::sleep(REST);
    let after = Look::take(server, folder)?;
    let ours: BTreeSet<i32> = after.processes.difference(&before.processes).copied().collect();
    let memory = machine::proportional_memory(&ours);
    let mut connection = server.connect()?;
    let (mut lists, mut cells) = (Samples::default(), Samples::default());
    let list = server.request("GET", "/v1/sandboxes?limit=100", &Value::Null);
    for (_, context) in made.iter().take(50) {
        let began = Instant::now();
        connection.send(&list)?.good()?;
        lists.add(began.elapsed());
        let cell =
            server.request("POST", &format!("{context}/execute"), &serde_json::json!({"code": "print(1)"}));
        cells.add(super::ours::timed(&mut connection, &cell, super::language::RESULT)?);
    }
    let began = Instant::now();
    for (sandbox, _) in &made {
        connection.send(&server.request("DELETE", sandbox, &Value::Null))?.good()?;
    }
    let each = |bytes: u64| mebibytes(bytes) / count as f64;
    Ok(Density {
        sandboxes: count,
        processes: ours.len(),
        pss_mib_each: each(memory),
        available_mib_each: each(before.available.saturating_sub(after.available)),
        slab_mib_each: each(after.slab.saturating_sub(before.slab)),
        server_mib_more: mebibytes(after.server.saturating_sub(before.server)),
        seconds_to_make,
        list_ms: lists.summary().map_or(0.0, |summary| summary.p50),
        cell_ms: cells.summary().map_or(0.0, |summary| summary.p50),
        seconds_to_end: began.elapsed().as_secs_f64(),
    })
}

/// Paths of sandboxes and of their contexts.
fn make(server: &Server, count: usize) -> anyhow::Result<Vec<(String, String)>> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut connection = server.connect()?;
                    let mut made = Vec::new();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            return anyhow::Ok(made);
                        }
                        progress::tell(&format!("idle sandbox {} of {count}", number + 1));
                        let sandbox = new_sandbox(server, &mut connection)?;
                        let (context, _) = new_context(server, &mut connection, &sandbox)?;
                        made.push((sandbox, context));
                    }
                })
            })
            .collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))??);
        }
        Ok(all)
    })
}

/// The machine at one moment.
struct Look {
    processes: BTreeSet<i32>,
    available: u64,
    slab: u64,
    server: u64,
}

impl Look {
    fn take(server: &Server, folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            processes: machine::family(folder),
            available: machine::memory_figure("MemAvailable")?,
            slab: machine::memory_figure("Slab")?,
            server: machine::resident_memory(server.pid()).context("the server's memory")?,
        })
    }
}

pub(super) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
