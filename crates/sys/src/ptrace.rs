//! Other processes from outside: stopping them, their registers, calls in their name, their pages.
//!
//! Everything here acts on another process, which the kernel checks. Nothing reaches the caller's own memory: a process
//! cannot trace itself, and [`read_memory`] and [`write_memory`] refuse the caller's own number.

use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Numbers of the system calls that are made in another's name.
pub mod number {
    pub const BRK: i64 = libc::SYS_brk;
    pub const CHDIR: i64 = libc::SYS_chdir;
    pub const CLOSE: i64 = libc::SYS_close;
    pub const DUP3: i64 = libc::SYS_dup3;
    pub const MADVISE: i64 = libc::SYS_madvise;
    pub const MMAP: i64 = libc::SYS_mmap;
    pub const MPROTECT: i64 = libc::SYS_mprotect;
    pub const MUNMAP: i64 = libc::SYS_munmap;
    pub const OPENAT: i64 = libc::SYS_openat;
    pub const PRLIMIT: i64 = libc::SYS_prlimit64;
    pub const READ: i64 = libc::SYS_read;
    pub const RECVFROM: i64 = libc::SYS_recvfrom;
    pub const RECVMSG: i64 = libc::SYS_recvmsg;
    pub const SIGACTION: i64 = libc::SYS_rt_sigaction;
    pub const UMASK: i64 = libc::SYS_umask;
}

/// Their flags.
pub mod flag {
    pub const CLOSE_ON_EXEC: u64 = libc::O_CLOEXEC as u64;
    pub const DONT_NEED: u64 = libc::MADV_DONTNEED as u64;
    pub const HUGE_PAGES: u64 = libc::MADV_HUGEPAGE as u64;
    pub const MAP_ANONYMOUS: u64 = libc::MAP_ANONYMOUS as u64;
    pub const MAP_FIXED: u64 = libc::MAP_FIXED as u64;
    pub const MAP_FIXED_NOREPLACE: u64 = libc::MAP_FIXED_NOREPLACE as u64;
    pub const MAP_NORESERVE: u64 = libc::MAP_NORESERVE as u64;
    pub const MAP_PRIVATE: u64 = libc::MAP_PRIVATE as u64;
    pub const MAP_SHARED: u64 = libc::MAP_SHARED as u64;
    pub const NON_BLOCKING: u64 = libc::O_NONBLOCK as u64;
    pub const HERE: u64 = libc::AT_FDCWD as u64;
}

/// What a call that a signal interrupted has in its result register until the kernel starts it again.
pub const RESTART: i64 = -512;

/// The general registers.
#[derive(Debug, Clone, Copy)]
pub struct Registers(libc::user_regs_struct);

/// Length of the instruction that makes a system call.
const CALL_INSTRUCTION: [u8; 2] = [0x0f, 0x05];

impl Registers {
    /// The system call that the process is in, if it is in one that was interrupted and will start again, with its
    /// first argument.
    pub fn interrupted_call(&self) -> Option<(i64, u64)> {
        let number = self.0.orig_rax as i64;
        (number >= 0 && self.0.rax as i64 == RESTART).then_some((number, self.0.rdi))
    }

    /// Right behind the instruction that made the call, when in a call.
    pub fn instruction(&self) -> u64 {
        self.0.rip
    }

    /// Where thread-local data begins.
    pub fn thread_pointer(&self) -> u64 {
        self.0.fs_base
    }

    /// The same with the interrupted call about to begin anew. What the kernel would do on its own for a process that
    /// was interrupted in that call, but not for another that is given these registers.
    pub fn restarted(&self) -> Self {
        let mut registers = self.0;
        registers.rax = registers.orig_rax;
        registers.orig_rax = u64::MAX;
        registers.rip = registers.rip.wrapping_sub(CALL_INSTRUCTION.len() as u64);
        Self(registers)
    }

    /// About to make the given call with the call instruction that these registers stand behind.
    fn calling(&self, number: i64, arguments: [u64; 6]) -> Self {
        let mut registers = self.restarted().0;
        registers.rax = number as u64;
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] = arguments;
        Self(registers)
    }
}

/// Why a traced process stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It was asked to.
    Interrupted,
    /// It made one step.
    Stepped,
    /// A signal is about to reach it; it gets it when it is let go.
    Signal(i32),
}

/// A process that this thread traces. Let go when dropped, running as before; with `end_with_us` it is killed instead
/// unless [`Traced::release`] is called, and also when this process dies.
#[derive(Debug)]
pub struct Traced {
    pid: i32,
    stopped: bool,
    ended: bool,
    pending: i32,
    end_with_us: bool,
    /// The kernel knows the thread that traces, not its process.
    _of_this_thread: PhantomData<*const ()>,
}

impl Traced {
    /// Begins to trace a process, which goes on running.
    pub fn seize(pid: i32) -> io::Result<Self> {
        request(libc::PTRACE_SEIZE, pid, 0, 0)?;
        Ok(Self {
            pid,
            stopped: false,
            ended: false,
            pending: 0,
            end_with_us: false,
            _of_this_thread: PhantomData,
        })
    }

    /// From now on the process does not outlive its tracing unless it is released. It has to stand still.
    pub fn end_with_us(&mut self) -> io::Result<()> {
        request(libc::PTRACE_SETOPTIONS, self.pid, 0, libc::PTRACE_O_EXITKILL as usize)?;
        self.end_with_us = true;
        Ok(())
    }

    /// Stops it, wherever it is.
    pub fn interrupt(&mut self, patience: Duration) -> io::Result<Stop> {
        request(libc::PTRACE_INTERRUPT, self.pid, 0, 0)?;
        self.wait(patience)
    }

    /// Waits until it stands still. An error of kind `NotFound`: it has ended.
    fn wait(&mut self, patience: Duration) -> io::Result<Stop> {
        let begun = Instant::now();
        let mut turns = 0_u32;
        loop {
            let mut status = 0;
            // SAFETY: `status` is a live local variable.
            match unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL | libc::WNOHANG) } {
                0 => {}
                -1 => match io::Error::last_os_error() {
                    e if e.kind() == ErrorKind::Interrupted => {}
                    e => return Err(e),
                },
                _ if !libc::WIFSTOPPED(status) => {
                    self.ended = true;
                    return Err(ErrorKind::NotFound.into());
                }
                _ => return Ok(self.stood(status)),
            }
            if begun.elapsed() > patience {
                return Err(ErrorKind::TimedOut.into());
            }
            // A stop takes microseconds unless the process sits deep in the kernel.
            turns += 1;
            if turns < 1000 {
                std::thread::yield_now();
            } else {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    fn stood(&mut self, status: i32) -> Stop {
        self.stopped = true;
        self.pending = 0;
        match (libc::WSTOPSIG(status), status >> 16) {
            (libc::SIGTRAP, 0) => Stop::Stepped,
            (libc::SIGTRAP, libc::PTRACE_EVENT_STOP) => Stop::Interrupted,
            // Stopped by job control: letting go leaves it in that state.
            (signal, libc::PTRACE_EVENT_STOP) => Stop::Signal(signal),
            (signal, _) => {
                self.pending = signal;
                Stop::Signal(signal)
            }
        }
    }

    pub fn registers(&self) -> io::Result<Registers> {
        // SAFETY: the registers are plain data; all zeroes is a valid value.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        request(libc::PTRACE_GETREGS, self.pid, 0, &raw mut registers as usize)?;
        Ok(Registers(registers))
    }

    pub fn set_registers(&self, registers: &Registers) -> io::Result<()> {
        request(libc::PTRACE_SETREGS, self.pid, 0, &raw const registers.0 as usize)
    }

    /// The state of the floating-point and vector units, as the kernel lays it out.
    pub fn vector_state(&self) -> io::Result<Vec<u8>> {
        let mut state = vec![0_u8; 32 << 10];
        let mut vector = libc::iovec { iov_base: state.as_mut_ptr().cast(), iov_len: state.len() };
        request(libc::PTRACE_GETREGSET, self.pid, NT_X86_XSTATE, &raw mut vector as usize)?;
        state.truncate(vector.iov_len);
        Ok(state)
    }

    pub fn set_vector_state(&self, state: &[u8]) -> io::Result<()> {
        let vector = libc::iovec { iov_base: state.as_ptr().cast_mut().cast(), iov_len: state.len() };
        request(libc::PTRACE_SETREGSET, self.pid, NT_X86_XSTATE, &raw const vector as usize)
    }

    pub fn blocked_signals(&self) -> io::Result<u64> {
        let mut mask = 0_u64;
        request(PTRACE_GETSIGMASK, self.pid, size_of::<u64>(), &raw mut mask as usize)?;
        Ok(mask)
    }

    pub fn set_blocked_signals(&self, mask: u64) -> io::Result<()> {
        request(PTRACE_SETSIGMASK, self.pid, size_of::<u64>(), &raw const mask as usize)
    }

    /// Where the thread told the kernel to keep the number of its processor; `None` where it did not, or on a kernel
    /// that does not say.
    pub fn restartable_sequences(&self) -> Option<u64> {
        #[repr(C)]
        #[derive(Default)]
        struct Configuration {
            pointer: u64,
            size: u32,
            signature: u32,
            flags: u32,
            padding: u32,
        }
        let mut configuration = Configuration::default();
        let size = size_of::<Configuration>();
        request(PTRACE_GET_RSEQ_CONFIGURATION, self.pid, size, &raw mut configuration as usize).ok()?;
        (configuration.pointer != 0).then_some(configuration.pointer)
    }

    /// Makes the process, which stands behind a call instruction with these registers, do another call, and gives the
    /// result. Its registers are different afterwards.
    pub fn call(
        &mut self,
        behind: &Registers,
        number: i64,
        arguments: [u64; 6],
        patience: Duration,
    ) -> io::Result<u64> {
        self.set_registers(&behind.calling(number, arguments))?;
        request(libc::PTRACE_SINGLESTEP, self.pid, 0, 0)?;
        self.stopped = false;
        match self.wait(patience)? {
            Stop::Stepped => {}
            stop => return Err(io::Error::other(format!("{stop:?} came in between"))),
        }
        let result = self.registers()?.0.rax as i64;
        match result {
            -4095..0 => Err(io::Error::from_raw_os_error(-result as i32)),
            result => Ok(result as u64),
        }
    }

    /// Lets it go on with the registers it has.
    pub fn release(mut self) -> io::Result<()> {
        let released = request(libc::PTRACE_DETACH, self.pid, 0, self.pending as usize);
        if released.is_ok() {
            self.ended = true;
        }
        released
    }

    fn let_go(&mut self) {
        if self.end_with_us {
            // SAFETY: `kill` takes no pointer. The number is that of a process which we trace and did not collect.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            // Until its tracer has heard of its end, nobody else does.
            while self.wait(Duration::from_secs(5)).is_ok() {}
            return;
        }
        // Only one that stands still can be let go.
        if !self.stopped {
            let _ = self.interrupt(Duration::from_millis(200));
        }
        if !self.ended {
            let _ = request(libc::PTRACE_DETACH, self.pid, 0, self.pending as usize);
        }
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if !self.ended {
            self.let_go();
        }
    }
}

const NT_X86_XSTATE: usize = 0x202;
const PTRACE_GETSIGMASK: Request = 0x420a;
const PTRACE_SETSIGMASK: Request = 0x420b;
const PTRACE_GET_RSEQ_CONFIGURATION: Request = 0x420f;

#[cfg(target_env = "gnu")]
type Request = libc::c_uint;
#[cfg(not(target_env = "gnu"))]
type Request = libc::c_int;

/// Callers in this file pass as `data` what the request asks for: a number, or the address of live memory of the size
/// that the request fills or reads.
fn request(request: Request, pid: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: as above; the kernel reads and writes nothing else of ours.
    match unsafe { libc::ptrace(request, pid, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Is there a call instruction right before this address?
pub fn is_call(before: &[u8; 2]) -> bool {
    *before == CALL_INSTRUCTION
}

/// Reads pieces of another process's memory, one behind the other, and gives how many bytes came: fewer when a piece
/// cannot be read. At most 1024 pieces.
pub fn read_memory(pid: i32, pieces: &[(u64, usize)], into: &mut [u8]) -> io::Result<usize> {
    let remote = pieces_of(pid, pieces, into.len())?;
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: `local` is all of `into`; the remote pieces are addresses in another process, which the kernel checks.
    let read = unsafe {
        libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0)
    };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// The opposite of [`read_memory`].
pub fn write_memory(pid: i32, pieces: &[(u64, usize)], from: &[u8]) -> io::Result<usize> {
    let remote = pieces_of(pid, pieces, from.len())?;
    let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    // SAFETY: `local` is all of `from`, which is only read; the remote pieces are addresses in another process.
    let written = unsafe {
        libc::process_vm_writev(pid, &raw const local, 1, remote.as_ptr(), remote.len() as libc::c_ulong, 0)
    };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

fn pieces_of(pid: i32, pieces: &[(u64, usize)], length: usize) -> io::Result<Vec<libc::iovec>> {
    let total = pieces.iter().map(|(_, length)| length).sum::<usize>();
    if pid <= 0 || pid as u32 == std::process::id() || total != length || pieces.len() > 1024 {
        return Err(ErrorKind::InvalidInput.into());
    }
    let piece = |(address, length): &(u64, usize)| libc::iovec {
        iov_base: std::ptr::without_provenance_mut(*address as usize),
        iov_len: *length,
    };
    Ok(pieces.iter().map(piece).collect())
}

/// A stretch of memory whose pages are alike.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageRegion {
    pub start: u64,
    pub end: u64,
    categories: u64,
}

const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_ZERO: u64 = 1 << 5;

impl PageRegion {
    /// Does it hold something of the process's own: neither the file's page nor the page of zeroes?
    pub fn is_own(&self) -> bool {
        self.categories & (PAGE_IS_FILE | PAGE_IS_ZERO) == 0
    }
}

/// Fills `regions` with the populated stretches between two addresses, by the `pagemap` file of a process; gives how
/// many there are and the address up to which it looked.
pub fn populated(
    pagemap: BorrowedFd<'_>,
    start: u64,
    end: u64,
    regions: &mut [PageRegion],
) -> io::Result<(usize, u64)> {
    #[repr(C)]
    #[derive(Default)]
    struct Scan {
        size: u64,
        flags: u64,
        start: u64,
        end: u64,
        walked_to: u64,
        regions: u64,
        regions_length: u64,
        max_pages: u64,
        category_inverted: u64,
        category_mask: u64,
        category_any_of: u64,
        return_mask: u64,
    }
    const PAGEMAP_SCAN: u64 = 0xC060_6610;
    let mut scan = Scan {
        size: size_of::<Scan>() as u64,
        start,
        end,
        regions: regions.as_mut_ptr().expose_provenance() as u64,
        regions_length: regions.len() as u64,
        category_any_of: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
        return_mask: PAGE_IS_FILE | PAGE_IS_ZERO,
        ..Scan::default()
    };
    // SAFETY: `scan` has the layout and size that the kernel knows for this request, and tells it of as many regions as
    // there are; the kernel checks that the descriptor is of the right kind.
    let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut scan) };
    match usize::try_from(found) {
        Ok(found) => Ok((found, scan.walked_to)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// A mapping of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingFound {
    pub start: u64,
    pub end: u64,
    /// Read 1, write 2, execute 4.
    pub protection: u8,
    pub shared: bool,
    pub offset: u64,
    /// Major and minor number.
    pub device: (u32, u32),
    /// 0: there is no file behind it.
    pub inode: u64,
}

/// The first mapping that ends behind an address, by the `maps` file of a process; `None`: there is none. Its name comes
/// into `name`, where one is wanted: that of a file takes longer than all the rest. An error of kind `Unsupported`: this
/// kernel does not know the question.
pub fn mapping_from(
    maps: BorrowedFd<'_>,
    address: u64,
    name: Option<&mut Vec<u8>>,
) -> io::Result<Option<MappingFound>> {
    #[repr(C)]
    #[derive(Default)]
    struct Query {
        size: u64,
        flags: u64,
        address: u64,
        start: u64,
        end: u64,
        mapping_flags: u64,
        page_size: u64,
        offset: u64,
        inode: u64,
        major: u32,
        minor: u32,
        name_size: u32,
        build_id_size: u32,
        name: u64,
        build_id: u64,
    }
    const PROCMAP_QUERY: u64 = 0xC068_6611;
    const COVERING_OR_NEXT: u64 = 0x10;
    const SHARED: u64 = 8;
    /// As much as the kernel ever gives.
    const LONGEST_NAME: usize = 4096;
    let mut query =
        Query { size: size_of::<Query>() as u64, flags: COVERING_OR_NEXT, address, ..Query::default() };
    let mut room = name;
    if let Some(room) = &mut room {
        room.clear();
        room.resize(LONGEST_NAME, 0);
        query.name = room.as_mut_ptr().expose_provenance() as u64;
        query.name_size = room.len() as u32;
    }
    // SAFETY: `query` has the layout and size that the kernel knows for this request, and tells it how much room there is
    // for a name; the kernel checks that the descriptor is of the right kind.
    let asked = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY as _, &raw mut query) };
    if asked == -1 {
        return match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            e if e.raw_os_error() == Some(libc::ENOTTY) => Err(ErrorKind::Unsupported.into()),
            e => Err(e),
        };
    }
    if let Some(room) = room {
        // Its length is given with the zero behind it.
        room.truncate((query.name_size as usize).saturating_sub(1));
    }
    Ok(Some(MappingFound {
        start: query.start,
        end: query.end,
        protection: (query.mapping_flags & 7) as u8,
        shared: query.mapping_flags & SHARED != 0,
        offset: query.offset,
        device: (query.major, query.minor),
        inode: query.inode,
    }))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_callers_own_memory_is_out_of_reach() {
        let own = std::process::id() as i32;
        let mut byte = [7];
        let address = byte.as_ptr().expose_provenance() as u64;
        for pid in [own, 0, -1] {
            assert_eq!(write_memory(pid, &[(address, 1)], &[9]).unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(
                read_memory(pid, &[(address, 1)], &mut byte).unwrap_err().kind(),
                ErrorKind::InvalidInput
            );
        }
        assert_eq!(byte, [7]);
        assert!(Traced::seize(own).is_err());
    }

    #[test]
    fn a_mapping_is_found_by_an_address_in_it() {
        let maps = std::fs::File::open("/proc/self/maps").unwrap();
        let address = (populated as *const () as usize) as u64;
        let mut name = Vec::new();
        match mapping_from(maps.as_fd(), address, Some(&mut name)) {
            Ok(found) => {
                let found = found.unwrap();
                assert!(
                    (found.start..found.end).contains(&address) && found.protection & 4 != 0 && !found.shared
                );
                let program = std::env::current_exe().unwrap();
                assert_eq!(name, program.as_os_str().as_encoded_bytes());
                assert_eq!(mapping_from(maps.as_fd(), address, None).unwrap(), Some(found));
                assert_eq!(mapping_from(maps.as_fd(), 1 << 60, None).unwrap(), None);
            }
            Err(e) => assert_eq!(e.kind(), ErrorKind::Unsupported),
        }
    }

    #[test]
    fn pieces_and_bytes_have_to_fit() {
        assert_eq!(read_memory(1, &[(0, 2)], &mut [0]).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(write_memory(1, &[(0, 1); 1025], &[0; 1025]).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
