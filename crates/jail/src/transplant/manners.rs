//! What else makes a process: signals, descriptors, working directory, file mode mask, limits.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sandstorm_sys::ptrace::{flag, number};

use super::descriptors::Descriptors;
use super::error::Cause;
use super::patient::Patient;
use super::status::{Status, limits};

const INTERRUPT: u32 = 2;
const DEFAULT: u64 = 0;
const IGNORE: u64 = 1;
/// SIGKILL and SIGSTOP cannot be changed. 32 and 33 belong to libc: a process that has had a second thread catches
/// them, and only for the sake of other threads.
const UNTOUCHED: [u32; 4] = [9, 19, 32, 33];
/// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: who catches these does it in a way of his own.
const FAULTS: [u32; 7] = [4, 5, 6, 7, 8, 11, 31];

/// Bytes of the kernel's `struct sigaction`: handler, flags, restorer, mask.
const ACTION: usize = 32;
const MASK_SIZE: u64 = 8;

/// What to do about a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    Ignore,
    Default,
    /// Caught as the interpreter catches the interrupt.
    Catch,
}

/// What has to change so that the destination does with each signal what the source does.
///
/// The kernel shows which signals a process catches, not where. An interpreter catches all of them at one place and
/// keeps its own table behind that, in memory; the destination shows the place with the interrupt, which every
/// interpreter catches from its start.
pub(super) fn signals(source: &Status, destination: &Status) -> Result<Vec<(u32, Treatment)>, Cause> {
    let is = |mask: u64, signal: u32| mask >> (signal - 1) & 1 == 1;
    let mut changes = Vec::new();
    for signal in (1..=64).filter(|signal| !UNTOUCHED.contains(signal)) {
        let wanted = (is(source.ignored, signal), is(source.caught, signal));
        let found = (is(destination.ignored, signal), is(destination.caught, signal));
        match wanted {
            wanted if wanted == found => {}
            (true, _) => changes.push((signal, Treatment::Ignore)),
            (false, false) => changes.push((signal, Treatment::Default)),
            (false, true) if is(destination.caught, INTERRUPT) && !FAULTS.contains(&signal) => {
                changes.push((signal, Treatment::Catch));
            }
            (false, true) => {
                return Err(Cause::refused(format!(
                    "the source catches signal {signal} in a way of its own"
                )));
            }
        }
    }
    Ok(changes)
}

pub(super) fn carry_signals(patient: &mut Patient, changes: &[(u32, Treatment)]) -> Result<(), Cause> {
    // The interrupt itself may be among the changes.
    let interpreters = match changes.iter().any(|(_, treatment)| *treatment == Treatment::Catch) {
        true => get(patient, INTERRUPT)?,
        false => action(DEFAULT),
    };
    changes.iter().try_for_each(|(signal, treatment)| {
        let action = match treatment {
            Treatment::Ignore => action(IGNORE),
            Treatment::Default => action(DEFAULT),
            Treatment::Catch => interpreters,
        };
        set(patient, *signal, &action)
    })
}

fn action(handler: u64) -> [u8; ACTION] {
    let mut action = [0; ACTION];
    action[..8].copy_from_slice(&handler.to_ne_bytes());
    action
}

fn get(patient: &mut Patient, signal: u32) -> Result<[u8; ACTION], Cause> {
    let mut action = [0; ACTION];
    let place = patient.put(&action)?;
    patient.call("look at a signal", number::SIGACTION, &[signal.into(), 0, place, MASK_SIZE])?;
    patient.memory.read_at(place, &mut action)?;
    Ok(action)
}

fn set(patient: &mut Patient, signal: u32, action: &[u8; ACTION]) -> Result<(), Cause> {
    let place = patient.put(action)?;
    patient.call("set a signal", number::SIGACTION, &[signal.into(), place, 0, MASK_SIZE]).map(drop)
}

/// The side channel at the source's number, and no stream that the source has closed.
pub(super) fn carry_descriptors(
    patient: &mut Patient,
    source: &Descriptors,
    destination: &Descriptors,
) -> Result<(), Cause> {
    for stream in 0..3 {
        match (source.streams[stream], destination.streams[stream]) {
            (false, true) => drop(patient.call("close a stream", number::CLOSE, &[stream as u64])?),
            (true, false) => return Err(Cause::Unlike(format!("the destination has no stream {stream}"))),
            _ => {}
        }
    }
    let (from, to) = (destination.side as u64, source.side as u64);
    if from != to {
        let flags = if source.close_on_exec { flag::CLOSE_ON_EXEC } else { 0 };
        patient.call("place the side channel", number::DUP3, &[from, to, flags])?;
        patient.call("close the side channel's first number", number::CLOSE, &[from])?;
    }
    Ok(())
}

/// By its name below the root of the sandbox, which is how the kernel shows it: the root of a jail is the root of its
/// mount namespace.
pub(super) fn carry_directory(patient: &mut Patient, wanted: &Path) -> Result<(), Cause> {
    if patient.process.link("cwd")?.as_deref() == Some(wanted) {
        return Ok(());
    }
    let missing = || Cause::refused(format!("the destination has no working directory {}", wanted.display()));
    let path = patient.put(&[wanted.as_os_str().as_bytes(), &[0]].concat())?;
    patient.call("change the working directory", number::CHDIR, &[path]).map_err(|_| missing())?;
    match patient.process.link("cwd")? {
        Some(found) if found == wanted => Ok(()),
        _ => Err(missing()),
    }
}

pub(super) fn carry_umask(patient: &mut Patient, source: &Status, destination: &Status) -> Result<(), Cause> {
    if source.umask != destination.umask {
        patient.call("set the file mode mask", number::UMASK, &[source.umask])?;
    }
    Ok(())
}

/// Limits can be lowered by the process itself, so there is nothing that the destination may not do in its own name.
pub(super) fn carry_limits(patient: &mut Patient, wanted: &[(u64, u64)]) -> Result<(), Cause> {
    let found = limits(&patient.process)?;
    for (resource, (wanted, found)) in wanted.iter().zip(&found).enumerate() {
        if wanted != found {
            let place = patient.put(&[wanted.0.to_ne_bytes(), wanted.1.to_ne_bytes()].concat())?;
            patient.call("set a limit", number::PRLIMIT, &[0, resource as u64, place, 0])?;
        }
    }
    Ok(())
}
