//! What the launcher tells the agent first: who the payload is and what each of its processes may have.

use std::io;
use std::os::fd::OwnedFd;

use sandstorm_agent::protocol::{Init, Rlimit, ToAgent};

use crate::error::{JailError, doing};
use crate::seccomp::Program;
use crate::spec::{JailSpec, PAYLOAD_ID};

/// A limit of a process: which, soft, hard.
pub(super) type Limit = (Rlimit, u64, u64);

/// The first message to the agent: what the launcher decided for everything that will run.
pub(super) fn introduce(control: &OwnedFd, filter: &Program, rlimits: Vec<Limit>) -> Result<(), JailError> {
    let init = Init {
        version: sandstorm_agent::protocol::VERSION,
        uid: PAYLOAD_ID,
        gid: PAYLOAD_ID,
        filter: filter.bytes(),
        rlimits,
    };
    let frame = sandstorm_agent::frame::encode(&ToAgent::Init(init))
        .map_err(|e| doing("encode")(io::Error::other(e)))?;
    let mut rest = frame.as_slice();
    while !rest.is_empty() {
        let n = rustix::io::write(control, rest).map_err(doing("speak to the agent"))?;
        rest = &rest[n..];
    }
    Ok(())
}

/// Limits of each process. A hard limit can only be lowered, so each is at most what PID 1 has: as much as this process,
/// but for `descriptors`. Without groups they are all there is.
pub(super) fn rlimits(spec: &JailSpec, grouped: bool, descriptors: rustix::process::Rlimit) -> Vec<Limit> {
    use rustix::process::Resource;
    let at_most = |resource: Resource, wanted: u64| {
        rustix::process::getrlimit(resource).maximum.map_or(wanted, |have| have.min(wanted))
    };
    let open_files = spec.limits.open_files;
    let mut limits = vec![
        // 0 still starts a handler that the host's core pattern pipes to; 1 is the kernel's word for "not even that".
        (Rlimit::Core, at_most(Resource::Core, 1)),
        (Rlimit::OpenFiles, descriptors.maximum.map_or(open_files, |have| have.min(open_files))),
        (Rlimit::Processes, at_most(Resource::Nproc, spec.limits.processes)),
        (Rlimit::LockedMemory, at_most(Resource::Memlock, 8 << 20)),
        (Rlimit::MessageQueues, 0),
        (Rlimit::Nice, 0),
        (Rlimit::RealTimePriority, 0),
        (Rlimit::PendingSignals, at_most(Resource::Sigpending, 4096)),
        (Rlimit::Stack, at_most(Resource::Stack, 64 << 20)),
    ];
    if !grouped {
        // Counts what can be written to and is not shared; address space that is only reserved, as every virtual
        // machine does it, is free.
        limits.push((Rlimit::Data, at_most(Resource::Data, spec.limits.memory_bytes)));
    }
    if let Some(time) = spec.limits.cpu_time {
        // Per process, and so only the second line behind the group's counter.
        limits.push((Rlimit::CpuSeconds, at_most(Resource::Cpu, time.as_secs().saturating_add(2))));
    }
    limits
        .into_iter()
        .map(|(limit, hard)| (limit, if limit == Rlimit::Stack { hard.min(8 << 20) } else { hard }, hard))
        .collect()
}

/// A limit by the kernel's number for it.
pub(super) fn numbered((limit, soft, hard): Limit) -> (u32, u64, u64) {
    let number = match limit {
        Rlimit::CpuSeconds => 0,
        Rlimit::FileSize => 1,
        Rlimit::Data => 2,
        Rlimit::Stack => 3,
        Rlimit::Core => 4,
        Rlimit::Processes => 6,
        Rlimit::OpenFiles => 7,
        Rlimit::LockedMemory => 8,
        Rlimit::AddressSpace => 9,
        Rlimit::PendingSignals => 11,
        Rlimit::MessageQueues => 12,
        Rlimit::Nice => 13,
        Rlimit::RealTimePriority => 14,
        Rlimit::RealTimeTime => 15,
    };
    (number, soft, hard)
}
