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

impl BodyRoom {
    /// Takes or gives back room until it is as much as this. Refused as [`Self::grow`] is.
    pub fn hold(&mut self, bytes: usize) -> Result<()> {
        let bytes = bytes as u64;
        if bytes > self.bytes {
            return self.grow((bytes - self.bytes) as usize);
        }
        self.tenant.give_back(self.bytes - bytes);
        self.all.give_back(self.bytes - bytes);
        self.bytes = bytes;
        Ok(())
    }
}

/// Adds a piece to a body that is collected. Before the buffer grows, `room` is asked for all that it grows by: it doubles,
/// but not beyond `most`, which is how long the body may be or says that it is.
pub fn gather(
    body: &mut Vec<u8>,
    piece: &[u8],
    most: usize,
    room: impl FnOnce(usize) -> Result<()>,
) -> Result<()> {
    let (needed, had) = (body.len() + piece.len(), body.capacity());
    if needed > had {
        let wanted = needed.max(had.saturating_mul(2).min(most));
        room(wanted - had)?;
        body.reserve_exact(wanted - body.len());
    }
    body.extend_from_slice(piece);
    Ok(())
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
    fn what_is_held_follows_what_is_there() {
        let (all, tenant) = (Bodies::default(), Bodies::default());
        let mut stream = room(&all, &tenant);
        let used = || (all.0.load(Ordering::Acquire), tenant.0.load(Ordering::Acquire));
        for bytes in [10_usize, 4, 4, 7, 0] {
            stream.hold(bytes).unwrap();
            assert_eq!(used(), (bytes as u64, bytes as u64));
        }
        let mut other = room(&all, &tenant);
        other.hold(OF_TENANT as usize).unwrap();
        assert_eq!(stream.hold(1).unwrap_err().kind(), ErrorKind::Quota);
        drop((stream, other));
        assert_eq!(used(), (0, 0));
    }

    #[test]
    fn a_buffer_has_room_for_all_that_it_may_hold() {
        let collect = |length: usize, most: usize| {
            let (mut body, mut taken) = (Vec::new(), 0);
            for piece in vec![7; length].chunks(1000) {
                let take = |more| {
                    taken += more;
                    Ok(())
                };
                gather(&mut body, piece, most, take).unwrap();
                assert!(taken >= body.capacity(), "{taken} for {}", body.capacity());
            }
            assert_eq!(body.len(), length);
            taken
        };
        assert_eq!(collect(9000, 9000), 9000, "a body that says how long it is");
        assert_eq!(collect(9000, 1 << 20), 16_000, "one that does not");
        let mut body = Vec::new();
        let refused = gather(&mut body, b"x", 1, |_| Err(Error::new(ErrorKind::Quota, "none")));
        assert!(refused.is_err() && body.capacity() == 0, "nothing is stored that has no room");
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
