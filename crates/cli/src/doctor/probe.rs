//! A sandbox that is made to see what this machine allows.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use sandstorm_provider::{CreateOptions, EndCause, Error, ExecEvent, ExecRequest, OpContext, Provider};
use sandstorm_types::{Enforcement, NetworkPolicy, SandboxId, SandboxSpec, TenantId, Walls};

use crate::local::Local;

/// What trying showed. The sandbox stays until [`Probe::end`], for questions to programs of this machine: those are as
/// little trusted as any other.
#[derive(Debug)]
pub(crate) struct Probe<'a> {
    engine: &'a Local,
    cx: OpContext,
    /// The sandbox and its walls, or why there is none.
    pub(crate) made: Result<Made, Error>,
    /// Why `--strict` is refused, if it is.
    pub(crate) strict: Result<(), Error>,
    /// Why no connection of a sandbox can be handed to the host, if so.
    pub(crate) network: Result<(), Error>,
}

#[derive(Debug)]
pub(crate) struct Made {
    id: SandboxId,
    pub(crate) walls: Walls,
    pub(crate) took: Duration,
}

impl<'a> Probe<'a> {
    pub(crate) fn make(engine: &'a Local) -> Self {
        let cx = OpContext::new(TenantId::LOCAL);
        let spec = SandboxSpec { enforcement: Enforcement::BestEffort, ..SandboxSpec::default() };
        let tried = |spec: SandboxSpec| create(engine, &cx, &spec).map(|made| destroy(engine, &cx, &made.id));
        let strict = tried(SandboxSpec { enforcement: Enforcement::Strict, ..spec.clone() });
        let network = tried(SandboxSpec { network: NetworkPolicy::Open, ..spec.clone() });
        let made = create(engine, &cx, &spec);
        Self { engine, cx, made, strict, network }
    }

    pub(crate) fn walls(&self) -> Option<&Walls> {
        self.made.as_ref().ok().map(|made| &made.walls)
    }

    /// What a program prints, if it ends well.
    pub(crate) fn ask(&self, argv: &[&str]) -> Option<String> {
        let made = self.made.as_ref().ok()?;
        self.engine.runtime.block_on(async {
            let request = ExecRequest::program(argv.iter().copied());
            let mut exec = self.engine.provider.exec(&self.cx, &made.id, request).await.ok()?;
            let mut said = Vec::new();
            while let Some(event) = exec.events.next().await {
                match event.ok()? {
                    ExecEvent::Output { bytes, .. } => said.extend_from_slice(&bytes),
                    ExecEvent::Exited(end) if end.cause != EndCause::Program => return None,
                    ExecEvent::Started | ExecEvent::Channel { .. } | ExecEvent::Exited(_) => {}
                }
            }
            Some(String::from_utf8_lossy(&said).into_owned())
        })
    }

    pub(crate) fn end(self) {
        if let Ok(made) = &self.made {
            destroy(self.engine, &self.cx, &made.id);
        }
    }
}

fn create(engine: &Local, cx: &OpContext, spec: &SandboxSpec) -> Result<Made, Error> {
    let options = CreateOptions::default();
    let id = options.id;
    let began = Instant::now();
    let sandbox = engine.runtime.block_on(engine.provider.create(cx, spec, options))?;
    Ok(Made { id, walls: sandbox.walls.unwrap_or_default(), took: began.elapsed() })
}

/// What is left after a failure goes with the launcher.
fn destroy(engine: &Local, cx: &OpContext, id: &SandboxId) {
    let _ = engine.runtime.block_on(engine.provider.destroy(cx, id));
}
