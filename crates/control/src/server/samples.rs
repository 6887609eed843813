//! What living sandboxes use: read every few seconds while they work, ever more rarely while they do nothing.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use sandstorm_provider::OpContext;
use sandstorm_store::SampleRow;
use sandstorm_types::Timestamp;

use super::Inner;
use super::living::Living;

const EVERY: Duration = Duration::from_secs(5);
/// The longest time between two readings of one that does nothing: a thousand of them are then three readings a second.
const IDLE: Duration = Duration::from_secs(300);
/// Processor time between two readings below which a sandbox does nothing.
const STILL: u64 = 5;
/// Sandboxes that are asked at the same time, and how long one may take to answer.
const AT_ONCE: usize = 16;
const PATIENCE: Duration = Duration::from_secs(2);
/// Rows of one write.
const BATCH: usize = 500;

/// How often one sandbox is read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sampling {
    last: Option<Reading>,
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    at: Instant,
    cpu_ms: u64,
    used_at: Timestamp,
    /// Until the next one, should it go on doing nothing.
    pause: Duration,
}

impl Sampling {
    /// Whether it is time for a reading. One that was used since the last one, or runs a program, is always read.
    fn is_due(&self, at: Instant, used_at: Timestamp, works: bool) -> bool {
        self.last.is_none_or(|last| {
            works || used_at > last.used_at || at.saturating_duration_since(last.at) >= last.pause
        })
    }

    /// Takes a reading in: after one that shows no work the next comes after twice the time.
    fn read(&mut self, at: Instant, used_at: Timestamp, cpu_ms: u64) {
        let still = |last: &Reading| last.used_at >= used_at && cpu_ms.saturating_sub(last.cpu_ms) <= STILL;
        let pause = self.last.filter(still).map_or(EVERY, |last| (last.pause * 2).min(IDLE));
        self.last = Some(Reading { at, cpu_ms, used_at, pause });
    }
}

impl Inner {
    pub(super) async fn take_samples(self: Arc<Self>) {
        if !self.provider.capabilities().usage {
            return;
        }
        loop {
            // From the end of one round to the beginning of the next: a slow round makes them rarer, not more.
            tokio::time::sleep(EVERY).await;
            self.sample_all().await;
        }
    }

    async fn sample_all(&self) {
        let now = Instant::now();
        let ready = self.sandboxes.which(|living| {
            let sampling = *living.sampling.lock().unwrap_or_else(PoisonError::into_inner);
            sampling.is_due(now, living.last_used(), living.execs() > 0) && living.row().state.is_ready()
        });
        let samples = stream::iter(ready).map(|living| async move { self.sample(&living).await });
        let rows: Vec<SampleRow> =
            samples.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
        for batch in rows.chunks(BATCH) {
            if let Err(error) = self.store.add_samples(batch).await {
                tracing::warn!(%error, "samples could not be written");
            }
        }
    }

    /// One reading, accounted for. `None`: it could not be read.
    pub(super) async fn sample(&self, living: &Living) -> Option<SampleRow> {
        let cx = OpContext::new(living.tenant).with_timeout(PATIENCE);
        let usage = match self.provider.usage(&cx, &living.id).await {
            Ok(usage) => usage,
            Err(error) => {
                tracing::debug!(sandbox = %living.id, %error, "what a sandbox uses could not be read");
                return None;
            }
        };
        let cpu_ms = u64::try_from(usage.cpu.as_millis()).unwrap_or(u64::MAX);
        living.sampling.lock().unwrap_or_else(PoisonError::into_inner).read(
            Instant::now(),
            living.last_used(),
            cpu_ms,
        );
        living.share.measured(usage.memory);
        self.spending.measured(living.id, usage.cpu, usage.peak_memory.as_u64());
        self.account_cpu(living, cpu_ms);
        self.account_memory(living);
        Some(SampleRow {
            sandbox: living.id,
            at: Timestamp::now(),
            cpu_ms,
            memory_bytes: usage.memory.as_u64(),
            peak_memory_bytes: usage.peak_memory.as_u64(),
            processes: usage.processes.into(),
            disk_bytes: usage.disk.as_u64(),
            inodes: usage.inodes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_does_nothing_is_read_ever_more_rarely_and_at_once_when_it_works() {
        let (began, used) = (Instant::now(), Timestamp::from_millis(1));
        let mut sampling = Sampling::default();
        let (mut at, mut readings) = (began, 0);
        // An hour of nothing, looked at as often as the clock does.
        while at < began + Duration::from_secs(3600) {
            if sampling.is_due(at, used, false) {
                sampling.read(at, used, 7);
                readings += 1;
            }
            at += EVERY;
        }
        assert!((12..=20).contains(&readings), "{readings} readings");
        assert!(sampling.is_due(at, used, true), "it runs a program");
        assert!(sampling.is_due(at, Timestamp::from_millis(2), false), "it was used");
        // Work that nobody asked for, such as a thread of an interpreter, is noticed with the next reading.
        sampling.read(at, used, 1000);
        assert!(!sampling.is_due(at + EVERY / 2, used, false) && sampling.is_due(at + EVERY, used, false));
    }
}
