//! Moving pages from one guest into another.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use sandstorm_sys::ptrace::{read_memory, write_memory};

use super::error::{Cause, doing};
use super::pages::{PAGE, Run};
use super::process::Process;

/// Most pieces that the kernel takes at once.
const MOST_PIECES: usize = 1024;
const AT_A_TIME: usize = 128 << 10;
/// Less than this is not worth a thread.
const LEAST: usize = 512 << 10;
const ZEROES: [u8; PAGE as usize] = [0; PAGE as usize];

/// The memory of a guest. The file passes over the protection of mappings, which a tracer may; the calls for many pieces
/// at once do not, and are quicker.
#[derive(Debug)]
pub(super) struct Memory {
    process: Process,
    file: File,
}

impl Memory {
    pub(super) fn to_read(process: Process) -> Result<Self, Cause> {
        Ok(Self { process, file: process.open("mem")? })
    }

    pub(super) fn to_write(process: Process) -> Result<Self, Cause> {
        let file = OpenOptions::new().read(true).write(true).open(process.path("mem"));
        Ok(Self { process, file: file.map_err(|e| process.failed("mem", e))? })
    }

    pub(super) fn read_at(&self, address: u64, into: &mut [u8]) -> Result<(), Cause> {
        self.file.read_exact_at(into, address).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => Cause::Gone(self.process.who),
            _ => doing(format!("read the memory of the {}", self.process.who))(e),
        })
    }

    pub(super) fn write_at(&self, address: u64, from: &[u8]) -> Result<(), Cause> {
        self.file.write_all_at(from, address).map_err(|e| match e.kind() {
            ErrorKind::WriteZero => Cause::Gone(self.process.who),
            _ => doing(format!("write the memory of the {}", self.process.who))(e),
        })
    }

    /// Reads the runs one behind the other; together they are as long as `into`.
    fn read(&self, runs: &[Run], mut into: &mut [u8]) -> Result<(), Cause> {
        for batch in
            runs.chunk_by(|one, other| one.writable == other.writable).flat_map(|c| c.chunks(MOST_PIECES))
        {
            let pieces: Vec<_> = batch.iter().map(|run| (run.range.start, length(&run.range))).collect();
            let (part, rest) = into.split_at_mut(pieces.iter().map(|(_, length)| length).sum());
            let quick = batch[0].writable
                && read_memory(self.process.pid, &pieces, part).is_ok_and(|n| n == part.len());
            if !quick {
                let mut part = part;
                for (address, length) in pieces {
                    let (piece, behind) = part.split_at_mut(length);
                    self.read_at(address, piece)?;
                    part = behind;
                }
            }
            into = rest;
        }
        Ok(())
    }

    /// The opposite. Pages of zeroes are left out where there are zeroes already. Gives the number of pages written.
    fn write(&self, runs: &[Run], from: &[u8]) -> Result<u64, Cause> {
        let pieces = pieces(runs, from);
        let mut written = 0;
        for batch in
            pieces.chunk_by(|one, other| one.writable == other.writable && one.at.end == other.at.start)
        {
            for batch in batch.chunks(MOST_PIECES) {
                let remote: Vec<_> = batch.iter().map(|piece| (piece.address, piece.at.len())).collect();
                let bytes = &from[batch[0].at.start..batch[batch.len() - 1].at.end];
                let quick = batch[0].writable
                    && write_memory(self.process.pid, &remote, bytes).is_ok_and(|n| n == bytes.len());
                if !quick {
                    batch
                        .iter()
                        .try_for_each(|piece| self.write_at(piece.address, &from[piece.at.clone()]))?;
                }
                written += bytes.len() as u64 / PAGE;
            }
        }
        Ok(written)
    }
}

/// Bytes on their way and where they go.
struct Piece {
    address: u64,
    at: Range<usize>,
    writable: bool,
}

fn pieces(runs: &[Run], from: &[u8]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::with_capacity(runs.len());
    let mut at = 0;
    for run in runs {
        let end = at + length(&run.range);
        let mut piece = Piece { address: run.range.start, at: at..at, writable: run.writable };
        for page in from[at..end].chunks_exact(ZEROES.len()) {
            if run.empty && page == ZEROES {
                let next = piece.at.end + ZEROES.len();
                let address = piece.address + (next - piece.at.start) as u64;
                if !piece.at.is_empty() {
                    pieces.push(piece);
                }
                piece = Piece { address, at: next..next, writable: run.writable };
            } else {
                piece.at.end += ZEROES.len();
            }
        }
        if !piece.at.is_empty() {
            pieces.push(piece);
        }
        at = end;
    }
    pieces
}

fn length(range: &Range<u64>) -> usize {
    (range.end - range.start) as usize
}

/// Copies the runs from one to the other, half of them in a thread of its own. Gives the number of pages written.
pub(super) fn copy(source: &Memory, destination: &Memory, runs: Vec<Run>) -> Result<u64, Cause> {
    let bytes: usize = runs.iter().map(|run| length(&run.range)).sum();
    let mut rest = VecDeque::from(runs);
    let (half, _) = take(&mut rest, (bytes / 2).max(LEAST));
    // Both here: a new thread has no memory yet that was used before.
    let (mut room, mut other_room) = (vec![0; AT_A_TIME], vec![0; AT_A_TIME]);
    std::thread::scope(|scope| {
        let other =
            (!rest.is_empty()).then(|| scope.spawn(|| copy_runs(source, destination, rest, &mut other_room)));
        let written = copy_runs(source, destination, half.into(), &mut room)?;
        let panicked = |_| doing("copy memory")(std::io::Error::other("whoever did it panicked"));
        Ok(written + other.map_or(Ok(Ok(0)), |other| other.join()).map_err(panicked)??)
    })
}

/// A bit at a time, small enough to stay near the processor.
fn copy_runs(
    source: &Memory,
    destination: &Memory,
    mut waiting: VecDeque<Run>,
    bytes: &mut [u8],
) -> Result<u64, Cause> {
    let mut written = 0;
    while !waiting.is_empty() {
        let (runs, used) = take(&mut waiting, bytes.len());
        source.read(&runs, &mut bytes[..used])?;
        written += destination.write(&runs, &bytes[..used])?;
    }
    Ok(written)
}

/// Takes runs off the front that fill at most `capacity` bytes together.
fn take(runs: &mut VecDeque<Run>, capacity: usize) -> (Vec<Run>, usize) {
    let mut taken = Vec::new();
    let mut used = 0;
    while let Some(run) = runs.front_mut() {
        let room = (capacity - used) as u64 / PAGE * PAGE;
        if room == 0 {
            break;
        }
        if run.range.end - run.range.start > room {
            let cut = run.range.start + room;
            taken.push(Run { range: run.range.start..cut, ..*run });
            run.range.start = cut;
            used += room as usize;
            break;
        }
        used += length(&run.range);
        taken.extend(runs.pop_front());
    }
    (taken, used)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(range: Range<u64>, empty: bool) -> Run {
        Run { range, writable: true, empty }
    }

    #[test]
    fn a_batch_never_exceeds_its_room() {
        let mut runs = [run(0..3 * PAGE, true), run(8 * PAGE..9 * PAGE, true)].into();
        let (taken, used) = take(&mut runs, 2 * PAGE as usize);
        assert_eq!((taken, used), (vec![run(0..2 * PAGE, true)], 2 * PAGE as usize));
        let (taken, used) = take(&mut runs, 8 * PAGE as usize);
        assert_eq!(taken, [run(2 * PAGE..3 * PAGE, true), run(8 * PAGE..9 * PAGE, true)]);
        assert_eq!((used, runs.len()), (2 * PAGE as usize, 0));
    }

    #[test]
    fn zeroes_are_left_out_only_where_there_are_zeroes() {
        let mut bytes = vec![0; 8 * PAGE as usize];
        bytes[PAGE as usize] = 1;
        bytes[3 * PAGE as usize] = 1;
        let found = |empty| -> Vec<(u64, usize)> {
            let runs = [run(10 * PAGE..18 * PAGE, empty)];
            pieces(&runs, &bytes).iter().map(|p| (p.address / PAGE, p.at.len() / PAGE as usize)).collect()
        };
        assert_eq!(found(true), [(11, 1), (13, 1)]);
        assert_eq!(found(false), [(10, 8)]);
    }
}
