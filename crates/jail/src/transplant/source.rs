//! The source: what is found out about it, and how it is known that it did not run meanwhile.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sandstorm_sys::ptrace::{Registers, Stop, Traced, number};

use super::descriptors::Descriptors;
use super::error::{Cause, doing};
use super::maps::Layout;
use super::memory::Memory;
use super::pages::{Difference, PageMap, difference};
use super::process::Process;
use super::special::Special;
use super::status::{Status, birthmark, limits};

/// A process that sleeps in a read stops at once.
const PATIENCE: Duration = Duration::from_secs(1);

/// Calls that a guest waits in.
const WAITING: [i64; 3] = [number::READ, number::RECVFROM, number::RECVMSG];

/// The descriptor that a guest waits on.
pub(super) fn waits_on(process: &Process, call: Option<(i64, u64)>) -> Result<i32, Cause> {
    let descriptor =
        call.filter(|(number, _)| WAITING.contains(number)).map(|(_, descriptor)| descriptor as i32);
    descriptor.ok_or_else(|| Cause::refused(format!("the {} is busy", process.who)))
}

/// The traced source. It sleeps in a read and is left there: as long as that read has not come back, no instruction of
/// its own was executed and nothing about it has changed. The kernel counts the reads of a process, those included that
/// were interrupted, so at the end, when it is stopped, there must be exactly one more. Where that cannot be seen it is
/// stopped at once.
#[derive(Debug)]
pub(super) struct Source {
    process: Process,
    traced: Traced,
    /// Reads that had come back when we began to look.
    reads: Option<u64>,
    since: Option<Instant>,
}

impl Source {
    pub(super) fn hold(process: Process, traced: Traced) -> Result<Self, Cause> {
        let reads = process.reads()?;
        let waits_in_read = matches!(process.sleeps_in()?, Some((number::READ, _)));
        let mut source = Self { process, traced, reads: reads.filter(|_| waits_in_read), since: None };
        if source.reads.is_none() {
            source.stop()?;
        }
        Ok(source)
    }

    fn stop(&mut self) -> Result<(), Cause> {
        self.since = Some(Instant::now());
        match self.traced.interrupt(PATIENCE) {
            Ok(Stop::Interrupted) => Ok(()),
            Ok(_) => Err(busy()),
            Err(e) if e.kind() == ErrorKind::NotFound => Err(Cause::Gone(self.process.who)),
            Err(e) => Err(doing("stop the source")(e)),
        }
    }

    /// Takes what the kernel keeps for it, lets it go, and says how long it stood still. Fails when it has run since
    /// [`Source::hold`], because then nothing that was read from it belongs together.
    pub(super) fn finish(mut self, side: i32) -> Result<(State, Duration), Cause> {
        if self.since.is_none() {
            self.stop()?;
        }
        let registers = self.traced.registers().map_err(doing("read the registers of the source"))?;
        if waits_on(&self.process, registers.interrupted_call())? != side {
            return Err(busy());
        }
        if let Some(before) = self.reads
            && self.process.reads()? != Some(before + 1)
        {
            return Err(busy());
        }
        let traced = &self.traced;
        let state = State {
            registers,
            vectors: traced.vector_state().map_err(doing("read the vector registers of the source"))?,
            blocked: traced.blocked_signals().map_err(doing("read the blocked signals of the source"))?,
            sequences: traced.restartable_sequences(),
        };
        drop(self.traced);
        Ok((state, self.since.map(|since| since.elapsed()).unwrap_or_default()))
    }
}

fn busy() -> Cause {
    Cause::refused("the source is busy")
}

/// What the kernel keeps for a thread.
#[derive(Debug)]
pub(super) struct State {
    pub(super) registers: Registers,
    pub(super) vectors: Vec<u8>,
    pub(super) blocked: u64,
    pub(super) sequences: Option<u64>,
}

/// What there is to know about it, all that would be refused excluded.
#[derive(Debug)]
pub(super) struct Examined {
    pub(super) status: Status,
    pub(super) birthmark: Vec<u64>,
    pub(super) descriptors: Descriptors,
    pub(super) directory: PathBuf,
    pub(super) limits: Vec<(u64, u64)>,
    pub(super) layout: Layout,
    pub(super) memory: Memory,
    pages: PageMap,
}

impl Examined {
    pub(super) fn of(process: Process, inode: Option<u64>) -> Result<Self, Cause> {
        let status = Status::of(&process)?;
        check(&process, &status)?;
        let side = waits_on(&process, process.sleeps_in()?)?;
        let descriptors = Descriptors::of(&process, side, inode)?;
        Ok(Self {
            status,
            birthmark: birthmark(&process)?,
            descriptors,
            directory: process.link("cwd")?.ok_or(Cause::Gone(process.who))?,
            limits: limits(&process)?,
            layout: Layout::of(&process)?,
            memory: Memory::to_read(process)?,
            pages: PageMap::of(process)?,
        })
    }

    /// What the destination lacks of it, and has too much.
    pub(super) fn compare(&self, pages: &PageMap, layout: &Layout) -> Result<Difference, Cause> {
        difference((&self.pages, &self.layout), (pages, layout))
    }

    /// Takes out what a fork does not have either.
    pub(super) fn leave_behind(&mut self, special: &Special) {
        self.layout.mappings.retain(|mapping| !special.left_behind.contains(&mapping.range));
    }
}

fn check(process: &Process, status: &Status) -> Result<(), Cause> {
    let refuse = |what: String| Err(Cause::refused(format!("the {} has {what}", process.who)));
    if status.threads != 1 {
        return refuse(format!("{} threads", status.threads));
    }
    if status.features {
        return refuse("a shadow stack".to_owned());
    }
    if process.has_children()? {
        return refuse("child processes".to_owned());
    }
    if process.has_timers()? {
        return refuse("timers".to_owned());
    }
    Ok(())
}
