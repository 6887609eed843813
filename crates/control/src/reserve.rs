//! Memory of this machine that a run needs at its height: its own sandbox, and those that install and compile for it.

use std::sync::Arc;

use sandstorm_types::{ByteSize, Enforcement, Limits, MilliCpus, RunSpec, Space, TenantId};

use crate::compile::{self, artifact_key};
use crate::layers::Wanted;
use crate::prepare::Prepared;
use crate::run::Runner;
use crate::server::{Promise, RunGuard};

/// What a run was promised, for whoever finds out that it needs less.
#[derive(Debug)]
pub(crate) struct Reserve {
    pub(crate) promise: Arc<Promise>,
    /// The same of the tenant's quota.
    pub(crate) hold: Arc<RunGuard>,
    pub(crate) height: ByteSize,
    /// The most that one of the sandboxes may have that install and compile.
    pub(crate) build: Room,
    /// What is needed once everything was installed and compiled.
    pub(crate) run: ByteSize,
}

/// The most that there is for those that install and compile: what the machine has, and no more than the quota of the tenant
/// whose work they do. Else they would wait for ever for what they never get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) memory: ByteSize,
    pub(crate) cpus: MilliCpus,
}

/// Processors of a sandbox that installs or compiles, whatever the run is limited to.
pub(crate) const BUILD_CPUS: MilliCpus = MilliCpus::new(2000);

/// What a run needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Height {
    pub(crate) all: ByteSize,
    /// Sandboxes of one run take turns with their processors, also where two of them are there.
    pub(crate) cpus: MilliCpus,
    pub(crate) build: Room,
    /// What may be written meanwhile, beside what an installation takes in all.
    pub(crate) space: ByteSize,
}

/// The most memory that a full writable space takes where that is in memory: bytes, and what the kernel keeps of each file.
/// One on disk takes none.
pub(crate) fn space(limits: &Limits, lies: Space) -> ByteSize {
    if lies == Space::Disk {
        return ByteSize::bytes(0);
    }
    ByteSize::bytes(limits.disk.as_u64().saturating_add(limits.inodes.saturating_mul(1024)))
}

impl Runner {
    /// What a run needs where there is `most` at all. What was installed or compiled before is not done again.
    pub(crate) fn height(&self, tenant: TenantId, spec: &RunSpec, prepared: &Prepared, most: Room) -> Height {
        let (own, cpus) = (prepared.limits.memory, BUILD_CPUS.min(most.cpus));
        let most = most.memory;
        // Where there is a choice of places, the sandbox is there before its program is compiled.
        let beside = if self.fleet.is_some() { own } else { ByteSize::bytes(0) };
        let room = ByteSize::bytes(most.as_u64().saturating_sub(beside.as_u64()));
        let install = prepared.recipe.zip(self.layers.as_ref()).and_then(|(recipe, layers)| {
            layers.memory_to_make(&Wanted {
                recipe,
                toolchain: &prepared.toolchain,
                requirements: &spec.requirements,
                enforcement: spec.enforcement.unwrap_or(Enforcement::Strict),
            })
        });
        let kept =
            |plan| self.cache.as_ref().is_some_and(|cache| cache.has(&artifact_key(tenant, prepared, plan)));
        // What is installed counts for what is compiled, so that nobody knows yet what that will be.
        let compile = prepared.compile.as_ref().filter(|plan| prepared.recipe.is_some() || !kept(plan));
        let compile = compile.map(|plan| ByteSize::mib(plan.limits.memory_mib).min(room));
        let install = install.map(|memory| memory.min(most));
        let beside = compile.map(|compile| ByteSize::bytes(compile.as_u64() + beside.as_u64()));
        let own_space = space(&prepared.limits, spec.space);
        let space = match compile {
            Some(_) => ByteSize::bytes(own_space.as_u64() + compile::DISK.as_u64()),
            None => own_space,
        };
        let all = [Some(own), install, beside].into_iter().flatten().max().unwrap_or(own);
        let builds = install.is_some() || compile.is_some();
        let build = Room { memory: install.max(compile).unwrap_or(room), cpus };
        let cpus = if builds { prepared.limits.cpus.max(cpus) } else { prepared.limits.cpus };
        Height { all, cpus, build, space }
    }
}

impl Reserve {
    /// It may come to this machine, and be built there. `false`: others have its memory meanwhile, or wait for it.
    pub(crate) fn take_again(&self) -> bool {
        self.hold.hold_height();
        self.promise.take_again(self.height)
    }
}

impl Prepared {
    /// Everything was installed and compiled: what is left to do is limited as the run is.
    pub(crate) fn built(&self) {
        if let Some(reserve) = &self.reserve {
            reserve.promise.shrink(reserve.run);
            reserve.hold.hold(&self.limits);
        }
    }
}
