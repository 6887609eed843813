//! The mappings of a guest: asked for one by one, or read from `/proc/<pid>/maps` where the kernel cannot be asked.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::fd::AsFd;
use std::rc::Rc;

use sandstorm_sys::ptrace::{MappingFound, mapping_from};

use super::error::Cause;
use super::plan::Change;
use super::process::Process;

/// The kernel allows a process 65,530 mappings unless told otherwise.
const MOST_MAPPINGS: usize = 1 << 17;
const LARGEST_MAPS: u64 = 16 << 20;

/// Above it is only a page of the kernel's.
pub(super) const END_OF_USER_SPACE: u64 = 0x7fff_ffff_f000;

const READ: u8 = 1;
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
        device: (u32, u32),
        inode: u64,
        offset: u64,
        /// Empty where nobody needed it yet: see [`Layout::learn_paths`].
        path: Rc<str>,
    },
}

impl Backing {
    /// What is behind the address that lies `distance` into it.
    pub(super) fn at(&self, distance: u64) -> Self {
        match self {
            Self::File { device, inode, offset, path } => Self::File {
                device: *device,
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
        let unreadable = || Cause::refused(format!("the mappings of the {} cannot be read", process.who));
        match Self::ask(&process.open("maps")?) {
            Ok(layout) => layout.ok_or_else(unreadable),
            Err(e) if e.kind() == ErrorKind::Unsupported => {
                Self::parse(&process.text("maps", LARGEST_MAPS)?).ok_or_else(unreadable)
            }
            Err(e) => Err(process.failed("maps", e)),
        }
    }

    /// Asks the kernel, without the paths of files: to write those down takes as long as all the rest.
    fn ask(maps: &File) -> std::io::Result<Option<Self>> {
        let mut layout = Self { mappings: Vec::with_capacity(1024), heap_end: None };
        let mut name = Vec::new();
        let mut last = 0;
        while let Some(found) = mapping_from(maps.as_fd(), last, None)? {
            if found.start < last || found.end <= found.start || layout.mappings.len() >= MOST_MAPPINGS {
                return Ok(None);
            }
            last = found.end;
            name.clear();
            if (found.inode == 0 || found.shared)
                && mapping_from(maps.as_fd(), found.start, Some(&mut name))? != Some(found)
            {
                return Ok(None);
            }
            let name = String::from_utf8_lossy(&name);
            if found.inode == 0 && name == HEAP {
                layout.heap_end = Some(last);
            }
            let MappingFound { start, end, protection, shared, device, inode, offset } = found;
            let backing = backing((device, inode, offset), &name);
            layout.mappings.push(Mapping { range: start..end, protection, shared, backing });
        }
        Ok(Some(layout))
    }

    /// Finds out the paths of the files that have to be mapped.
    pub(super) fn learn_paths(&mut self, process: &Process, changes: &[Change]) -> Result<(), Cause> {
        let maps = process.open("maps")?;
        let mut name = Vec::new();
        for change in changes.iter().filter(|change| change.maps_a_file()) {
            let Change::Map(Mapping { range, .. }) = change else { continue };
            let after = self.mappings.partition_point(|mapping| mapping.range.start <= range.start);
            let Some(Mapping { backing: Backing::File { path, .. }, .. }) = self.mappings[..after].last_mut()
            else {
                continue;
            };
            if path.is_empty() {
                mapping_from(maps.as_fd(), range.start, Some(&mut name))
                    .map_err(|e| process.failed("maps", e))?;
                *path = String::from_utf8_lossy(&name).into();
            }
        }
        Ok(())
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

    /// As it is when the heap, which was not touched since the process began, has grown up to here.
    pub(super) fn grow_heap(&mut self, to: u64) {
        let Some(from) = self.heap_end.replace(to) else { return };
        let grown =
            Mapping { range: from..to, protection: READ | WRITE, shared: false, backing: Backing::Anonymous };
        let place = self.mappings.partition_point(|mapping| mapping.range.start < from);
        self.mappings.insert(place, grown);
    }

    /// The mapping that an address lies in.
    pub(super) fn at(&self, address: u64) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|mapping| mapping.range.start <= address);
        self.mappings[..after].last().filter(|mapping| address < mapping.range.end)
    }
}

/// `55d1-55e2 r-xp 00001000 fe:00 18500      /usr/bin/python3`; the second value: is it the heap?
pub(super) fn parse_line(line: &str) -> Option<(Mapping, bool)> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let flags = words.next()?.as_bytes();
    let offset = u64::from_str_radix(words.next()?, 16).ok()?;
    let (major, minor) = words.next()?.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode: u64 = words.next()?.parse().ok()?;
    let path = words.next().unwrap_or("").trim_start();
    let bit = |place: usize, letter, bit| if flags.get(place) == Some(&letter) { bit } else { 0 };
    let mapping = Mapping {
        range: u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?,
        protection: bit(0, b'r', READ) | bit(1, b'w', WRITE) | bit(2, b'x', 4),
        shared: *flags.get(3)? == b's',
        backing: backing((device, inode, offset), &path.replace("\\012", "\n")),
    };
    Some((mapping, path == HEAP && inode == 0))
}

const HEAP: &str = "[heap]";

fn backing((device, inode, offset): ((u32, u32), u64, u64), name: &str) -> Backing {
    match name {
        path if inode != 0 => Backing::File { device, inode, offset, path: path.into() },
        "[stack]" => Backing::Stack,
        HEAP | "" => Backing::Anonymous,
        name if name.starts_with("[anon:") => Backing::Anonymous,
        name => Backing::Kernel(name.into()),
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
        let file =
            Backing::File { device: (0xfe, 0), inode: 18500, offset: 0x1000, path: "/usr/bin/a b".into() };
        assert_eq!(layout.mappings[0].backing, file);
        assert!(layout.mappings[3].shared);
        assert_eq!(layout.mappings[4].backing, Backing::Anonymous);
        assert_eq!(layout.mappings[5].backing, Backing::Kernel("[vvar]".into()));
        assert_eq!(layout.at(0x2fff).unwrap().range, 0x1000..0x3000);
        assert_eq!(layout.at(0x3000), None);
    }

    #[test]
    fn a_heap_that_grew_is_one_more_mapping() {
        let text = "1000-2000 rw-p 00000000 00:00 0  [heap]\n9000-a000 rw-p 00000000 00:00 0 \n";
        let mut layout = Layout::parse(text).unwrap();
        layout.grow_heap(0x4000);
        let ranges: Vec<_> = layout.mappings.iter().map(|mapping| mapping.range.clone()).collect();
        assert_eq!(ranges, [0x1000..0x2000, 0x2000..0x4000, 0x9000..0xa000]);
        assert_eq!((layout.heap_end, layout.mappings[1].protection), (Some(0x4000), READ | WRITE));
    }

    /// Up to the paths of files, which are not asked for.
    #[test]
    fn the_kernel_says_what_it_writes() {
        let process = Process { who: crate::transplant::error::Who::Source, pid: std::process::id() as i32 };
        let mut asked = match Layout::ask(&process.open("maps").unwrap()) {
            Ok(layout) => layout.unwrap(),
            Err(e) => return assert_eq!(e.kind(), ErrorKind::Unsupported),
        };
        let written = Layout::parse(&process.text("maps", LARGEST_MAPS).unwrap()).unwrap();
        let files = |layout: &Layout| {
            let mut files = layout.clone();
            files.mappings.retain(|mapping| matches!(mapping.backing, Backing::File { .. }));
            files
        };
        // What is anonymous may change meanwhile: other tests run beside this one.
        let kernels = |layout: &Layout| {
            let is_kernels =
                |mapping: &&Mapping| matches!(mapping.backing, Backing::Kernel(_) | Backing::Stack);
            layout.mappings.iter().filter(is_kernels).cloned().collect::<Vec<_>>()
        };
        assert_eq!(kernels(&asked), kernels(&written));
        assert_eq!(asked.heap_end.is_some(), written.heap_end.is_some());
        let changes: Vec<_> = files(&written).mappings.into_iter().map(Change::Map).collect();
        asked.learn_paths(&process, &changes).unwrap();
        assert_eq!(files(&asked), Layout { heap_end: asked.heap_end, ..files(&written) });
    }

    #[test]
    fn disorder_is_refused() {
        assert_eq!(Layout::parse("2000-3000 rw-p 0 0:0 0 \n1000-2000 rw-p 0 0:0 0 \n"), None);
        assert_eq!(Layout::parse("3000-2000 rw-p 0 0:0 0 \n"), None);
        assert_eq!(Layout::parse("hello\n"), None);
    }
}
