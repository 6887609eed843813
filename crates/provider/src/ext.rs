//! Conveniences over any provider. They use the trait only, so they mean the same everywhere.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::stream::TryStreamExt;
use sandstorm_types::{ErrorKind, GuestPath, SandboxId, Stream};

use crate::{
    ByteStream, Error, Exec, ExecEnd, ExecEvent, ExecRequest, OpContext, Provider, ReadRange, Result,
    WriteOptions,
};

/// A program's output and end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collected {
    pub stdout: Bytes,
    pub stderr: Bytes,
    pub end: ExecEnd,
}

#[async_trait]
pub trait ProviderExt: Provider {
    /// Runs a program to its end. The context covers all of it: when it is over, the program is ended.
    async fn exec_collect(&self, cx: &OpContext, id: &SandboxId, req: ExecRequest) -> Result<Collected> {
        let exec = self.exec(cx, id, req).await?;
        cx.run("exec", exec.collect()).await
    }

    /// A whole file, refused when it is longer than `limit`.
    async fn read_bytes(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        limit: usize,
    ) -> Result<Bytes> {
        let stream = self.read_file(cx, id, path, ReadRange::default()).await?;
        cx.run("read_file", stream.collect(limit)).await
    }

    async fn write_bytes(
        &self,
        cx: &OpContext,
        id: &SandboxId,
        path: &GuestPath,
        bytes: Bytes,
    ) -> Result<()> {
        self.write_file(cx, id, path, WriteOptions::default(), ByteStream::from(bytes)).await
    }
}

impl<P: Provider + ?Sized> ProviderExt for P {}

impl Exec {
    /// All output and the end. Dropping it midway ends a foreground program.
    pub async fn collect(mut self) -> Result<Collected> {
        let (mut stdout, mut stderr) = (BytesMut::new(), BytesMut::new());
        while let Some(event) = self.events.try_next().await? {
            match event {
                ExecEvent::Started | ExecEvent::Channel { .. } => {}
                ExecEvent::Output { stream: Stream::Stdout, bytes, .. } => stdout.extend_from_slice(&bytes),
                ExecEvent::Output { stream: Stream::Stderr, bytes, .. } => stderr.extend_from_slice(&bytes),
                ExecEvent::Exited(end) => {
                    return Ok(Collected { stdout: stdout.freeze(), stderr: stderr.freeze(), end });
                }
            }
        }
        Err(Error::new(ErrorKind::Provider, "the stream of events ended before the program")
            .with("exec", self.id))
    }
}
