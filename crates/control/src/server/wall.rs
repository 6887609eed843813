//! By which wall clock the records are, and what becomes of them when somebody sets it.
//!
//! While a server runs its own time counts, whoever sets the wall clock. The next server has the records alone, and what is
//! noted beside them: on the same start of the machine it knows by how much the clock was set meanwhile, and reads them by
//! that. After another start nothing tells that; then what was recorded is taken as it is, within bounds.

use std::sync::{Mutex, PoisonError};

use sandstorm_provider::Result;
use sandstorm_store::{SandboxChanges, Store, WallClock};
use sandstorm_types::Timestamp;

use super::Inner;
use super::failure::stored;
use super::living::{CLOCK_SET, Living};

/// A clock that goes wrong by so much is noted anew, in milliseconds.
const DRIFT: u64 = 100;

/// The clock that the records are by; `None`: nobody knows.
#[derive(Debug)]
pub(super) struct RecordsClock(Mutex<Option<WallClock>>);

impl RecordsClock {
    /// That of an earlier server.
    pub(super) fn of(store: &Store) -> Self {
        Self(Mutex::new(store.noted_clock()))
    }

    /// By how many milliseconds it was set since.
    fn ahead(&self) -> Option<i64> {
        let noted = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        noted.map(|noted| WallClock::now().ahead_of(noted))
    }

    fn set(&self, clock: WallClock) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(clock);
    }
}

/// What is less is no setting: clocks are kept right by it.
fn is_set(ahead: i64) -> bool {
    u128::from(ahead.unsigned_abs()) > CLOCK_SET.as_millis()
}

impl Inner {
    /// By how many milliseconds the clock was set since the records were made.
    pub(super) fn clock_was_set(&self) -> i64 {
        self.records_clock.ahead().filter(|ahead| is_set(*ahead)).unwrap_or(0)
    }

    /// A moment of a record by the clock as it is set now.
    pub(super) fn by_present_clock(&self, recorded: Timestamp) -> Timestamp {
        moved(recorded, self.clock_was_set())
    }

    /// Notes the present clock, unless it is the one that is noted. What was recorded by another clock, or by one that no
    /// note tells of, is recorded anew first: else each server would bound it anew from its own start.
    pub(super) async fn keep_wall_clock(&self) {
        let ahead = self.records_clock.ahead();
        if ahead.is_some_and(|ahead| ahead.unsigned_abs() < DRIFT) {
            return;
        }
        let clock = WallClock::now();
        if ahead.is_some_and(is_set) {
            tracing::warn!(milliseconds = ahead, "somebody set the wall clock");
        }
        if ahead.is_none_or(is_set)
            && let Err(error) = self.record_lifetimes_anew().await
        {
            tracing::warn!(%error, "ends of lifetimes could not be recorded by the clock as it is set now");
            return;
        }
        let store = self.store.clone();
        match tokio::task::spawn_blocking(move || store.note_clock(clock)).await {
            Ok(Ok(())) => self.records_clock.set(clock),
            Ok(Err(error)) => tracing::warn!(%error, "by which clock the records are could not be noted"),
            Err(_) => {}
        }
    }

    async fn record_lifetimes_anew(&self) -> Result<()> {
        let differs = |living: &Living| living.expires_at() != living.row().expires_at;
        for living in self.sandboxes.which(differs) {
            let changes =
                SandboxChanges { expires_at: Some(living.expires_at()), ..SandboxChanges::default() };
            let updated = self.store.update_sandbox(living.tenant, living.id, changes, None);
            if let Some(row) = stored(updated.await)? {
                living.learn(row);
            }
        }
        Ok(())
    }
}

/// So many milliseconds later.
pub(super) fn moved(at: Timestamp, by: i64) -> Timestamp {
    Timestamp::from_millis(at.millis().saturating_add(by))
}
