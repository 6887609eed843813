//! Many at once: bursts, and loads that last.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;

use super::command::CommandLine;
use super::http::{Address, Connection, Request};
use super::language::{PRINTED, RESULT};
use super::machine::Clock;
use super::ours::path_of;
use super::samples::{Samples, Summary};

/// What a load came to.
#[derive(Debug, Serialize)]
pub(super) struct Load {
    pub(super) clients: usize,
    pub(super) seconds: f64,
    pub(super) runs: usize,
    pub(super) per_second: f64,
    pub(super) latency_ms: Summary,
    /// Of the whole machine but the clients, what goes on after the last answer included.
    pub(super) cpu_ms: f64,
}

/// A load of which some was measured.
#[derive(Debug, Default)]
pub(super) struct Turns {
    samples: Samples,
    took: Duration,
    cpu: Duration,
}

/// How long one turn lasts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) warm: Duration,
    pub(super) counted: Duration,
}

impl Turn {
    /// Several that are so long together. What comes before each is spent the same way and not counted, so that nothing
    /// prepared in advance is left to live on.
    pub(super) fn several(seconds: f64) -> impl Iterator<Item = Self> {
        let several = if seconds >= 4.0 { 4 } else { 1 };
        let counted = Duration::from_secs_f64(seconds / f64::from(several));
        let warm = Duration::from_secs_f64(seconds / 10.0);
        (0..several).map(move |_| Self { warm, counted })
    }
}

impl Turns {
    pub(super) fn add(&mut self, turn: Self) {
        self.samples.extend(turn.samples);
        self.took += turn.took;
        self.cpu += turn.cpu;
    }

    pub(super) fn load(self, clients: usize) -> anyhow::Result<Load> {
        let latency_ms = self.samples.summary().context("no run of the load came to its end")?;
        let (runs, seconds) = (self.samples.count(), self.took.as_secs_f64());
        let cpu_ms = self.cpu.as_secs_f64() * 1000.0 / runs as f64;
        Ok(Load { clients, seconds, runs, per_second: runs as f64 / seconds, latency_ms, cpu_ms })
    }
}

/// Runs until the turn is over, each client one after the other.
fn sustained(
    clock: &Clock,
    clients: usize,
    Turn { warm, counted }: Turn,
    start: &(dyn Fn() -> anyhow::Result<Box<dyn FnMut() -> anyhow::Result<Duration>>> + Sync),
) -> anyhow::Result<Turns> {
    let gate = Barrier::new(clients + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| {
                    let ready = start();
                    gate.wait();
                    let mut run = ready?;
                    let began = Instant::now();
                    while began.elapsed() < warm {
                        run()?;
                    }
                    let mut samples = Samples::default();
                    while began.elapsed() < warm + counted {
                        samples.add(run()?);
                    }
                    anyhow::Ok((samples, began.elapsed() - warm))
                })
            })
            .collect();
        gate.wait();
        std::thread::sleep(warm);
        let before = clock.read()?;
        let (mut all, mut took) = (Samples::default(), Duration::ZERO);
        for thread in threads {
            let (samples, time) =
                thread.join().map_err(|_| anyhow::anyhow!("a client of the load panicked"))??;
            all.extend(samples);
            took = took.max(time);
        }
        clock.settle()?;
        Ok(Turns { samples: all, took, cpu: clock.since(before)? })
    })
}

/// Clients that send one request again and again.
pub(super) fn of_requests(
    clock: &Clock,
    clients: usize,
    turn: Turn,
    address: &Address,
    request: &Request,
) -> anyhow::Result<Turns> {
    sustained(clock, clients, turn, &|| {
        let (mut connection, request) = (Connection::open(address)?, request.clone());
        Ok(Box::new(move || super::ours::timed(&mut connection, &request, RESULT)))
    })
}

/// Clients that start one command again and again.
pub(super) fn of_commands(
    clock: &Clock,
    clients: usize,
    turn: Turn,
    line: &CommandLine,
) -> anyhow::Result<Turns> {
    sustained(clock, clients, turn, &|| {
        let line = line.clone();
        Ok(Box::new(move || line.timed(PRINTED)))
    })
}

/// What bursts came to.
#[derive(Debug, Serialize)]
pub(super) struct Burst {
    pub(super) at_once: usize,
    pub(super) bursts: usize,
    pub(super) latency_ms: Summary,
    /// From the first request to the last answer, the median of all bursts.
    pub(super) whole_ms: f64,
}

/// The same request from many clients at one moment, several times. What was made by it is deleted in between.
pub(super) fn burst(
    clock: &Clock,
    at_once: usize,
    bursts: usize,
    address: &Address,
    request: &Request,
) -> anyhow::Result<Burst> {
    let mut connections =
        (0..at_once).map(|_| Connection::open(address)).collect::<anyhow::Result<Vec<_>>>()?;
    let (mut all, mut wholes) = (Samples::default(), Samples::default());
    for _ in 0..bursts {
        let gate = Barrier::new(at_once);
        let began = std::thread::scope(|scope| {
            let threads: Vec<_> = connections
                .iter_mut()
                .map(|connection| {
                    let gate = &gate;
                    scope.spawn(move || {
                        gate.wait();
                        let began = Instant::now();
                        let answer = connection.send(request)?;
                        let ended = Instant::now();
                        let body: serde_json::Value = answer.json()?;
                        anyhow::Ok((began, ended, body))
                    })
                })
                .collect();
            let answers = threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?);
            answers.collect::<anyhow::Result<Vec<_>>>()
        })?;
        let first = began.iter().map(|(began, ..)| *began).min();
        let last = began.iter().map(|(_, ended, _)| *ended).max();
        if let (Some(first), Some(last)) = (first, last) {
            wholes.add(last - first);
        }
        for (began, ended, body) in began {
            all.add(ended - began);
            if body["id"].as_str().is_some_and(|id| id.starts_with("sbx_")) {
                connections[0].send(&Request::new(address, "DELETE", &path_of(&body)?, b""))?.good()?;
            }
        }
        clock.settle()?;
    }
    let latency_ms = all.summary().context("no answer came")?;
    let whole_ms = wholes.summary().map_or(0.0, |summary| summary.p50);
    Ok(Burst { at_once, bursts, latency_ms, whole_ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_counts_what_its_clients_did() {
        let clock = Clock::find().unwrap();
        let line = CommandLine::from(["/bin/sh", "-c", "echo 1"]);
        let turn = Turn { warm: Duration::from_millis(30), counted: Duration::from_millis(150) };
        let mut turns = Turns::default();
        turns.add(of_commands(&clock, 2, turn, &line).unwrap());
        let first = turns.samples.count();
        turns.add(of_commands(&clock, 2, turn, &line).unwrap());
        let load = turns.load(2).unwrap();
        assert_eq!(load.runs, load.latency_ms.n);
        assert!(first >= 2 && load.runs >= first + 2, "{load:?}");
        assert!(load.seconds >= 0.3 && load.per_second > 1.0, "{load:?}");
        assert!(of_commands(&clock, 2, turn, &CommandLine::from(["/bin/false"])).is_err());
    }

    #[test]
    fn turns_are_as_long_together_as_was_asked_for() {
        for seconds in [0.5, 10.0] {
            let counted: Duration = Turn::several(seconds).map(|turn| turn.counted).sum();
            assert_eq!(counted, Duration::from_secs_f64(seconds));
        }
    }
}
