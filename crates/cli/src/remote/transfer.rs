//! Files and folders on their way between here and a sandbox, piece by piece: nothing is held whole.

mod local;

use std::io;
use std::path::PathBuf;

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use sandstorm_client::{Client, Download, Error, FileKind};
use sandstorm_types::{GuestPath, SandboxId, Stream};
use tokio::sync::mpsc;

use super::printer::Printer;
use crate::complaint::misuse;
use crate::pipe;

type Pieces = BoxStream<'static, io::Result<Bytes>>;

/// Where something comes from.
#[derive(Debug)]
pub(super) enum Source {
    Local(PathBuf),
    Standard,
    Remote { sandbox: SandboxId, path: GuestPath },
}

/// Where something goes to.
#[derive(Debug)]
pub(super) enum Sink {
    Local(PathBuf),
    Standard,
    Remote {
        sandbox: SandboxId,
        path: GuestPath,
        /// Whether the path is a folder to copy into, even if it is not there yet.
        into: bool,
    },
}

/// Something that is being copied.
pub(super) struct Load {
    /// What it is called where it comes from.
    name: Option<String>,
    content: Content,
}

enum Content {
    File {
        pieces: Pieces,
        mode: Option<u32>,
    },
    /// A tar archive with names relative to the folder.
    Folder(Pieces),
}

impl Source {
    pub(super) async fn open(self, client: &Client) -> anyhow::Result<Load> {
        match self {
            Self::Local(path) => local::open(&path),
            Self::Standard => {
                let pieces = stream::unfold(pipe::stdin(), |mut pieces| async {
                    pieces.recv().await.map(|piece| (Ok(piece), pieces))
                });
                Ok(Load { name: None, content: Content::File { pieces: pieces.boxed(), mode: None } })
            }
            Self::Remote { sandbox, path } => {
                let info = client.stat_file(sandbox, &path).await?;
                let name = path.file_name().map(str::to_owned);
                let content = match info.kind {
                    FileKind::Directory => {
                        Content::Folder(pieces(client.download_archive(sandbox, &path).await?))
                    }
                    FileKind::File | FileKind::Link => {
                        let pieces = pieces(client.read_file(sandbox, &path, 0).await?);
                        // A link has bits of its own, which mean nothing for what it leads to.
                        Content::File {
                            pieces,
                            mode: (info.kind == FileKind::File).then_some(info.mode & 0o777),
                        }
                    }
                    FileKind::Other => return Err(misuse(format!("{path} is neither a file nor a folder"))),
                };
                Ok(Load { name, content })
            }
        }
    }
}

impl Load {
    /// Copies, and says where to.
    pub(super) async fn write(self, client: &Client, sink: Sink) -> anyhow::Result<String> {
        match sink {
            Sink::Local(path) => local::write(self, &path).await,
            Sink::Standard => self.print().await.map(|()| "-".to_owned()),
            Sink::Remote { sandbox, path, into } => {
                let path = self.place(client, sandbox, path, into).await?;
                match self.content {
                    Content::File { pieces, mode } => {
                        client.write_file(sandbox, &path, mode, pieces).await?;
                    }
                    Content::Folder(archive) => {
                        client.make_folder(sandbox, &path).await?;
                        client.upload_archive(sandbox, &path, archive).await?;
                    }
                }
                Ok(format!("{sandbox}:{path}"))
            }
        }
    }

    /// The path itself, or the name below it if it is a folder.
    async fn place(
        &self,
        client: &Client,
        sandbox: SandboxId,
        path: GuestPath,
        into: bool,
    ) -> anyhow::Result<GuestPath> {
        if !into && !is_folder(client, sandbox, &path).await? {
            return Ok(path);
        }
        let name =
            self.name.as_deref().ok_or_else(|| misuse(format!("{path} is a folder: name the file in it")))?;
        path.join(name).map_err(|error| misuse(format!("{name}: {error}")))
    }

    async fn print(self) -> anyhow::Result<()> {
        let mut pieces = match self.content {
            Content::File { pieces, .. } => pieces,
            Content::Folder(_) if io::IsTerminal::is_terminal(&io::stdout()) => {
                return Err(misuse("a folder comes as a tar archive, which is nothing for a terminal"));
            }
            Content::Folder(archive) => archive,
        };
        let printer = Printer::start();
        while let Some(piece) = pieces.next().await {
            if !printer.print(Stream::Stdout, piece.map_err(told)?).await {
                break;
            }
        }
        Ok(printer.finish().await?)
    }
}

async fn is_folder(client: &Client, sandbox: SandboxId, path: &GuestPath) -> anyhow::Result<bool> {
    match client.stat_file(sandbox, path).await {
        Ok(info) => Ok(info.kind == FileKind::Directory),
        Err(Error::Refused(refusal)) if refusal.status == 404 => {
            // Nothing there, or no such sandbox: the write that follows tells which.
            Ok(false)
        }
        Err(error) => Err(error).context("could not look at the target"),
    }
}

/// A download as a stream; an error of the client stays one inside.
fn pieces(download: Download) -> Pieces {
    stream::try_unfold(download, |mut download| async {
        match download.next().await {
            Ok(piece) => Ok(piece.map(|piece| (piece, download))),
            Err(error) => Err(io::Error::other(error)),
        }
    })
    .boxed()
}

/// The error of the client that travelled inside another.
fn told(error: io::Error) -> anyhow::Error {
    match error.downcast::<Error>() {
        Ok(inside) => inside.into(),
        Err(error) => error.into(),
    }
}

/// A channel that a thread fills, as a stream.
fn received(receiver: mpsc::Receiver<io::Result<Bytes>>) -> Pieces {
    stream::unfold(receiver, |mut receiver| async { receiver.recv().await.map(|piece| (piece, receiver)) })
        .boxed()
}
