//! The whole of it, in order.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sandstorm_sys::ptrace::Traced;

use super::Guest;
use super::descriptors::Descriptors;
use super::error::{Cause, TransplantError, Who, doing};
use super::manners::{
    Treatment, carry_descriptors, carry_directory, carry_limits, carry_signals, carry_umask, signals,
};
use super::maps::Layout;
use super::memory::copy;
use super::pages::{Difference, PAGE, PageMap};
use super::patient::Patient;
use super::plan::{Change, changes};
use super::process::Process;
use super::source::{Examined, Source, State, waits_on};
use super::special::Special;
use super::status::{Status, birthmark};
use super::thread::ThreadData;
use crate::launcher::TransplantReport;

/// How long a guest may take to come to rest.
const PATIENCE: Duration = Duration::from_millis(100);
const A_MOMENT: Duration = Duration::from_micros(200);

pub(super) fn perform(
    source: Guest<'_>,
    destination: Guest<'_>,
) -> Result<TransplantReport, TransplantError> {
    let mut spoiled = false;
    operate(source, destination, &mut spoiled).map_err(|cause| TransplantError {
        // Of one that ends at any moment all sorts of things cannot be read.
        cause: if has_ended(&source).unwrap_or(false) { Cause::Gone(Who::Source) } else { cause },
        destination_spoiled: spoiled,
    })
}

fn operate(source: Guest<'_>, destination: Guest<'_>, spoiled: &mut bool) -> Result<TransplantReport, Cause> {
    let begun = Instant::now();
    let from = Process { who: Who::Source, pid: source.pid };
    let to = Process { who: Who::Destination, pid: destination.pid };
    // One that does something else is not even traced: that would interrupt what it waits for.
    wait_until_it_waits(&from)?;
    wait_until_it_waits(&to)?;
    let held = Source::hold(from, seize(&from, &source)?)?;
    let mut patient = Patient::stop(to, seize(&to, &destination)?)?;
    std::thread::scope(|scope| {
        // The kernel goes through all pages to write this down, which takes as long as all the rest.
        let mut special = Told::Later(scope.spawn(move || Special::of(&from)));
        let Findings { examined, layout, difference, own } =
            look((from, source.side), (&patient, destination.side), &mut special)?;
        *spoiled = true;
        patient.traced.end_with_us().map_err(doing("bind the destination's life to ours"))?;
        patient.discard(&difference.discard)?;
        patient.lay_out(&examined.layout, layout)?;
        let pages = copy(&examined.memory, &patient.memory, difference.copy)?;
        patient.leave_out(special.told()?, &examined.layout)?;
        let (state, stood) = held.finish(examined.descriptors.side)?;
        carry_the_rest(&mut patient, &examined, &own, &state)?;
        wake(patient, &state)?;
        Ok(TransplantReport {
            pages,
            bytes: pages * PAGE,
            microseconds: microseconds(begun.elapsed()),
            stopped_microseconds: microseconds(stood),
        })
    })
}

/// All but memory.
fn carry_the_rest(patient: &mut Patient, examined: &Examined, own: &Own, state: &State) -> Result<(), Cause> {
    let Own { status, descriptors, signal_changes, thread } = own;
    thread.restore(&patient.memory, state, (&examined.status, status))?;
    carry_signals(patient, signal_changes)?;
    carry_descriptors(patient, &examined.descriptors, descriptors)?;
    carry_directory(patient, &examined.directory)?;
    carry_umask(patient, &examined.status, status)?;
    carry_limits(patient, &examined.limits)?;
    patient.clear_up()
}

/// What is found out beside all the rest.
enum Told<'scope> {
    Later(std::thread::ScopedJoinHandle<'scope, Result<Special, Cause>>),
    Now(Special),
    Never,
}

impl Told<'_> {
    fn told(&mut self) -> Result<&Special, Cause> {
        if let Self::Later(_) = self
            && let Self::Later(looking) = std::mem::replace(self, Self::Never)
        {
            let panicked = |_| doing("look at the memory of the source")(broken());
            *self = Self::Now(looking.join().map_err(panicked)??);
        }
        match self {
            Self::Now(special) => Ok(special),
            _ => Err(doing("look at the memory of the source")(broken())),
        }
    }
}

/// What there is to know before the destination is touched; its own unless said otherwise.
struct Findings {
    /// All about the source.
    examined: Examined,
    layout: Layout,
    difference: Difference,
    own: Own,
}

/// The destination without its memory.
struct Own {
    status: Status,
    descriptors: Descriptors,
    signal_changes: Vec<(u32, Treatment)>,
    thread: ThreadData,
}

/// Looks at both. Nearly all that can be refused is refused here.
fn look(
    (from, from_side): (Process, Option<u64>),
    (patient, to_side): (&Patient, Option<u64>),
    special: &mut Told<'_>,
) -> Result<Findings, Cause> {
    let to = patient.process;
    let mut examined = Examined::of(from, from_side)?;
    let status = Status::of(&to)?;
    alike(&examined, &to, &status)?;
    let side = waits_on(&to, patient.behind.interrupted_call())?;
    let descriptors = Descriptors::of(&to, side, to_side)?;
    let signal_changes = signals(&examined.status, &status)?;
    let layout = Layout::of(&to)?;
    let thread = ThreadData::of(patient)?;
    let page_map = PageMap::of(to)?;
    let mut to_change = changes(&examined.layout, &layout);
    if to_change.as_ref().map_or(true, |changes| changes.iter().any(Change::maps_a_file)) {
        // Of what a fork leaves behind nothing has to be carried, so that nothing about it can be refused.
        examined.leave_behind(special.told()?);
        to_change = changes(&examined.layout, &layout);
    }
    // Worked out again when the heap has its size.
    let to_change = to_change?;
    if to_change.iter().any(Change::maps_a_file) {
        examined.layout.learn_paths(&from, &to_change)?;
        changes(&examined.layout, &layout)?;
    }
    let difference = examined.compare(&page_map, &layout)?;
    let own = Own { status, descriptors, signal_changes, thread };
    Ok(Findings { examined, layout, difference, own })
}

fn broken() -> std::io::Error {
    std::io::Error::other("whoever did it panicked")
}

/// A guest says that it is done, or ready, a moment before it waits for what comes next.
fn wait_until_it_waits(process: &Process) -> Result<(), Cause> {
    let begun = Instant::now();
    loop {
        match waits_on(process, process.sleeps_in()?) {
            Err(Cause::Refused(_)) if begun.elapsed() < PATIENCE => std::thread::sleep(A_MOMENT),
            result => return result.map(drop),
        }
    }
}

/// Begins to trace. The number is that of the process behind the descriptor, since that one is alive afterwards and a
/// number is not used twice before its first owner is collected.
fn seize(process: &Process, guest: &Guest<'_>) -> Result<Traced, Cause> {
    let traced = Traced::seize(guest.pid).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Cause::Gone(process.who),
        _ if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Cause::Gone(process.who),
        _ => doing(format!("trace the {}", process.who))(e),
    })?;
    match has_ended(guest) {
        Ok(false) => Ok(traced),
        Ok(true) => Err(Cause::Gone(process.who)),
        Err(e) => Err(doing(format!("look at the {}", process.who))(e.into())),
    }
}

fn has_ended(guest: &Guest<'_>) -> Result<bool, Errno> {
    let mut ended = [PollFd::new(&guest.pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ended, Some(&now)).map(|count| count > 0)
}

/// Are the two forks of one process, behind the same walls?
fn alike(source: &Examined, to: &Process, status: &Status) -> Result<(), Cause> {
    if source.birthmark != birthmark(to)? {
        return Err(Cause::Unlike("they are not forks of one process".to_owned()));
    }
    let differing = source.status.walls.iter().zip(&status.walls).find(|(one, other)| one != other);
    if let Some((source, destination)) = differing {
        return Err(Cause::Unlike(format!("{source} there, {destination} here")));
    }
    if status.threads != 1 {
        return Err(Cause::Unlike(format!("the destination has {} threads", status.threads)));
    }
    Ok(())
}

/// The last step: from here on it is the copy.
fn wake(patient: Patient, state: &State) -> Result<(), Cause> {
    let traced = patient.traced;
    traced.set_blocked_signals(state.blocked).map_err(doing("set the blocked signals"))?;
    traced.set_vector_state(&state.vectors).map_err(doing("set the vector registers"))?;
    traced.set_registers(&state.registers.restarted()).map_err(doing("set the registers"))?;
    traced.release().map_err(doing("let the destination go"))
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
