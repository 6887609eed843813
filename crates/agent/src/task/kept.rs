//! Output of a lasting task that the host has not acknowledged.

use std::collections::VecDeque;

use crate::protocol::{Stream, cost};

/// Pieces in the order in which they were read. A window bounds each stream.
#[derive(Debug, Default)]
pub(super) struct Kept {
    streams: [Queue; 3],
    next: u64,
}

#[derive(Debug, Default)]
struct Queue {
    /// Pieces with their place among those of all streams.
    pieces: VecDeque<(u64, Vec<u8>)>,
    /// How many of them this host was sent.
    sent: usize,
    /// Place of the first of them in its stream.
    first: u64,
    /// Cost of the pieces.
    cost: u32,
    /// Acknowledged, but not enough for a whole piece yet.
    credit: u32,
}

impl Kept {
    fn of(&mut self, stream: Stream) -> &mut Queue {
        &mut self.streams[stream as usize]
    }

    pub(super) fn push(&mut self, stream: Stream, bytes: Vec<u8>) {
        let place = self.next;
        self.next += 1;
        let queue = self.of(stream);
        queue.cost = queue.cost.saturating_add(cost(bytes.len()));
        queue.pieces.push_back((place, bytes));
    }

    /// The next piece that this host was not sent.
    pub(super) fn send(&mut self) -> Option<(Stream, Vec<u8>)> {
        let waiting = |stream: &Stream| {
            let queue = &self.streams[*stream as usize];
            queue.pieces.get(queue.sent).map(|(place, _)| *place)
        };
        let stream = Stream::ALL.into_iter().filter(|s| waiting(s).is_some()).min_by_key(waiting)?;
        let queue = self.of(stream);
        let (_, bytes) = queue.pieces.get(queue.sent)?;
        queue.sent += 1;
        Some((stream, bytes.clone()))
    }

    pub(super) fn all_sent(&self) -> bool {
        self.streams.iter().all(|queue| queue.sent == queue.pieces.len())
    }

    /// The host is done with pieces that cost this much.
    pub(super) fn acknowledge(&mut self, stream: Stream, credit: u32) {
        let queue = self.of(stream);
        queue.credit = queue.credit.saturating_add(credit);
        while let Some((_, bytes)) = queue.pieces.front()
            && queue.sent > 0
            && cost(bytes.len()) <= queue.credit
        {
            let cost = cost(bytes.len());
            queue.credit -= cost;
            queue.cost = queue.cost.saturating_sub(cost);
            queue.first += bytes.len() as u64;
            queue.sent -= 1;
            queue.pieces.pop_front();
        }
    }

    /// A new host has nothing of what is here.
    pub(super) fn rewind(&mut self) {
        for queue in &mut self.streams {
            (queue.sent, queue.credit) = (0, 0);
        }
    }

    /// Place of the first kept byte of each stream.
    pub(super) fn first(&self) -> [u64; 3] {
        Stream::ALL.map(|stream| self.streams[stream as usize].first)
    }

    /// What the pieces of a stream cost.
    pub(super) fn cost(&self, stream: Stream) -> u32 {
        self.streams[stream as usize].cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_host_gets_what_was_not_acknowledged_in_its_order() {
        let mut kept = Kept::default();
        kept.push(Stream::Output, b"one".to_vec());
        kept.push(Stream::Side, b"two".to_vec());
        kept.push(Stream::Output, b"three".to_vec());
        while kept.send().is_some() {}
        assert!(kept.all_sent());
        // Not enough for the first piece, then enough for it and part of the next.
        kept.acknowledge(Stream::Output, 10);
        assert_eq!(kept.first(), [0, 0, 0]);
        kept.acknowledge(Stream::Output, cost(3));
        assert_eq!(kept.first(), [3, 0, 0]);
        kept.rewind();
        kept.push(Stream::Error, b"four".to_vec());
        let again: Vec<_> = std::iter::from_fn(|| kept.send()).collect();
        let wanted = [(Stream::Side, "two"), (Stream::Output, "three"), (Stream::Error, "four")];
        assert_eq!(again, wanted.map(|(stream, text)| (stream, text.as_bytes().to_vec())));
        assert_eq!(kept.cost(Stream::Output), cost(5));
    }

    #[test]
    fn what_was_never_sent_cannot_be_acknowledged() {
        let mut kept = Kept::default();
        kept.push(Stream::Output, b"one".to_vec());
        kept.acknowledge(Stream::Output, u32::MAX);
        assert_eq!(kept.send(), Some((Stream::Output, b"one".to_vec())));
    }
}
