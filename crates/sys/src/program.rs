//! The program's own code in memory.

use std::io;

use libc::c_void;

/// A large page, as all our processors have it.
const LARGE: usize = 2 << 20;
/// Since Linux 6.1.
const MADV_COLLAPSE: libc::c_int = 25;

/// Replaces the program's code, as far as it fills large pages, by a copy in such pages, and says how many bytes that are.
///
/// A request goes through many parts of a large program. From a file it is mapped in small pages, and after a pause each of
/// them has to be looked up again, in a virtual machine twice over. An error leaves everything as it was.
pub fn gather_program() -> io::Result<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let here = gather_program as *const () as usize;
    let code = maps.lines().filter_map(code_range).find(|&(start, end)| (start..end).contains(&here));
    let (start, end) = code.ok_or(io::ErrorKind::NotFound)?;
    let (start, end) = (start.next_multiple_of(LARGE), end / LARGE * LARGE);
    if start >= end {
        return Ok(0);
    }
    let copy = Copy::new(start, end - start)?;
    copy.take_the_place_of(start)?;
    Ok(end - start)
}

/// The addresses of a line of `/proc/self/maps` that tells of code which nobody writes to.
fn code_range(line: &str) -> Option<(usize, usize)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    rest.starts_with("r-xp").then_some((address(start)?, address(end)?))
}

/// Memory with a copy of code in large pages. What is around the copy was never touched, so it takes nothing.
struct Copy {
    room: *mut c_void,
    at: *mut c_void,
    size: usize,
}

impl Copy {
    fn new(from: usize, size: usize) -> io::Result<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, nobody else's.
        let room = unsafe { libc::mmap(std::ptr::null_mut(), size + LARGE, access, kind, -1, 0) };
        if room == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let ahead = (room as usize).next_multiple_of(LARGE) - room as usize;
        // SAFETY: within the room, which is larger by one large page.
        let at = unsafe { room.byte_add(ahead) };
        // SAFETY: `from` is mapped, readable and never written to; `at` has room for all of it and is nobody else's.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, at.cast::<u8>(), size) };
        let copy = Self { room, at, size };
        copy.make_code().inspect_err(|_| copy.free())?;
        Ok(copy)
    }

    fn make_code(&self) -> io::Result<()> {
        // SAFETY: it changes how the memory is kept, not what is in it.
        checked(unsafe { libc::madvise(self.at, self.size, MADV_COLLAPSE) })?;
        // SAFETY: our own memory, which nobody writes to from here on.
        checked(unsafe { libc::mprotect(self.at, self.size, libc::PROT_READ | libc::PROT_EXEC) })
    }

    /// One step of the kernel's: whoever runs this code goes on in the copy, which has the same bytes at the same addresses.
    fn take_the_place_of(self, code: usize) -> io::Result<()> {
        let (flags, to) = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, code as *mut c_void);
        // SAFETY: what is replaced is code that has the same bytes.
        let moved = unsafe { libc::mremap(self.at, self.size, self.size, flags, to) };
        if moved == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            self.free();
            return Err(error);
        }
        Ok(())
    }

    fn free(&self) {
        // SAFETY: our own memory, which nobody else knows of.
        let _ = unsafe { libc::munmap(self.room, self.size + LARGE) };
    }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_that_nobody_writes_is_taken() {
        assert_eq!(code_range("1000-3000 r-xp 00000000 fe:00 1 /a b"), Some((0x1000, 0x3000)));
        for other in ["1000-3000 rwxp 0 0 0", "1000-3000 r--p 0 0 0", "x-3000 r-xp", ""] {
            assert_eq!(code_range(other), None, "{other}");
        }
    }

    #[test]
    fn a_copy_takes_the_place_of_what_it_was_made_of() {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, nobody else's.
        let room = unsafe { libc::mmap(std::ptr::null_mut(), 2 * LARGE, access, kind, -1, 0) };
        assert_ne!(room, libc::MAP_FAILED);
        let start = (room as usize).next_multiple_of(LARGE);
        let bytes = || {
            // SAFETY: within the room, which stays for as long as the process.
            unsafe { std::slice::from_raw_parts(start as *const u8, LARGE) }
        };
        // SAFETY: the same; nobody looks at it meanwhile.
        unsafe { std::ptr::write_bytes(start as *mut u8, 7, LARGE) };
        match Copy::new(start, LARGE) {
            Ok(copy) => copy.take_the_place_of(start).unwrap(),
            // Only a kernel before 6.1 does not know of it.
            Err(error) => return assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}"),
        }
        assert!(bytes().iter().all(|byte| *byte == 7));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(
            maps.lines().filter_map(code_range).any(|range| range.0 <= start && range.1 >= start + LARGE)
        );
    }
}
