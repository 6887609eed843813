//! Archives on their way into a sandbox.

use bytes::Bytes;
use sandstorm_provider::{ByteStream, FileOp, OpContext, Provider, Result};
use sandstorm_types::{GuestPath, SandboxId};

/// Unpacks an archive into a folder of the sandbox.
pub(crate) async fn unpack(
    provider: &dyn Provider,
    cx: &OpContext,
    sandbox: &SandboxId,
    path: GuestPath,
    archive: Bytes,
) -> Result<()> {
    let archive = ByteStream::from(archive);
    provider.files(cx, sandbox, FileOp::Unpack { path, archive }).await.map(drop)
}
