//! What living sandboxes use, read every few seconds.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use sandstorm_provider::OpContext;
use sandstorm_store::SampleRow;
use sandstorm_types::Timestamp;

use super::Inner;
use super::living::Living;

const EVERY: Duration = Duration::from_secs(5);
/// Sandboxes that are asked at the same time, and how long one may take to answer.
const AT_ONCE: usize = 16;
const PATIENCE: Duration = Duration::from_secs(2);
/// Rows of one write.
const BATCH: usize = 500;

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
        let ready = self.sandboxes.list().into_iter().filter(|living| living.row().state.is_ready());
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
