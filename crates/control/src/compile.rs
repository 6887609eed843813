//! Compiling in a sandbox of its own, with limits of its own, once for each input.

use bytes::Bytes;
use sandstorm_language::{CacheKey, CompilePlan, cache_key, layout};
use sandstorm_provider::{
    ByteStream, CreateOptions, EndCause, Error, ExecRequest, ExecStatus, FileOp, FileReply, OpContext,
    Result, Sandbox,
};
use sandstorm_types::{
    ByteSize, EnvMap, ErrorKind, GuestPath, Lifetime, LimitName, Limits, NetworkPolicy, OnEnd, SandboxSpec,
    TenantId, Walls,
};
use std::time::Duration;

use crate::artifact::{Artifact, Refuge, spool, unpack, unusable};
use crate::execute::{Executed, execute};
use crate::prepare::Prepared;
use crate::reserve::BUILD_CPUS;
use crate::run::{Phase, RunEvent, RunInput, Runner};
use crate::spool::Spools;
use crate::warmth::Warmth;

/// What came of a compile.
#[derive(Debug)]
pub(crate) enum Compiled {
    /// An archive of the build folder.
    Artifact(Artifact),
    /// The compiler said no, behind these walls.
    Refused(Box<Executed>, Box<Walls>),
}

/// Largest artifact that is carried over.
const MOST: u64 = 1 << 30;

impl Runner {
    /// The artifact of a run that needs one, from the cache or fresh.
    pub(crate) async fn compiled(
        &self,
        cx: &OpContext,
        prepared: &Prepared,
        plan: &CompilePlan,
        enforcement: sandstorm_types::Enforcement,
        events: Option<&tokio::sync::mpsc::Sender<RunEvent>>,
    ) -> Result<Compiled> {
        let key = artifact_key(cx.tenant(), prepared, plan);
        if let Some(artifact) = self.cache.as_ref().and_then(|cache| cache.get(&key)) {
            return Ok(Compiled::Artifact(artifact));
        }
        if let Some(events) = events {
            let _ = events.send(RunEvent::Phase(Phase::Compiling(prepared.language.title.clone()))).await;
        }
        let spec = SandboxSpec {
            limits: compile_limits(plan, prepared),
            enforcement,
            network: NetworkPolicy::None,
            lifetime: Lifetime { after: plan.limits.wall() + Duration::from_secs(60), then: OnEnd::Delete },
            ..SandboxSpec::default()
        };
        let warmth = self.warmth(cx, prepared, plan);
        let _first = match &warmth {
            Some(warmth) => warmth.wait_for_first(cx).await?,
            None => None,
        };
        let options = CreateOptions {
            pooled: prepared.layers.is_empty(),
            mounts: prepared.mounts(),
            ephemeral: true,
            ..CreateOptions::default()
        };
        let id = options.id;
        let sandbox = self.workshop.create(cx, &spec, options).await?;
        let compiled = self.compile_in(cx, &sandbox, prepared, plan, warmth.as_ref(), &key).await;
        self.workshop.destroy(&OpContext::new(cx.tenant()), &id).await?;
        compiled
    }

    async fn compile_in(
        &self,
        cx: &OpContext,
        sandbox: &Sandbox,
        prepared: &Prepared,
        plan: &CompilePlan,
        warmth: Option<&Warmth<'_>>,
        key: &CacheKey,
    ) -> Result<Compiled> {
        let id = &sandbox.id;
        let provider = &*self.workshop;
        let build = guest_path(layout::BUILD)?;
        provider.files(cx, id, FileOp::MakeDir { path: build.clone() }).await?;
        let mut request = ExecRequest::program(plan.plan.argv.clone());
        request.files = prepared.user_files();
        for support in &plan.plan.files {
            request.files.push((guest_path(&support.path)?, Bytes::from_static(support.text.as_bytes())));
        }
        request.env = environment(&plan.plan.env)?;
        if let Some(warmth) = warmth {
            warmth.bring(provider, cx, id).await?;
        }
        let executed = execute(provider, cx, id, request, RunInput::Empty, None, Spools::Memory).await?;
        if let Some(warmth) = warmth {
            warmth.keep(provider, cx, id, &executed.end).await;
        }
        if executed.end.cause == EndCause::Program && executed.end.status == ExecStatus::Code(0) {
            let FileReply::Archive(archive) = provider.files(cx, id, FileOp::Pack { path: build }).await?
            else {
                return Err(Error::new(ErrorKind::Internal, "packing gave no archive"));
            };
            return self.keep_artifact(archive, key).await.map(Compiled::Artifact);
        }
        Ok(Compiled::Refused(Box::new(executed), Box::new(sandbox.stated_walls())))
    }

    /// Writes what the compiler made to a file, which the cache keeps where there is one.
    async fn keep_artifact(&self, archive: ByteStream, key: &CacheKey) -> Result<Artifact> {
        let unwritable = |e| unusable("what the compiler made cannot be kept", e);
        let place = self.cache.as_ref().and_then(|cache| match cache.begin() {
            Ok(file) => Some((cache, file)),
            Err(error) => {
                tracing::warn!(%error, "the compile cache cannot be written");
                None
            }
        });
        let Some((cache, file)) = place else {
            let file = self.spools.file().map_err(unwritable)?;
            let file = spool(archive, file, MOST).await?;
            return Artifact::of(file).map_err(unwritable);
        };
        let roomy = spool(archive, Refuge::new(file, self.spools.clone()), MOST).await?;
        let file = match roomy.finish() {
            Ok(file) => file,
            Err((elsewhere, error)) => {
                tracing::warn!(%error, "the compile cache cannot be written");
                return Artifact::of(elsewhere).map_err(unwritable);
            }
        };
        // Not by its name: by then another's entry may have pushed it out.
        let artifact = file.as_file().try_clone().and_then(Artifact::of).map_err(unwritable)?;
        if let Err(error) = cache.put(key, file) {
            tracing::warn!(%error, "the compile cache cannot be written");
        }
        Ok(artifact)
    }

    /// Puts an artifact into the sandbox that will run it.
    pub(crate) async fn place_artifact(
        &self,
        cx: &OpContext,
        id: &sandstorm_types::SandboxId,
        artifact: Artifact,
    ) -> Result<()> {
        let build = guest_path(layout::BUILD)?;
        self.provider.files(cx, id, FileOp::MakeDir { path: build.clone() }).await?;
        unpack(&*self.provider, cx, id, build, artifact.content()).await
    }
}

/// By what an artifact is kept.
pub(crate) fn artifact_key(tenant: TenantId, prepared: &Prepared, plan: &CompilePlan) -> CacheKey {
    let files: Vec<(&str, &[u8])> =
        prepared.files.iter().map(|(path, content)| (path.as_str(), content.as_ref())).collect();
    cache_key(&tenant.to_string(), prepared.language, &prepared.toolchain, &plan.plan, files)
}

/// What a compiler may write.
pub(crate) const DISK: ByteSize = ByteSize::mib(1024);

/// A compiler gets what its language says, whatever the run is limited to.
fn compile_limits(plan: &CompilePlan, prepared: &Prepared) -> Limits {
    let (run, memory) = (&prepared.limits, ByteSize::mib(plan.limits.memory_mib));
    let build = prepared.reserve.as_ref().map(|reserve| reserve.build);
    Limits {
        wall: plan.limits.wall(),
        cpu_time: None,
        cpus: run.cpus.max(build.map_or(BUILD_CPUS, |build| build.cpus)),
        memory: build.map_or(memory, |build| memory.min(build.memory)),
        disk: DISK,
        output: ByteSize::mib(1),
        processes: run.processes.max(256),
        open_files: run.open_files.max(1024),
        inodes: run.inodes.max(100_000),
    }
}

/// A path of ours inside a sandbox.
pub(crate) fn guest_path(path: &str) -> Result<GuestPath> {
    path.parse()
        .map_err(|e| Error::new(ErrorKind::Internal, "a path of the catalogue is malformed").with_source(e))
}

/// Variables of a plan; the catalogue is ours, so a bad name is a bug.
pub(crate) fn environment(env: &std::collections::BTreeMap<String, String>) -> Result<EnvMap> {
    let mut map = EnvMap::new();
    for (name, value) in env {
        let bad = |e: sandstorm_types::EnvError| {
            Error::new(ErrorKind::Internal, "a variable of the catalogue").with_source(e)
        };
        map.insert(name.parse().map_err(bad)?, value.clone()).map_err(bad)?;
    }
    Ok(map)
}

/// The limit that ended a program, if one did.
pub(crate) fn limit(cause: EndCause) -> Option<LimitName> {
    match cause {
        EndCause::Limit(name) => Some(name),
        EndCause::Program | EndCause::Caller | EndCause::Sandbox | EndCause::Compiler => None,
    }
}
