//! Files of a sandbox: checked for owner and state here, done by the provider.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::stream::{BoxStream, StreamExt};
use sandstorm_provider::{
    ByteStream, Duplex, Error, FileEvent, FileInfo, FileKind, FileOp, FileReply, OpContext, ReadRange,
    Result, WatchOptions, WriteOptions,
};
use sandstorm_types::{ErrorKind, GuestPath, SandboxId, Timestamp};

use super::failure::invalid;
use super::{Caller, Control, Verb};

/// Links that are followed from one to the next, as the kernel counts them.
const LINKS: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenFile {
    pub path: GuestPath,
    pub size: u64,
}

impl Control {
    /// What is there and its content. The content is never longer than the size says, should the file grow meanwhile.
    #[tracing::instrument(skip_all, fields(%sandbox))]
    pub async fn read_file(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        path: &GuestPath,
        mut range: ReadRange,
    ) -> Result<(FileInfo, ByteStream)> {
        caller.require_inside(sandbox, Verb::Files)?;
        self.0.ready(caller.tenant, sandbox).await?;
        let cx = caller.operation();
        let info = self.target(&cx, sandbox, path).await?;
        let left = info.size.as_u64().saturating_sub(range.offset);
        if info.kind == FileKind::File {
            range.length = Some(range.length.map_or(left, |length| length.min(left)));
        }
        let content = self.0.provider.read_file(&cx, &sandbox, path, range).await?;
        Ok((info, content))
    }

    /// What is at a path, or at what it links to.
    async fn target(&self, cx: &OpContext, sandbox: SandboxId, path: &GuestPath) -> Result<FileInfo> {
        let mut at = path.clone();
        for _ in 0..LINKS {
            let FileReply::Info(info) =
                self.0.provider.files(cx, &sandbox, FileOp::Stat { path: at.clone() }).await?
            else {
                return Err(Error::new(ErrorKind::Internal, "looking at a file gave something else"));
            };
            let (FileKind::Link, Some(to)) = (info.kind, &info.target) else { return Ok(info) };
            let next = match to.starts_with('/') {
                true => to.parse().ok(),
                false => at.parent().and_then(|folder| joined(&folder, to)),
            };
            at = next.ok_or_else(|| {
                Error::new(ErrorKind::FileSystem, "the link leads nowhere").with("path", path)
            })?;
        }
        Err(Error::new(ErrorKind::FileSystem, "there are too many links").with("path", path))
    }

    /// Whole or not at all. More than the sandbox's disk limit is refused while it streams.
    pub async fn write_file(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        path: &GuestPath,
        body: ByteStream,
    ) -> Result<WrittenFile> {
        self.write_file_with(caller, sandbox, path, WriteOptions::default(), body).await
    }

    /// The same with what is to be kept with the file.
    #[tracing::instrument(skip_all, fields(%sandbox))]
    pub async fn write_file_with(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        path: &GuestPath,
        options: WriteOptions,
        body: ByteStream,
    ) -> Result<WrittenFile> {
        caller.require_inside(sandbox, Verb::Files)?;
        self.0.accepts_work()?;
        let living = self.0.ready(caller.tenant, sandbox).await?;
        let _working = living.work().await?;
        let most = living.row().spec.limits.disk.as_u64();
        let written = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&written);
        let counted = body.map(move |piece| {
            let piece = piece?;
            let length = piece.len() as u64;
            match counter.fetch_add(length, Ordering::AcqRel) + length > most {
                true => {
                    let full = Error::new(ErrorKind::FileSystem, "no space left in the sandbox");
                    Err(full
                        .with_source(std::io::Error::from(std::io::ErrorKind::StorageFull))
                        .with("limit", most))
                }
                false => Ok(piece),
            }
        });
        let cx = caller.operation();
        let write = self.0.provider.write_file(&cx, &sandbox, path, options, ByteStream::new(counted));
        self.while_allowed(caller, write).await?;
        living.touch();
        let size = written.load(Ordering::Acquire);
        let noted =
            self.0.store.note_file(caller.tenant, sandbox, path.as_str(), size, Timestamp::now()).await;
        // The file is there; that it is not listed as ours is the smaller harm.
        if let Err(error) = noted {
            tracing::warn!(%sandbox, %error, "a written file could not be noted");
        }
        Ok(WrittenFile { path: path.clone(), size })
    }

    #[tracing::instrument(skip_all, fields(%sandbox))]
    pub async fn files(&self, caller: &Caller, sandbox: SandboxId, op: FileOp) -> Result<FileReply> {
        caller.require_inside(sandbox, Verb::Files)?;
        let living = self.0.ready(caller.tenant, sandbox).await?;
        let cx = caller.operation();
        let takes_long = matches!(op, FileOp::Unpack { .. });
        let _working = if takes_long { Some(living.work().await?) } else { None };
        let work = self.0.provider.files(&cx, &sandbox, op);
        if takes_long { self.while_allowed(caller, work).await } else { work.await }
    }

    /// Takes a body only as long as its sender may send it.
    async fn while_allowed<T>(&self, caller: &Caller, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            done = work => done,
            () = self.clone().revoked(caller.clone()) => {
                Err(Error::new(ErrorKind::Unauthenticated, "the key is not valid any more"))
            }
        }
    }

    #[tracing::instrument(skip_all, fields(%sandbox))]
    pub async fn watch(
        &self,
        caller: &Caller,
        sandbox: SandboxId,
        path: &GuestPath,
        options: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>> {
        caller.require_inside(sandbox, Verb::Files)?;
        let watcher = self.0.ready(caller.tenant, sandbox).await?.watcher();
        let changes = self.0.provider.watch(&caller.operation(), &sandbox, path, options).await?;
        Ok(changes.inspect(move |_| _ = &watcher).boxed())
    }

    /// A connection to a port inside; for the port proxy.
    #[tracing::instrument(skip_all, fields(%sandbox, port))]
    pub async fn connect(&self, caller: &Caller, sandbox: SandboxId, port: u16) -> Result<Duplex> {
        caller.require_inside(sandbox, Verb::Connect)?;
        if port == 0 {
            return Err(invalid("a port is from 1 to 65535"));
        }
        self.0.ready(caller.tenant, sandbox).await?;
        self.0.provider.connect(&caller.operation(), &sandbox, port).await
    }
}

/// A relative link from a folder on, with its `..` taken away by text, as far as the root.
fn joined(folder: &GuestPath, relative: &str) -> Option<GuestPath> {
    let mut parts: Vec<&str> = folder.as_str().split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/")).parse().ok()
}
