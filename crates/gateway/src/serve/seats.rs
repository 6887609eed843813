//! How many connections there may be, of all and of one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Counts connections.
#[derive(Debug, Clone)]
pub(super) struct Seats {
    most: usize,
    most_per_peer: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_peer: HashMap<IpAddr, usize>,
}

/// One connection's place, free again when dropped.
#[derive(Debug)]
pub(super) struct Seat {
    taken: Arc<Mutex<Taken>>,
    peer: Option<IpAddr>,
}

impl Seats {
    pub(super) fn new(most: usize, most_per_peer: usize) -> Self {
        Self { most, most_per_peer, taken: Arc::default() }
    }

    /// A place, unless there is none left for this address or at all.
    pub(super) fn take(&self, peer: Option<IpAddr>) -> Option<Seat> {
        let peer = peer.map(neighbourhood);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_peer = peer.and_then(|peer| taken.by_peer.get(&peer)).copied().unwrap_or(0);
        if taken.all >= self.most || of_peer >= self.most_per_peer {
            return None;
        }
        taken.all += 1;
        if let Some(peer) = peer {
            taken.by_peer.insert(peer, of_peer + 1);
        }
        Some(Seat { taken: Arc::clone(&self.taken), peer })
    }
}

/// One customer has a whole /64 of IPv6, so that is what counts as one.
fn neighbourhood(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(peer) = self.peer
            && let Some(count) = taken.by_peer.get_mut(&peer)
        {
            *count -= 1;
            if *count == 0 {
                taken.by_peer.remove(&peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_all_and_all_are_bounded() {
        let seats = Seats::new(3, 2);
        let peer = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        let first = seats.take(peer("192.0.2.1")).unwrap();
        let _second = seats.take(peer("192.0.2.1")).unwrap();
        assert!(seats.take(peer("192.0.2.1")).is_none());
        let _other = seats.take(peer("2001:db8::1")).unwrap();
        assert!(seats.take(None).is_none());
        drop(first);
        assert!(seats.take(peer("192.0.2.1")).is_some());
        assert_eq!(seats.taken.lock().unwrap().by_peer.len(), 2);
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let seats = Seats::new(9, 1);
        let _seat = seats.take(Some("2001:db8::1".parse().unwrap())).unwrap();
        assert!(seats.take(Some("2001:db8::2".parse().unwrap())).is_none());
        assert!(seats.take(Some("2001:db8:0:1::1".parse().unwrap())).is_some());
    }
}
