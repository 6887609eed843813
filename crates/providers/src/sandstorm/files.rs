//! Files of a sandbox there.

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use sandstorm_client::{Download, FileInfo as Theirs, FileKind as TheirKind};
use sandstorm_provider::{
    ByteStream, FileChange, FileEvent, FileInfo, FileKind, FileOp, FileReply, Metadata, OpContext, ReadRange,
    Result, WatchOptions,
};
use sandstorm_types::{ByteSize, GuestPath};

use super::client::Far;
use super::error::{of, senseless};
use super::places::Place;
use super::view::moment;
use crate::bodies::{Sent, until};

/// The most that one list or search of theirs gives, and the deepest that it looks.
const MOST_ENTRIES: usize = 10_000;
const DEEPEST: u32 = 32;

impl Far {
    pub(super) async fn read_file(
        &self,
        cx: &OpContext,
        place: &Place,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<ByteStream> {
        // Of nothing one byte is asked for: whether the file is there has to be found out all the same.
        let asked = range.length.map(|length| length.max(1));
        let opened = self.client.read_file_part(place.theirs(), path, range.offset, asked).await;
        let content = match opened {
            Ok(content) if range.length != Some(0) => content,
            Ok(_) => return Ok(ByteStream::from(Bytes::new())),
            // There is nothing behind the end.
            Err(error) if error.status() == Some(416) => return Ok(ByteStream::from(Bytes::new())),
            Err(error) => return Err(of(error)),
        };
        Ok(ByteStream::new(until(cx.cancellation().clone(), bounded(content, range.length))))
    }

    pub(super) async fn write_file(&self, place: &Place, path: &GuestPath, body: ByteStream) -> Result<()> {
        let (body, sent) = Sent::of(body);
        let written = self.client.write_file(place.theirs(), path, None, body).await;
        let written = written.map_err(|error| sent.failure().unwrap_or_else(|| of(error)))?;
        if written.size != sent.bytes() {
            return Err(senseless("another number of bytes was written than sent"));
        }
        Ok(())
    }

    pub(super) async fn write_bytes(&self, place: &Place, path: &GuestPath, bytes: Bytes) -> Result<()> {
        self.write_file(place, path, ByteStream::from(bytes)).await
    }

    pub(super) async fn file_op(&self, cx: &OpContext, place: &Place, op: FileOp) -> Result<FileReply> {
        let (client, sandbox) = (&self.client, place.theirs());
        match op {
            FileOp::Stat { path } => {
                Ok(FileReply::Info(info(client.stat_file(sandbox, &path).await.map_err(of)?)))
            }
            FileOp::List { path, depth, limit } => self.list_files(place, &path, depth, limit).await,
            FileOp::Search { root, pattern, limit } => {
                let most = Some(asked(limit));
                let mut found = client.search_files(sandbox, &root, &pattern, most).await.map_err(of)?;
                let more = found.more || found.paths.len() > limit;
                found.paths.truncate(limit);
                Ok(FileReply::Found { paths: found.paths, more })
            }
            FileOp::Pack { path } => {
                let archive = client.download_archive(sandbox, &path).await.map_err(of)?;
                let archive = until(cx.cancellation().clone(), bounded(archive, None));
                Ok(FileReply::Archive(ByteStream::new(archive)))
            }
            FileOp::Unpack { path, archive } => {
                let (archive, sent) = Sent::of(archive);
                let unpacked = client.upload_archive(sandbox, &path, archive).await;
                unpacked.map_err(|error| sent.failure().unwrap_or_else(|| of(error)))?;
                Ok(FileReply::Done)
            }
            FileOp::MakeDir { path } => done(client.make_folder(sandbox, &path).await),
            FileOp::Move { from, to } => done(client.move_file(sandbox, &from, &to).await),
            FileOp::Remove { path, recursive } => done(client.remove_file(sandbox, &path, recursive).await),
            FileOp::SetMode { path, mode } => done(client.set_file_mode(sandbox, &path, mode).await),
        }
    }

    async fn list_files(
        &self,
        place: &Place,
        path: &GuestPath,
        depth: u32,
        limit: usize,
    ) -> Result<FileReply> {
        let shown = depth.clamp(1, DEEPEST);
        let listing = self.client.list_files(place.theirs(), path, shown, Some(asked(limit))).await;
        let listing = listing.map_err(of)?;
        let mut entries: Vec<_> = listing.entries.into_iter().map(info).collect();
        // What lies deeper than they look is more, as far as anybody can tell.
        let deep = |entry: &FileInfo| entry.kind == FileKind::Directory && levels(path, &entry.path) >= shown;
        let more = listing.more || entries.len() > limit || (depth > shown && entries.iter().any(deep));
        entries.truncate(if depth == 0 { 0 } else { limit });
        Ok(FileReply::List { entries, more })
    }

    pub(super) async fn watch(
        &self,
        cx: &OpContext,
        place: &Place,
        path: &GuestPath,
        opts: WatchOptions,
    ) -> Result<BoxStream<'static, Result<FileEvent>>> {
        let changes = self.client.watch_files(place.theirs(), path, opts.recursive).await.map_err(of)?;
        let told = stream::unfold(Some(changes), |changes| async move {
            let mut changes = changes?;
            match changes.next().await? {
                Ok(change) => Some((event(change), Some(changes))),
                Err(error) => Some((Err(of(error)), None)),
            }
        });
        Ok(until(cx.cancellation().clone(), told).boxed())
    }
}

/// Most entries to ask them for.
fn asked(limit: usize) -> u32 {
    u32::try_from(limit.clamp(1, MOST_ENTRIES)).unwrap_or(1)
}

fn levels(above: &GuestPath, below: &GuestPath) -> u32 {
    let parts = |path: &GuestPath| path.as_str().split('/').filter(|part| !part.is_empty()).count();
    u32::try_from(parts(below).saturating_sub(parts(above))).unwrap_or(u32::MAX)
}

fn done(result: sandstorm_client::Result<()>) -> Result<FileReply> {
    result.map(|()| FileReply::Done).map_err(of)
}

fn info(theirs: Theirs) -> FileInfo {
    FileInfo {
        path: theirs.path,
        kind: match theirs.kind {
            TheirKind::File => FileKind::File,
            TheirKind::Directory => FileKind::Directory,
            TheirKind::Link => FileKind::Link,
            TheirKind::Other => FileKind::Other,
        },
        size: ByteSize::bytes(theirs.size),
        mode: theirs.mode,
        modified: moment(theirs.modified),
        target: theirs.target,
        owner: None,
        metadata: Metadata::new(),
    }
}

fn event(theirs: sandstorm_client::FileChange) -> Result<FileEvent> {
    let change = match (theirs.change.as_str(), theirs.from) {
        ("created", _) => FileChange::Created,
        ("modified", _) => FileChange::Modified,
        ("removed", _) => FileChange::Removed,
        ("moved", Some(from)) => FileChange::MovedFrom(from),
        ("lost", _) => FileChange::Lost,
        _ => return Err(senseless("a change of a file is none that we know")),
    };
    Ok(FileEvent { path: theirs.path, change })
}

/// The pieces of a download; more than was asked for is an error.
fn bounded(content: Download, most: Option<u64>) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
    stream::unfold(Some((content, most)), |state| async move {
        let (mut content, left) = state?;
        let piece = match content.next().await {
            Ok(piece) => piece?,
            Err(error) => return Some((Err(of(error)), None)),
        };
        let left = match left.map(|left| left.checked_sub(piece.len() as u64)) {
            Some(None) => return Some((Err(senseless("there is more of the file than asked for")), None)),
            Some(left) => left,
            None => None,
        };
        Some((Ok(piece), Some((content, left))))
    })
}
