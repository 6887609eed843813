//! Mappings that a fork treats in its own way. Only `/proc/<pid>/smaps` tells, and long-windedly.

use std::io::Read;
use std::ops::Range;

use super::error::Cause;
use super::maps::parse_line;
use super::process::Process;

const LARGEST: u64 = 64 << 20;
/// The kernel gives a few kibibytes at a time.
const AT_A_TIME: usize = 16 << 10;
/// Longer than any line, paths included.
const LONGEST_LINE: usize = 64 << 10;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Special {
    /// Empty in a child: fresh randomness is kept there, which two processes must not share.
    pub(super) wiped: Vec<Range<u64>>,
    /// Not there in a child.
    pub(super) left_behind: Vec<Range<u64>>,
    /// Of a kind that is not carried, in words.
    pub(super) refused: Option<String>,
}

impl Special {
    pub(super) fn of(process: &Process) -> Result<Self, Cause> {
        let unreadable = || Cause::refused(format!("the mappings of the {} cannot be read", process.who));
        let mut file = process.open("smaps")?.take(LARGEST);
        let mut reading = Reading::default();
        let mut bytes = vec![0; AT_A_TIME];
        loop {
            match file.read(&mut bytes).map_err(|e| process.failed("smaps", e))? {
                0 if file.limit() > 0 => return reading.finish().ok_or_else(unreadable),
                0 => return Err(unreadable()),
                count => reading.take_in(&bytes[..count]).ok_or_else(unreadable)?,
            }
        }
    }
}

/// A text of which there is more to come.
#[derive(Default)]
struct Reading {
    special: Special,
    /// The mapping that the lines are about.
    header: String,
    /// The beginning of a line.
    rest: Vec<u8>,
}

impl Reading {
    fn take_in(&mut self, bytes: &[u8]) -> Option<()> {
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
        lines.try_for_each(|line| match line.split_last() {
            Some((b'\n', line)) if self.rest.is_empty() => self.hear(line),
            Some((b'\n', line)) => {
                let line = [&std::mem::take(&mut self.rest), line].concat();
                self.hear(&line)
            }
            _ => {
                self.rest.extend_from_slice(line);
                (self.rest.len() <= LONGEST_LINE).then_some(())
            }
        })
    }

    fn finish(self) -> Option<Special> {
        self.rest.is_empty().then_some(self.special)
    }

    /// Lines about a mapping begin with a capital letter, the next mapping with a hexadecimal number.
    fn hear(&mut self, line: &[u8]) -> Option<()> {
        match line {
            [b'V', ..] if line.starts_with(b"VmFlags:") => self.hear_flags(&line[8..]),
            [b'P', ..] if line.starts_with(b"ProtectionKey:") => {
                if line[14..].trim_ascii() != b"0" {
                    self.special.refused = Some("memory with a protection key".to_owned());
                }
                Some(())
            }
            [first, ..] if first.is_ascii_uppercase() => Some(()),
            _ => {
                self.header.clear();
                self.header.push_str(&String::from_utf8_lossy(line));
                Some(())
            }
        }
    }

    fn hear_flags(&mut self, flags: &[u8]) -> Option<()> {
        let (mut wiped, mut left, mut kernels, mut refused) = (false, false, false, false);
        for flag in flags.split(|byte| *byte == b' ') {
            match flag {
                b"wf" | b"dp" => wiped = true,
                b"dc" => left = true,
                b"pf" | b"io" | b"de" => kernels = true,
                b"um" | b"uw" | b"ht" | b"ss" => refused = true,
                _ => {}
            }
        }
        let range = || parse_line(&self.header).map(|(mapping, _)| mapping.range);
        if wiped {
            self.special.wiped.push(range()?);
        } else if left && !kernels {
            self.special.left_behind.push(range()?);
        } else if refused {
            self.special.refused = Some(format!("memory of a special kind at {:x}", range()?.start));
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Special {
        let whole = |size: usize| {
            let mut reading = Reading::default();
            text.as_bytes().chunks(size).for_each(|piece| reading.take_in(piece).unwrap());
            reading.finish().unwrap()
        };
        // However it is cut.
        assert!((1..50).all(|size| whole(size) == whole(text.len())));
        whole(text.len())
    }

    #[test]
    fn flags_of_a_fork() {
        let text = "1000-2000 rw-p 00000000 00:00 0 \nSize: 4 kB\nVmFlags: rd wr mr mw me ac wf sd \n\
             2000-3000 rw-p 00000000 00:00 0 \nVmFlags: rd wr mr mw me dc ac sd \n\
             3000-4000 rw-p 00000000 00:00 0 \nProtectionKey: 0\nVmFlags: rd wr mr mw me ac sd \n\
             4000-5000 r--p 00000000 00:00 0  [vvar]\nVmFlags: rd mr pf io de dd \n";
        let special = parse(text);
        assert_eq!(special.refused, None);
        let kept = parse("1000-2000 rw-p 0 0:0 0 \nProtectionKey:       2\n");
        assert!(kept.refused.is_some());
        assert!(matches!(&special.wiped[..], [range] if *range == (0x1000..0x2000)));
        assert!(matches!(&special.left_behind[..], [range] if *range == (0x2000..0x3000)));
    }

    #[test]
    fn half_a_text_is_refused() {
        let mut reading = Reading::default();
        reading.take_in(b"1000-2000 rw-p 0 0:0 0 \nVmFlags: rd").unwrap();
        assert_eq!(reading.finish(), None);
        let mut reading = Reading::default();
        assert_eq!(reading.take_in(b"VmFlags: wf\n"), None, "flags of nothing");
        assert_eq!(Reading::default().take_in(&[b'x'; LONGEST_LINE + 1]), None);
    }
}
