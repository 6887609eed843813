//! The mappings of a guest, read from `/proc/<pid>/maps`, and the flags that only `smaps` shows.

use std::ops::Range;
use std::rc::Rc;

use super::error::Cause;
use super::process::Process;

/// The kernel allows a process 65,530 mappings unless told otherwise.
const LARGEST_MAPS: u64 = 16 << 20;
const LARGEST_SMAPS: u64 = 64 << 20;

/// Above it is only a page of the kernel's.
pub(super) const END_OF_USER_SPACE: u64 = 0x7fff_ffff_f000;

pub(super) const WRITE: u8 = 2;

/// A stretch of address space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) range: Range<u64>,
    /// Read 1, write 2, execute 4: the bits of `mmap`.
    pub(super) protection: u8,
    pub(super) shared: bool,
    pub(super) backing: Backing,
}

/// What is behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Backing {
    Anonymous,
    Stack,
    /// Put there by the kernel when the program was started; never touched.
    Kernel(Rc<str>),
    File {
        device: Rc<str>,
        inode: u64,
        offset: u64,
        path: Rc<str>,
    },
}

impl Backing {
    /// What is behind the address that lies `distance` into it.
    pub(super) fn at(&self, distance: u64) -> Self {
        match self {
            Self::File { device, inode, offset, path } => Self::File {
                device: Rc::clone(device),
                inode: *inode,
                offset: offset + distance,
                path: Rc::clone(path),
            },
            other => other.clone(),
        }
    }

    /// The same thing, by whatever name.
    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::File { device, inode, offset, .. },
                Self::File { device: other_device, inode: other_inode, offset: other_offset, .. },
            ) => (device, inode, offset) == (other_device, other_inode, other_offset),
            (one, other) => one == other,
        }
    }
}

/// All mappings in order, and the end of the heap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) mappings: Vec<Mapping>,
    pub(super) heap_end: Option<u64>,
}

impl Layout {
    pub(super) fn of(process: &Process) -> Result<Self, Cause> {
        Self::parse(&process.text("maps", LARGEST_MAPS)?)
            .ok_or_else(|| Cause::refused(format!("the mappings of the {} cannot be read", process.who)))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut layout = Self { mappings: Vec::with_capacity(256), heap_end: None };
        let mut last = 0;
        for line in text.lines() {
            let (mapping, is_heap) = parse_line(line)?;
            if mapping.range.start < last || mapping.range.end <= mapping.range.start {
                return None;
            }
            last = mapping.range.end;
            if is_heap {
                layout.heap_end = Some(last);
            }
            // The page of the kernel's is at the same place in every process and not below.
            if last <= END_OF_USER_SPACE {
                layout.mappings.push(mapping);
            }
        }
        Some(layout)
    }

    /// The mapping that an address lies in.
    pub(super) fn at(&self, address: u64) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|mapping| mapping.range.start <= address);
        self.mappings[..after].last().filter(|mapping| address < mapping.range.end)
    }
}

/// `55d1-55e2 r-xp 00001000 fe:00 18500      /usr/bin/python3`; the second value: is it the heap?
fn parse_line(line: &str) -> Option<(Mapping, bool)> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let flags = words.next()?.as_bytes();
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let device = words.next()?;
    let inode: u64 = words.next()?.parse().ok()?;
    let path = words.next().unwrap_or("").trim_start();
    let bit = |place: usize, letter, bit| if flags.get(place) == Some(&letter) { bit } else { 0 };
    let backing = match path {
        _ if inode != 0 => {
            Backing::File { device: device.into(), inode, offset, path: path.replace("\\012", "\n").into() }
        }
        "[stack]" => Backing::Stack,
        "[heap]" | "" => Backing::Anonymous,
        name if name.starts_with("[anon:") => Backing::Anonymous,
        name => Backing::Kernel(name.into()),
    };
    let mapping = Mapping {
        range: u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?,
        protection: bit(0, b'r', 1) | bit(1, b'w', WRITE) | bit(2, b'x', 4),
        shared: *flags.get(3)? == b's',
        backing,
    };
    Some((mapping, path == "[heap]" && inode == 0))
}

/// Mappings that a fork treats in its own way.
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
        let text = process.text("smaps", LARGEST_SMAPS)?;
        Self::parse(&text)
            .ok_or_else(|| Cause::refused(format!("the mappings of the {} cannot be read", process.who)))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut special = Self::default();
        let mut header = "";
        for line in text.lines() {
            // Lines about a mapping begin with a capital letter, the next mapping with a hexadecimal number.
            if !line.as_bytes().first()?.is_ascii_uppercase() {
                header = line;
            } else if let Some(flags) = line.strip_prefix("VmFlags:") {
                let has = |flag| flags.split_ascii_whitespace().any(|f| f == flag);
                let range = || parse_line(header).map(|(mapping, _)| mapping.range);
                if has("wf") || has("dp") {
                    special.wiped.push(range()?);
                } else if has("dc") && !has("pf") && !has("io") && !has("de") {
                    special.left_behind.push(range()?);
                } else if has("um") || has("uw") || has("ht") || has("ss") {
                    special.refused = Some(format!("memory of a special kind at {:x}", range()?.start));
                }
            } else if let Some(key) = line.strip_prefix("ProtectionKey:")
                && key.trim() != "0"
            {
                special.refused = Some("memory with a protection key".to_owned());
            }
        }
        Some(special)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_kind() {
        let layout = Layout::parse(
            "1000-3000 r-xp 00001000 fe:00 18500                      /usr/bin/a b\n\
             4000-5000 rw-p 00000000 00:00 0                          [heap]\n\
             6000-7000 rw-p 00000000 00:00 0 \n\
             7000-8000 r--s 00000000 00:01 9                          /dev/zero (deleted)\n\
             8000-9000 rw-p 00000000 00:00 0                          [anon:name]\n\
             a000-b000 r--p 00000000 00:00 0                          [vvar]\n\
             7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0          [stack]\n\
             ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n",
        )
        .unwrap();
        assert_eq!(layout.heap_end, Some(0x5000));
        assert_eq!(layout.mappings.len(), 7);
        assert_eq!(layout.mappings[0].protection, 5);
        let file = Backing::File {
            device: "fe:00".into(),
            inode: 18500,
            offset: 0x1000,
            path: "/usr/bin/a b".into(),
        };
        assert_eq!(layout.mappings[0].backing, file);
        assert!(layout.mappings[3].shared);
        assert_eq!(layout.mappings[4].backing, Backing::Anonymous);
        assert_eq!(layout.mappings[5].backing, Backing::Kernel("[vvar]".into()));
        assert_eq!(layout.at(0x2fff).unwrap().range, 0x1000..0x3000);
        assert_eq!(layout.at(0x3000), None);
    }

    #[test]
    fn disorder_is_refused() {
        assert_eq!(Layout::parse("2000-3000 rw-p 0 0:0 0 \n1000-2000 rw-p 0 0:0 0 \n"), None);
        assert_eq!(Layout::parse("3000-2000 rw-p 0 0:0 0 \n"), None);
        assert_eq!(Layout::parse("hello\n"), None);
    }

    #[test]
    fn flags_of_a_fork() {
        let special = Special::parse(
            "1000-2000 rw-p 00000000 00:00 0 \nSize: 4 kB\nVmFlags: rd wr mr mw me ac wf sd \n\
             2000-3000 rw-p 00000000 00:00 0 \nVmFlags: rd wr mr mw me dc ac sd \n\
             3000-4000 rw-p 00000000 00:00 0 \nProtectionKey: 0\nVmFlags: rd wr mr mw me ac sd \n\
             4000-5000 r--p 00000000 00:00 0  [vvar]\nVmFlags: rd mr pf io de dd \n",
        )
        .unwrap();
        assert_eq!(special.refused, None);
        let kept = Special::parse("1000-2000 rw-p 0 0:0 0 \nProtectionKey:       2\n").unwrap();
        assert!(kept.refused.is_some());
        assert!(matches!(&special.wiped[..], [range] if *range == (0x1000..0x2000)));
        assert!(matches!(&special.left_behind[..], [range] if *range == (0x2000..0x3000)));
    }
}
