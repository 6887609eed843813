//! A sandbox that is made to see what this machine allows.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use sandstorm_provider::{CreateOptions, EndCause, Error, ExecEvent, ExecRequest, OpContext, Provider};
use sandstorm_types::{Enforcement, ErrorKind, NetworkPolicy, SandboxId, SandboxSpec, TenantId, Walls};

use crate::local::Local;

/// What trying showed. The sandbox stays until [`Probe::end`], for questions to programs of this machine: those are as
/// little trusted as any other.
#[derive(Debug)]
pub(crate) struct Probe<'a> {
    /// `None`: not even the engine started.
    engine: Option<&'a Local>,
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
        Self { engine: Some(engine), cx, made, strict, network }
    }

    /// What is known where the engine did not start: why.
    pub(crate) fn failed(why: anyhow::Error) -> Self {
        let error = |message: &'static str| Error::new(ErrorKind::Isolation, message);
        let untried = || Err(error("there was no engine to try it with"));
        Self {
            engine: None,
            cx: OpContext::new(TenantId::LOCAL),
            made: Err(error("the engine did not start").with_source(why)),
            strict: untried(),
            network: untried(),
        }
    }

    /// The engine, if it can make sandboxes.
    pub(crate) fn engine(&self) -> Option<&'a Local> {
        self.engine.filter(|_| self.made.is_ok())
    }

    pub(crate) fn walls(&self) -> Option<&Walls> {
        self.made.as_ref().ok().map(|made| &made.walls)
    }

    /// What a program prints, if it ends well.
    pub(crate) fn ask(&self, argv: &[&str]) -> Option<String> {
        let (engine, made) = (self.engine?, self.made.as_ref().ok()?);
        engine.runtime.block_on(async {
            let request = ExecRequest::program(argv.iter().copied());
            let mut exec = engine.provider.exec(&self.cx, &made.id, request).await.ok()?;
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
        if let (Some(engine), Ok(made)) = (self.engine, &self.made) {
            destroy(engine, &self.cx, &made.id);
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
