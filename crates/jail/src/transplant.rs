//! A live fork without a virtual machine: one guest interpreter goes on as a copy of another.
//!
//! Both are forks of one zygote process, so they have the same programs at the same addresses and still share the frames
//! of every page that neither has written to. The source sleeps between two cells, the destination waits for its job.
//! Pages that differ go over, mappings are made alike by system calls in the destination's own name (inside its walls,
//! past its filter), and the destination gets the source's registers. It then is the source, in its own jail, with its
//! own streams and side channel.
//!
//! The source is only read, and runs on as before whatever happens. It is not kept from waking up while its pages are
//! copied; at the end it is stopped for a moment, and if it has woken up meanwhile the copy is given up.
//!
//! What cannot be carried is refused by name: threads, child processes, open files, sockets, timers, shared memory. As
//! with `fork`, pending signals and interval timers are not inherited, and memory that a fork wipes is empty. Advice and
//! locks on memory and names of mappings are not carried, nor restrictions that the kernel does not show: a Landlock
//! domain that the source entered by itself is missing around the copy, which has the walls of its jail.
//!
//! No handler of a fork runs, neither libc's nor the interpreter's: a random generator that keeps its state in memory
//! gives the same numbers in both until somebody seeds it.
//!
//! Of the source nothing is trusted: what is read about it is bounded, and it may end at any moment. Whatever it put into
//! its memory and registers runs in the destination with the destination's rights.

#[cfg(target_arch = "x86_64")]
mod descriptors;
mod error;
#[cfg(target_arch = "x86_64")]
mod manners;
#[cfg(target_arch = "x86_64")]
mod maps;
#[cfg(target_arch = "x86_64")]
mod memory;
#[cfg(target_arch = "x86_64")]
mod operation;
#[cfg(target_arch = "x86_64")]
mod pages;
#[cfg(target_arch = "x86_64")]
mod patient;
#[cfg(target_arch = "x86_64")]
mod plan;
#[cfg(target_arch = "x86_64")]
mod process;
#[cfg(target_arch = "x86_64")]
mod source;
#[cfg(target_arch = "x86_64")]
mod special;
#[cfg(target_arch = "x86_64")]
mod status;
#[cfg(target_arch = "x86_64")]
mod thread;

use std::os::fd::BorrowedFd;

pub use error::{Cause, TransplantError, Who};

use crate::launcher::TransplantReport;

/// A guest interpreter as the host knows it.
#[derive(Debug, Clone, Copy)]
pub struct Guest<'a> {
    /// Its number on the host.
    pub pid: i32,
    pub pidfd: BorrowedFd<'a>,
    /// The inode of its own end of the side socket, where it is known: then nothing else passes for it.
    pub side: Option<u64>,
}

/// Makes `destination` go on as a copy of `source`. Both must be forks of one zygote and belong to one owner, which the
/// caller has checked.
///
/// Traces both from the calling thread and needs the rights of the host's root. Should the calling process die halfway,
/// the kernel lets the source go and kills the destination.
pub fn transplant(source: Guest<'_>, destination: Guest<'_>) -> Result<TransplantReport, TransplantError> {
    #[cfg(target_arch = "x86_64")]
    return operation::perform(source, destination);
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (source, destination);
        Err(TransplantError { cause: Cause::Unsupported, destination_spoiled: false })
    }
}
