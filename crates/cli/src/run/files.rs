//! Bringing a program's files back.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use anyhow::Context;
use futures_util::StreamExt;
use rustix::fs::{Mode, OFlags};
use sandstorm_agent::archive::{Bounds, unpack};
use sandstorm_control::Finished;
use sandstorm_provider::{ByteStream, OpContext};
use sandstorm_types::Limits;

use crate::complaint::misuse;
use crate::pipe::{self, PipeReader};

/// The folder that files go to, made if it is missing. Opened before the program runs: work that could not be kept
/// should not be done.
pub(crate) fn target(dir: &Path) -> anyhow::Result<OwnedFd> {
    if dir.exists() && !dir.is_dir() {
        return Err(misuse(format!("--out {}: not a folder", dir.display())));
    }
    std::fs::create_dir_all(dir).with_context(|| format!("could not make {}", dir.display()))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty())
        .map_err(io::Error::from)
        .with_context(|| format!("could not open {}", dir.display()))
}

/// Unpacks the workspace into `target`. The archive comes from hostile code: it can only make files below it, no more
/// than the sandbox could hold.
pub(crate) async fn bring_back(
    finished: &Finished,
    cx: &OpContext,
    target: OwnedFd,
    limits: &Limits,
) -> anyhow::Result<()> {
    let Some(archive) = finished.workspace(cx).await.context("the program's files could not be read")? else {
        return Ok(());
    };
    let bounds = Bounds { entries: limits.inodes, bytes: limits.disk.as_u64(), depth: Bounds::SANDBOX.depth };
    let (reader, pump) = connect(archive);
    let unpacking = tokio::task::spawn_blocking(move || unpack(reader, target.as_fd(), bounds));
    let pumped = pump.await;
    unpacking
        .await
        .context("unpacking broke off")?
        .context("the program's files could not be brought back")?;
    pumped
}

/// Connects a stream of bytes with a reader in another thread.
fn connect(mut stream: ByteStream) -> (PipeReader, impl Future<Output = anyhow::Result<()>>) {
    let (sender, reader) = pipe::to_thread();
    let pump = async move {
        while let Some(piece) = stream.next().await {
            // A reader that stopped early has its own error to tell.
            if sender.send(piece?).await.is_err() {
                break;
            }
        }
        Ok(())
    };
    (reader, pump)
}
