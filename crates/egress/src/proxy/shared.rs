//! What the tasks of one proxy share. Locks are held for a table access, never across a wait.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandstorm_types::{HostName, NetworkPolicy};
use tokio::sync::watch;

use super::report::{Counters, Recent, Refusal, Refused, Tally};
use crate::limits::{Limits, Options, ServerName};
use crate::names::Names;
use crate::permit::Destination;
use crate::rate::Rate;
use crate::upstream::Upstream;

#[derive(Debug)]
pub(crate) struct Shared {
    policy: watch::Sender<Arc<NetworkPolicy>>,
    names: Mutex<Names>,
    queries: Mutex<Rate>,
    recent: Mutex<Recent>,
    tally: Tally,
    options: Options,
    pub(super) upstream: Upstream,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    Up,
    Down,
}

impl Shared {
    pub(crate) fn new(policy: NetworkPolicy, upstream: Upstream, options: Options) -> Self {
        let limits = &options.limits;
        Self {
            policy: watch::Sender::new(Arc::new(policy)),
            names: Mutex::new(Names::new(limits.names)),
            queries: Mutex::new(Rate::new(limits.queries_per_second, limits.query_burst)),
            recent: Mutex::default(),
            tally: Tally::default(),
            options,
            upstream,
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.options.limits
    }

    pub(super) fn server_name(&self) -> ServerName {
        self.options.server_name
    }

    pub(crate) fn policy(&self) -> Arc<NetworkPolicy> {
        Arc::clone(&self.policy.borrow())
    }

    pub(super) fn policy_changes(&self) -> watch::Receiver<Arc<NetworkPolicy>> {
        self.policy.subscribe()
    }

    pub(super) fn set_policy(&self, policy: NetworkPolicy) {
        self.policy.send_replace(Arc::new(policy));
    }

    pub(crate) fn address_for(&self, name: &HostName) -> Ipv4Addr {
        lock(&self.names).address_for(name)
    }

    pub(super) fn name_of(&self, address: Ipv4Addr) -> Option<HostName> {
        lock(&self.names).name_of(address)
    }

    /// Whether one more query fits into the rate.
    pub(crate) fn take_query(&self) -> bool {
        let fits = lock(&self.queries).take().is_ok();
        if !fits {
            count(&self.tally.queries_dropped);
        }
        fits
    }

    pub(crate) fn count_query(&self, answered: bool) {
        count(if answered { &self.tally.queries_answered } else { &self.tally.queries_refused });
    }

    pub(super) fn count_connected(&self) {
        count(&self.tally.connected);
    }

    /// Accounts for bytes that are about to pass; the total may not exceed the limit.
    pub(super) fn spend(&self, direction: Direction, bytes: usize) -> Result<(), Refusal> {
        let (counter, limit) = match direction {
            Direction::Up => (&self.tally.bytes_up, self.limits().bytes_up),
            Direction::Down => (&self.tally.bytes_down, self.limits().bytes_down),
        };
        counter
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |spent| {
                spent.checked_add(bytes as u64).filter(|&total| total <= limit)
            })
            .map(|_| ())
            .map_err(|_| Refusal::BytesUsedUp)
    }

    pub(super) fn record(&self, destination: Option<Destination>, reason: Refusal) {
        count(&self.tally.refused);
        let shown = destination.as_ref().map(ToString::to_string);
        tracing::debug!(destination = shown, %reason, "a sandbox's connection was refused");
        lock(&self.recent).push(Refused { destination, reason });
    }

    pub(crate) fn counters(&self) -> Counters {
        self.tally.counters()
    }

    pub(super) fn refused(&self) -> Vec<Refused> {
        lock(&self.recent).list()
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The tables stay whole between calls, so a panic elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
