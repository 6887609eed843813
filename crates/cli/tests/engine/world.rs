//! What a case works with.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use sandstorm_provider::{CreateOptions, HostMount, OpContext, Provider};
use sandstorm_types::{ByteSize, Enforcement, Limits, SandboxId, SandboxSpec, TenantId};

pub(crate) type Run = for<'a> fn(&'a World) -> Pin<Box<dyn Future<Output = ()> + 'a>>;
pub(crate) type Case = (&'static str, Run);

/// How long anything may take that has to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The provider under test.
pub(crate) struct World {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) cx: OpContext,
    pub(crate) limits: Limits,
}

impl World {
    pub(crate) fn new(provider: Arc<dyn Provider>) -> Self {
        let limits =
            Limits { memory: ByteSize::mib(1024), wall: Duration::from_secs(300), ..Limits::default() };
        Self { provider, cx: OpContext::new(TenantId::LOCAL), limits }
    }

    pub(crate) async fn sandbox(&self, mounts: &[PathBuf]) -> SandboxId {
        let spec = SandboxSpec {
            limits: self.limits,
            enforcement: Enforcement::BestEffort,
            ..SandboxSpec::default()
        };
        let mounts =
            mounts.iter().map(|path| HostMount { source: path.clone(), target: path.clone() }).collect();
        let options = CreateOptions { mounts, ..CreateOptions::default() };
        self.provider.create(&self.cx, &spec, options).await.unwrap().id
    }

    pub(crate) async fn destroy(&self, sandbox: SandboxId) {
        self.provider.destroy(&self.cx, &sandbox).await.unwrap();
    }
}
