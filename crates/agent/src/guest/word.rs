//! What a guest says of its program on its side socket.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::io::Errno;
use sandstorm_sys::process::{Ending, Reaped};

use super::failure;
use crate::protocol::{self, StartFailure, TaskUsage};

/// How it says that its program begins.
const BEGUN: [u8; 4] = [0; 4];

/// Bytes of how it says that its program ends: status, microseconds of user and system time, peak memory.
const END: usize = 25;

/// All that a guest says of a program that it has from the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// The program ended with this status.
    Ended { ending: protocol::Ending, usage: TaskUsage },
    /// It never began.
    NotBegun(StartFailure),
}

impl Word {
    /// Longest one.
    pub const LONGEST: usize = 4096;

    /// What these bytes say. `None`: they are no whole word.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        if *length == BEGUN {
            let Reported { status, user, system, peak } = Reported::parse(rest.try_into().ok()?);
            let usage =
                TaskUsage { user_microseconds: user, system_microseconds: system, peak_memory_bytes: peak };
            return Some(Self::Ended { ending: protocol::Ending::Code(i32::from(status)), usage });
        }
        let (errno, step) = rest.split_first_chunk::<4>()?;
        let whole = u32::from_le_bytes(*length) as usize == rest.len();
        whole.then(|| Self::NotBegun(failure(&String::from_utf8_lossy(step), i32::from_le_bytes(*errno))))
    }
}

/// Reads how the program of a guest ends, after it was heard to begin. `None`: nothing yet.
pub(crate) fn last_word(side: BorrowedFd<'_>) -> Result<Option<Reaped>, Errno> {
    let mut word = [0; END];
    match rustix::io::read(side, &mut word) {
        Ok(END) => {}
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Ok(_) => return Err(Errno::PROTO),
        Err(e) => return Err(e),
    }
    let Reported { status, user, system, peak } = Reported::parse(&word);
    Ok(Some(Reaped {
        pid: 0,
        ending: Ending::Code(i32::from(status)),
        user_time: Duration::from_micros(user),
        system_time: Duration::from_micros(system),
        peak_memory_bytes: peak,
    }))
}

/// What a guest tells of the end of its program.
struct Reported {
    status: u8,
    user: u64,
    system: u64,
    peak: u64,
}

impl Reported {
    fn parse(word: &[u8; END]) -> Self {
        let number = |at: usize| word[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Self { status: word[0], user: number(1), system: number(9), peak: number(17) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole_or_none() {
        let mut end = vec![0; 4];
        end.push(3);
        end.extend([7u64, 8, 9].into_iter().flat_map(u64::to_le_bytes));
        let usage = TaskUsage { user_microseconds: 7, system_microseconds: 8, peak_memory_bytes: 9 };
        assert_eq!(Word::parse(&end), Some(Word::Ended { ending: protocol::Ending::Code(3), usage }));
        let refusal = [&9u32.to_le_bytes()[..], &2u32.to_le_bytes(), b"files"].concat();
        assert_eq!(Word::parse(&refusal), Some(Word::NotBegun(failure("files", 2))));
        for word in [end, refusal] {
            for length in 0..word.len() {
                assert_eq!(Word::parse(&word[..length]), None, "{length} bytes");
            }
            assert_eq!(Word::parse(&[&word[..], b"x"].concat()), None);
        }
    }
}
