//! What the tasks of one proxy share. Locks are held for a table access, never across a wait.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandstorm_types::{HostName, NetworkPolicy, Rule};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::report::{Counters, Refusal, Tally};
use crate::boundary::Boundary;
use crate::denial::{Denial, Denials};
use crate::limits::{Limits, Options, ServerName};
use crate::names::Names;
use crate::rate::Rate;
use crate::upstream::Upstream;

/// Refused connections of one sandbox that are told why at a time. The others are reset at once, and take no place from those
/// that may pass.
const TOLD_AT_ONCE: usize = 16;

#[derive(Debug)]
pub(crate) struct Shared {
    policy: watch::Sender<Arc<NetworkPolicy>>,
    names: Mutex<Names>,
    queries: Mutex<Rate>,
    new_names: Mutex<Rate>,
    denials: Mutex<Denials>,
    tally: Tally,
    /// Seats of refused connections that are told why.
    told: Semaphore,
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
            new_names: Mutex::new(Rate::new(limits.names_per_second, limits.name_burst)),
            denials: Mutex::new(Denials::new(options.denials.clone())),
            tally: Tally::default(),
            told: Semaphore::new(TOLD_AT_ONCE),
            options,
            upstream,
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.options.limits
    }

    pub(super) fn opened(&self) -> &[Rule] {
        &self.options.opened
    }

    pub(super) fn boundary(&self) -> &Boundary {
        &self.options.boundary
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

    pub(crate) fn set_policy(&self, policy: NetworkPolicy) {
        self.policy.send_replace(Arc::new(policy));
    }

    /// The address that stands for the name. `None`: too many new names were asked for.
    pub(crate) fn address_for(&self, name: &HostName) -> Option<Ipv4Addr> {
        let mut names = lock(&self.names);
        if !names.contains(name) && lock(&self.new_names).take().is_err() {
            count(&self.tally.queries_dropped);
            return None;
        }
        Some(names.address_for(name))
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

    /// Remembers what was refused and tells the listener.
    pub(crate) fn record(&self, denial: Denial) {
        let destination = denial.target();
        tracing::debug!(destination, reason = %denial.reason, "a sandbox was refused something");
        if denial.reason != Refusal::Idle {
            self.options.watchers.note(&denial);
        }
        if !lock(&self.denials).push(denial) {
            count(&self.tally.denials_suppressed);
        }
    }

    /// A seat for a refused connection that is told why, while there is one.
    pub(super) fn seat(&self) -> Option<SemaphorePermit<'_>> {
        self.told.try_acquire().ok()
    }

    pub(super) fn count_refused(&self) {
        count(&self.tally.refused);
    }

    pub(crate) fn counters(&self) -> Counters {
        self.tally.counters()
    }

    pub(crate) fn refused(&self) -> Vec<Denial> {
        lock(&self.denials).latest()
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The tables stay whole between calls, so a panic elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
