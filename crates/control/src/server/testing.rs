//! What a server for tests is made with: room for everything, so that a test says only what it is about.

use std::time::Duration;

use sandstorm_types::{ByteSize, Enforcement, Limits};

use super::bodies::Bodies;
use super::{BodyRoom, Costs, Pepper, Quota, Retention, RunCacheLimits, Settings, SnapshotLimits};

const DAY: Duration = Duration::from_secs(86_400);

/// Room for a body, where no others are.
pub fn body_room() -> BodyRoom {
    BodyRoom::new(Bodies::default(), Bodies::default(), ByteSize::mib(512))
}

/// The provider in memory enforces few limits, so missing ones are named and not refused.
pub fn settings() -> Settings {
    Settings {
        limits: Limits::default(),
        ceiling: Limits {
            wall: Duration::from_secs(3600),
            memory: ByteSize::gib(16),
            disk: ByteSize::gib(16),
            processes: 4096,
            ..Limits::default()
        },
        enforcement: Enforcement::BestEffort,
        quota: Quota {
            sandboxes: 100,
            cpu_milli: 1_000_000,
            memory_bytes: 1 << 40,
            runs_per_minute: Some(1000),
            requests_per_second: Some(1000),
            open_streams: 100,
        },
        local_quota: None,
        admission_memory: ByteSize::gib(1024),
        body_memory: ByteSize::mib(512),
        admission_wait: Duration::from_secs(1),
        admission_queue: 10,
        space_in_memory: false,
        meminfo: "/proc/meminfo".into(),
        idle_timeout: None,
        paused_for: DAY,
        longest_lifetime: DAY,
        retention: Retention { runs: DAY, events: DAY, audit: DAY, ledger: DAY },
        anchor_every: DAY,
        reconcile_every: Duration::from_secs(300),
        price_age: DAY * 90,
        keyless: true,
        run_cache: RunCacheLimits::default(),
        snapshots: SnapshotLimits { count: 100, bytes: 1 << 40 },
        costs: Costs::default(),
        pepper: Pepper([3; 32]),
    }
}
