//! Room for request bodies that stay in memory until they are whole: so much for each tenant, so much for all.
//!
//! A body costs its sender nothing but a connection. Without this, connections times the largest body is what a client
//! that never finishes can make the server hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sandstorm_provider::{Error, Result};
use sandstorm_types::{ByteSize, ErrorKind};

use super::{Caller, Control};

/// One tenant has this part of what all have together.
const TENANTS: u64 = 4;

/// When to come back.
const LATER: Duration = Duration::from_secs(1);

/// What is in use.
#[derive(Debug, Clone, Default)]
pub(super) struct Bodies(Arc<AtomicU64>);

/// The room of one body; given back when it is dropped, so keep it as long as the body.
#[derive(Debug)]
pub struct BodyRoom {
    all: Bodies,
    tenant: Bodies,
    bytes: u64,
    /// What the unfinished and unanswered bodies of all may take together.
    most: u64,
}

impl Bodies {
    /// Takes room unless others would have more than `most` then. A body without others always has room: how large one
    /// may be is decided elsewhere.
    fn take(&self, own: u64, more: u64, most: u64) -> bool {
        let add =
            |used: u64| (used <= own || used.saturating_add(more) <= most).then(|| used.saturating_add(more));
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::AcqRel);
    }
}

impl BodyRoom {
    pub(super) fn new(all: Bodies, tenant: Bodies, most: ByteSize) -> Self {
        Self { all, tenant, bytes: 0, most: most.as_u64() }
    }

    /// Takes room for so many more bytes, before they are stored. `Quota` when the tenant's other bodies leave none,
    /// `Capacity` when those of all do.
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        let more = bytes as u64;
        let share = self.most / TENANTS;
        if !self.tenant.take(self.bytes, more, share) {
            let message = "too many large request bodies at the same time";
            return Err(Error::new(ErrorKind::Quota, message).with("allowed", share).with_retry_after(LATER));
        }
        if !self.all.take(self.bytes, more, self.most) {
            self.tenant.give_back(more);
            let message = "the server has no room for another large request body now";
            return Err(Error::new(ErrorKind::Capacity, message).with_retry_after(LATER));
        }
        self.bytes += more;
        Ok(())
    }
}

impl Drop for BodyRoom {
    fn drop(&mut self) {
        self.tenant.give_back(self.bytes);
        self.all.give_back(self.bytes);
    }
}

impl Control {
    /// Room for a body of this caller, none of it taken yet.
    pub fn body_room(&self, caller: &Caller) -> BodyRoom {
        let tenant = self.0.quotas.of(caller.tenant).bodies();
        BodyRoom::new(self.0.bodies.clone(), tenant, self.0.settings.body_memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: usize = 16 << 20;
    const OF_ALL: u64 = 512 << 20;
    const OF_TENANT: u64 = 128 << 20;

    fn room(all: &Bodies, tenant: &Bodies) -> BodyRoom {
        BodyRoom::new(all.clone(), tenant.clone(), ByteSize::bytes(OF_ALL))
    }

    fn fill(all: &Bodies, tenant: &Bodies) -> (Vec<BodyRoom>, ErrorKind) {
        let mut rooms = Vec::new();
        loop {
            let mut room = room(all, tenant);
            match room.grow(PIECE) {
                Ok(()) => rooms.push(room),
                Err(error) => return (rooms, error.kind()),
            }
        }
    }

    #[test]
    fn a_tenant_takes_its_share_and_no_more() {
        let (all, tenant, other) = (Bodies::default(), Bodies::default(), Bodies::default());
        let (mut rooms, why) = fill(&all, &tenant);
        assert_eq!((rooms.len() as u64, why), (OF_TENANT / PIECE as u64, ErrorKind::Quota));
        // Not by growing either, and others are not kept out.
        assert!(rooms[0].grow(1).is_err());
        room(&all, &other).grow(PIECE).unwrap();
        drop(rooms);
        assert_eq!((all.0.load(Ordering::Acquire), tenant.0.load(Ordering::Acquire)), (0, 0));
    }

    #[test]
    fn all_together_have_a_bound_and_refusals_take_nothing() {
        let all = Bodies::default();
        let (mut rooms, mut why) = (Vec::new(), ErrorKind::Quota);
        while why == ErrorKind::Quota {
            let (more, refused) = fill(&all, &Bodies::default());
            (why, rooms) = (refused, rooms.into_iter().chain(more).collect());
        }
        assert_eq!((rooms.len() as u64, why), (OF_ALL / PIECE as u64, ErrorKind::Capacity));
        drop(rooms);
        assert_eq!(all.0.load(Ordering::Acquire), 0);
    }

    #[test]
    fn an_only_body_may_be_as_large_as_it_likes() {
        let (all, tenant) = (Bodies::default(), Bodies::default());
        let mut only = room(&all, &tenant);
        for _ in 0..2 {
            only.grow(OF_ALL as usize).unwrap();
        }
        assert!(room(&all, &tenant).grow(1).is_err());
    }
}
