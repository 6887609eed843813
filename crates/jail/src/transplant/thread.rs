//! The few bytes of a thread's memory that are the kernel's word about it, and so must stay the destination's own.

use super::error::Cause;
use super::memory::Memory;
use super::patient::Patient;
use super::source::State;
use super::status::Status;

/// How far into a thread's data libc keeps the number of the thread.
const SEARCHED: usize = 2048;

/// Where in the area for restartable sequences the kernel keeps the processor (twice), the node and the concurrency id.
/// Between them is the section that the thread is in, which is the source's.
const SEQUENCES: [(u64, usize); 2] = [(0, 8), (20, 8)];

/// The destination's thread as it was before it got the source's memory.
#[derive(Debug)]
pub(super) struct ThreadData {
    pointer: u64,
    data: [u8; SEARCHED],
    sequences: Option<u64>,
    kept: Vec<(u64, Vec<u8>)>,
}

impl ThreadData {
    pub(super) fn of(patient: &Patient) -> Result<Self, Cause> {
        let pointer = patient.behind.thread_pointer();
        let mut data = [0; SEARCHED];
        patient.memory.read_at(pointer, &mut data)?;
        let sequences = patient.traced.restartable_sequences();
        let mut kept = Vec::new();
        for (offset, length) in SEQUENCES {
            if let Some(area) = sequences {
                let mut bytes = vec![0; length];
                patient.memory.read_at(area + offset, &mut bytes)?;
                kept.push((area + offset, bytes));
            }
        }
        Ok(Self { pointer, data, sequences, kept })
    }

    /// Gives the destination back what is its own. Its memory is the source's by now.
    pub(super) fn restore(
        &self,
        destination: &Memory,
        state: &State,
        (theirs, ours): (&Status, &Status),
    ) -> Result<(), Cause> {
        if (self.sequences, self.pointer) != (state.sequences, state.registers.thread_pointer()) {
            return Err(Cause::Unlike("the data of their threads lie apart".to_owned()));
        }
        self.kept.iter().try_for_each(|(address, bytes)| destination.write_at(*address, bytes))?;
        if theirs.inside == ours.inside {
            return Ok(());
        }
        let mut data = [0; SEARCHED];
        destination.read_at(self.pointer, &mut data)?;
        match cached_number((&data, theirs.inside), (&self.data, ours.inside)) {
            Some(place) => destination.write_at(self.pointer + place as u64, &ours.inside.to_ne_bytes()),
            None => Err(Cause::Unlike(format!(
                "their process numbers are {} and {}, and where libc keeps them was not found",
                theirs.inside, ours.inside
            ))),
        }
    }
}

/// The one place near the beginning of a thread's data where each of the two has its own number.
fn cached_number(
    (source, theirs): (&[u8; SEARCHED], i32),
    (destination, ours): (&[u8; SEARCHED], i32),
) -> Option<usize> {
    let words = source.chunks_exact(4).zip(destination.chunks_exact(4)).enumerate();
    let mut places = words
        .filter(|(_, (source, destination))| {
            *source == theirs.to_ne_bytes() && *destination == ours.to_ne_bytes()
        })
        .map(|(word, _)| 4 * word);
    places.next().filter(|_| places.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_once_or_not_at_all() {
        let (mut source, mut destination) = ([0; SEARCHED], [0; SEARCHED]);
        source[720] = 2;
        destination[720] = 7;
        source[100] = 2;
        assert_eq!(cached_number((&source, 2), (&destination, 7)), Some(720));
        destination[100] = 7;
        assert_eq!(cached_number((&source, 2), (&destination, 7)), None);
        assert_eq!(cached_number((&source, 3), (&destination, 7)), None);
    }
}
