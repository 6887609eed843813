//! Files on their way into a sandbox, as one archive: one operation however many there are.

use std::io;

use bytes::Bytes;
use sandstorm_provider::{ByteStream, Error, FileOp, OpContext, Provider, Result};
use sandstorm_types::{ErrorKind, GuestPath, SandboxId};

/// Lays out files at their paths.
pub(crate) async fn lay_out(
    provider: &dyn Provider,
    cx: &OpContext,
    sandbox: &SandboxId,
    files: &[(GuestPath, &[u8])],
) -> Result<()> {
    let archive = archive(files).map_err(|e| {
        Error::new(ErrorKind::InvalidRequest, "the files cannot be put into an archive").with_source(e)
    })?;
    unpack(provider, cx, sandbox, GuestPath::root(), Bytes::from(archive)).await
}

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

fn archive(files: &[(GuestPath, &[u8])]) -> io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, path.as_str().trim_start_matches('/'), *content)?;
    }
    builder.into_inner()
}
