//! What a case works with: a provider, sandboxes that are removed afterwards, and ways to say what is wrong.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::TryStreamExt;
use sandstorm_types::{ErrorKind, GuestPath, SandboxId, SandboxSpec, TenantId};

use crate::{
    Collected, CreateOptions, Error, Exec, ExecEvent, ExecRequest, FileOp, FileReply, ListFilter, OpContext,
    Provider, ProviderExt, Result, Sandbox,
};

/// The end of a case that did not simply pass.
#[derive(Debug)]
pub(super) enum Failure {
    Failed(String),
    Skipped(String),
}

pub(super) type Verdict<T = ()> = std::result::Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let causes = std::iter::successors(std::error::Error::source(&error), |cause| cause.source());
        let causes: String = causes.map(|cause| format!(": {cause}")).collect();
        Self::Failed(format!("{} error: {error}{causes}", error.kind()))
    }
}

/// Ends the case with a reason unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            return Err($crate::conformance::trial::Failure::Failed(format!($($reason)+)));
        }
    };
}

pub(super) use ensure;

/// Ends the case unless both are equal.
pub(super) fn same<T: fmt::Debug + PartialEq>(what: &str, found: T, wanted: T) -> Verdict {
    ensure!(found == wanted, "{what} is {found:?}, not {wanted:?}");
    Ok(())
}

/// Ends the case unless the bytes are these, and shows them readably.
pub(super) fn same_bytes(what: &str, found: impl AsRef<[u8]>, wanted: impl AsRef<[u8]>) -> Verdict {
    let (found, wanted) = (found.as_ref(), wanted.as_ref());
    ensure!(found == wanted, "{what} is \"{}\", not \"{}\"", found.escape_ascii(), wanted.escape_ascii());
    Ok(())
}

/// Ends the case unless the operation fails with this kind.
pub(super) fn fails<T: fmt::Debug>(what: &str, result: Result<T>, wanted: ErrorKind) -> Verdict {
    match result {
        Err(error) if error.kind() == wanted => Ok(()),
        Err(error) => {
            Err(Failure::Failed(format!("{what} fails with {}, not {wanted}: {error}", error.kind())))
        }
        Ok(done) => Err(Failure::Failed(format!("{what} succeeds ({done:?}) where {wanted} is due"))),
    }
}

pub(super) fn path(text: &str) -> GuestPath {
    text.parse().expect("paths in the suite are paths")
}

#[derive(Debug)]
pub(super) struct Trial<'a> {
    pub(super) provider: &'a dyn Provider,
    pub(super) cx: OpContext,
    base: SandboxSpec,
    made: Mutex<Vec<SandboxId>>,
}

impl<'a> Trial<'a> {
    pub(super) fn new(provider: &'a dyn Provider, base: &SandboxSpec) -> Self {
        let cx = OpContext::new(TenantId::random());
        Self { provider, cx, base: base.clone(), made: Mutex::default() }
    }

    pub(super) fn spec(&self) -> SandboxSpec {
        self.base.clone()
    }

    /// An id whose sandbox is removed when the case is over.
    pub(super) fn id(&self) -> SandboxId {
        let id = SandboxId::random();
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        id
    }

    pub(super) async fn sandbox(&self) -> Result<SandboxId> {
        self.sandbox_of(&self.base).await
    }

    pub(super) async fn sandbox_of(&self, spec: &SandboxSpec) -> Result<SandboxId> {
        let opts = CreateOptions { id: self.id(), ..CreateOptions::default() };
        self.provider.create(&self.cx, spec, opts).await.map(|sandbox| sandbox.id)
    }

    /// Removes every sandbox of the case and looks whether they are gone.
    pub(super) async fn clean_up(&self) -> std::result::Result<(), String> {
        let made = std::mem::take(&mut *self.made.lock().unwrap_or_else(PoisonError::into_inner));
        let cx = OpContext::new(self.cx.tenant()).with_timeout(Duration::from_secs(30));
        for id in &made {
            self.provider
                .destroy(&cx, id)
                .await
                .map_err(|error| format!("{id} cannot be destroyed: {error}"))?;
        }
        let alive = self.alive(&cx).await.map_err(|error| format!("sandboxes cannot be listed: {error}"))?;
        match made.iter().find(|id| alive.contains(id)) {
            Some(id) => Err(format!("{id} is still listed after it was destroyed")),
            None => Ok(()),
        }
    }

    async fn alive(&self, cx: &OpContext) -> Result<Vec<SandboxId>> {
        self.provider
            .list(cx, ListFilter::default())
            .map_ok(|sandbox: Sandbox| sandbox.id)
            .try_collect()
            .await
    }

    pub(super) async fn run(&self, id: &SandboxId, req: ExecRequest) -> Result<Collected> {
        self.provider.exec_collect(&self.cx, id, req).await
    }

    /// Standard output of a program that has to succeed.
    pub(super) async fn output(&self, id: &SandboxId, req: ExecRequest) -> Verdict<Bytes> {
        let command = format!("{:?}", req.command);
        let Collected { stdout, stderr, end } = self.run(id, req).await?;
        ensure!(end.status == crate::ExecStatus::Code(0), "{command} ended with {end:?}, saying {stderr:?}");
        Ok(stdout)
    }

    pub(super) async fn write(&self, id: &SandboxId, at: &str, bytes: impl Into<Bytes>) -> Result<()> {
        self.provider.write_bytes(&self.cx, id, &path(at), bytes.into()).await
    }

    pub(super) async fn read(&self, id: &SandboxId, at: &str) -> Result<Bytes> {
        self.provider.read_bytes(&self.cx, id, &path(at), 64 << 20).await
    }

    pub(super) async fn files(&self, id: &SandboxId, op: FileOp) -> Result<FileReply> {
        self.provider.files(&self.cx, id, op).await
    }
}

/// Reads events until this many bytes of standard output are there.
pub(super) async fn read_output(exec: &mut Exec, wanted: usize) -> Verdict<Vec<u8>> {
    let mut seen = Vec::new();
    while seen.len() < wanted {
        match exec.events.try_next().await? {
            Some(ExecEvent::Output { bytes, .. }) => seen.extend_from_slice(&bytes),
            Some(ExecEvent::Started) => {}
            other => return Err(Failure::Failed(format!("output ended with {other:?} after {seen:?}"))),
        }
    }
    Ok(seen)
}
