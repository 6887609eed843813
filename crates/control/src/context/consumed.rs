//! Which events are used up, so that somebody else can go on behind them.

use std::collections::VecDeque;

use crate::context::Position;

/// Counts the bytes of events that were used, in their order.
#[derive(Debug, Default)]
pub(crate) struct Consumed {
    /// The events whose bytes are not all used: number and length.
    open: VecDeque<(u64, usize)>,
    /// Bytes of the first of them that were.
    used: usize,
}

impl Consumed {
    /// Event `number` brought that many bytes.
    pub(crate) fn push(&mut self, number: u64, bytes: usize) {
        if bytes > 0 {
            self.open.push_back((number, bytes));
        }
    }

    /// That many bytes more were used.
    pub(crate) fn settle(&mut self, bytes: usize) {
        self.used += bytes;
        while let Some((_, length)) = self.open.front()
            && *length <= self.used
        {
            self.used -= *length;
            self.open.pop_front();
        }
    }

    /// The first byte that was not used; `next` is the number of the next event.
    pub(crate) fn position(&self, next: u64) -> Position {
        match self.open.front() {
            Some((number, _)) => Position { event: *number, skip: self.used },
            None => Position { event: next, skip: 0 },
        }
    }
}
