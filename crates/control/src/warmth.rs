//! What a compiler built on the way and can use again, kept from one compile to the next.
//!
//! A Go program is compiled in a fifth of a second once the standard packages that it imports are built, and in ten
//! seconds before. Building all of them in advance takes a minute and a half, for which nobody waits; so each compile
//! starts from what earlier ones built, and only the first to import a package pays for it. What is kept belongs to one
//! tenant and one toolchain, since the compiler that wrote it read that tenant's code.

use std::fs::{File, TryLockError};
use std::time::Duration;

use sandstorm_language::{CacheKey, CompilePlan, Plan, cache_key, layout};
use sandstorm_provider::{EndCause, Error, ExecEnd, FileOp, FileReply, OpContext, Provider, Result};
use sandstorm_types::{ErrorKind, SandboxId};

use crate::artifact::{spool, unpack};
use crate::compile::guest_path;
use crate::compile_cache::CompileCache;
use crate::prepare::Prepared;
use crate::run::Runner;

/// A compile that took less built nothing that is worth carrying around.
const WORTH_KEEPING: Duration = Duration::from_millis(500);

/// Past this it costs more to bring than it saves: the next compile starts cold.
const MOST: u64 = 384 << 20;

/// Between two looks at a lock that somebody else holds.
const PATIENCE: Duration = Duration::from_millis(100);

/// The kept part of one tenant's compiles with one toolchain.
#[derive(Debug)]
pub(crate) struct Warmth<'a> {
    cache: &'a CompileCache,
    key: CacheKey,
}

impl Runner {
    /// What is kept for compiles like this one, where anything is.
    pub(crate) fn warmth(
        &self,
        cx: &OpContext,
        prepared: &Prepared,
        plan: &CompilePlan,
    ) -> Option<Warmth<'_>> {
        let cache = self.cache.as_ref().filter(|_| plan.warm)?;
        // The settings of the compiler count, its arguments do not.
        let settings = Plan { argv: Vec::new(), files: Vec::new(), ..plan.plan.clone() };
        let key = cache_key(&cx.tenant().to_string(), prepared.language, &prepared.toolchain, &settings, []);
        Some(Warmth { cache, key })
    }
}

impl Warmth<'_> {
    /// Waits while somebody else builds what nobody has built yet: who comes first builds for all. The lock is held
    /// by whoever has to build.
    pub(crate) async fn wait_for_first(&self, cx: &OpContext) -> Result<Option<File>> {
        // Without a place for the lock there is none for what it would wait for.
        let Ok(lock) = self.cache.lock(&self.key) else { return Ok(None) };
        loop {
            if self.cache.has(&self.key) {
                return Ok(None);
            }
            match lock.try_lock() {
                Ok(()) if self.cache.has(&self.key) => return Ok(None),
                Ok(()) => return Ok(Some(lock)),
                Err(TryLockError::WouldBlock) => {
                    let wait = async {
                        tokio::time::sleep(PATIENCE).await;
                        Ok(())
                    };
                    cx.run("compile", wait).await?;
                }
                Err(TryLockError::Error(_)) => return Ok(None),
            }
        }
    }

    /// Lays out what earlier compiles left.
    pub(crate) async fn bring(
        &self,
        provider: &dyn Provider,
        cx: &OpContext,
        sandbox: &SandboxId,
    ) -> Result<()> {
        let warm = guest_path(layout::WARM)?;
        provider.files(cx, sandbox, FileOp::MakeDir { path: warm.clone() }).await?;
        let Some(archive) = self.cache.get(&self.key) else { return Ok(()) };
        // A compile can do without; what lies there half unpacked is rebuilt.
        if let Err(error) = unpack(provider, cx, sandbox, warm, archive.content()).await {
            tracing::warn!(%error, "what earlier compiles built cannot be used");
            self.cache.forget(&self.key);
        }
        Ok(())
    }

    /// Keeps what this compile built, if that was much. A failure makes the next compile slower and nothing else.
    pub(crate) async fn keep(
        &self,
        provider: &dyn Provider,
        cx: &OpContext,
        sandbox: &SandboxId,
        end: &ExecEnd,
    ) {
        if end.cause != EndCause::Program || end.usage.cpu < WORTH_KEEPING {
            return;
        }
        if let Err(error) = self.pack(provider, cx, sandbox).await {
            tracing::warn!(%error, "what the compiler built could not be kept");
            self.cache.forget(&self.key);
        }
    }

    async fn pack(&self, provider: &dyn Provider, cx: &OpContext, sandbox: &SandboxId) -> Result<()> {
        let reply = provider.files(cx, sandbox, FileOp::Pack { path: guest_path(layout::WARM)? }).await?;
        let FileReply::Archive(archive) = reply else {
            return Err(Error::new(ErrorKind::Internal, "packing gave no archive"));
        };
        let unwritable =
            |e| Error::new(ErrorKind::Internal, "the compile cache cannot be written").with_source(e);
        let file = self.cache.begin().map_err(unwritable)?;
        let file = spool(archive, file, MOST).await?;
        self.cache.put(&self.key, file).map_err(unwritable)
    }
}
