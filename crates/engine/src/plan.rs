//! From what a caller wants to what the launcher builds.

use std::time::Duration;

use sandstorm_jail::template::{self, Additions};
use sandstorm_jail::{JailLimits, JailSpec, Network, OnMemory, Strictness, Tree};
use sandstorm_provider::CreateOptions;
use sandstorm_types::{Enforcement, NetworkPolicy, OnEnd, SandboxSpec};

/// A jail for this sandbox. `trees` are mounted beside the host's own. The lifetime of one that outlives this process can
/// be extended, so it is left to whoever keeps its clock; without anybody the launcher ends it as an orphan.
pub(crate) fn jail(spec: &SandboxSpec, options: &CreateOptions, trees: Vec<Tree>, kept: bool) -> JailSpec {
    let limits = &spec.limits;
    let captured = spec.network != NetworkPolicy::None;
    // One that is kept may get a network later; until then the address leads nowhere, and look-ups fail at once.
    let additions = Additions {
        trees,
        name_server: (captured || kept).then(|| sandstorm_jail::network::NAMESERVER.into()),
    };
    JailSpec {
        name: options.id.bare(),
        hostname: "sandbox".to_owned(),
        root: template::host(limits.disk.as_u64(), limits.inodes, additions),
        limits: JailLimits {
            memory_bytes: limits.memory.as_u64(),
            // PID 1 and a file helper beside it are ours, not the caller's.
            processes: u64::from(limits.processes) + 2,
            cpu_milli: u64::from(limits.cpus.milli()),
            cpu_time: limits.cpu_time,
            open_files: u64::from(limits.open_files),
        },
        network: if captured { Network::Captured } else { Network::Loopback },
        strictness: match spec.enforcement {
            Enforcement::Strict => Strictness::Strict,
            Enforcement::BestEffort => Strictness::BestEffort,
        },
        // Where one program after the other runs, the end of one is not the end of the others.
        on_memory: if options.ephemeral { OnMemory::EndAll } else { OnMemory::EndProcess },
        lifetime: if kept { None } else { lifetime(spec) },
        strict_filter: false,
    }
}

/// The launcher's own clock is the backstop of a lifetime that ends in deletion.
fn lifetime(spec: &SandboxSpec) -> Option<Duration> {
    (spec.lifetime.then == OnEnd::Delete).then(|| spec.lifetime.after.saturating_add(Duration::from_secs(1)))
}
