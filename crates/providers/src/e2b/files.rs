//! Files of a sandbox there.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http::StatusCode;
use http::header::{ACCEPT_ENCODING, RANGE};
use reqwest::{Method, Response};
use sandstorm_e2b_wire::Code;
use sandstorm_e2b_wire::filesystem::{EntriesReply, EntryReply, MoveRequest, PathRequest};
use sandstorm_provider::{
    ByteStream, Error, FileInfo, FileKind, FileOp, FileReply, OpContext, ReadRange, Result, name_fits,
};
use sandstorm_types::{ErrorKind, GuestPath, Unmet};
use serde::de::IgnoredAny;

use super::client::broken;
use super::cloud::Cloud;
use super::entries::info;
use super::envd::{FILESYSTEM, name};
use super::error::{Failure, of, of_file, senseless};
use super::places::Place;
use super::upload::is_on_its_way;
use crate::bodies::until;

/// The deepest that is looked.
const DEEPEST: u32 = 32;

impl Cloud {
    pub(super) async fn read_file(
        &self,
        cx: &OpContext,
        place: &Place,
        path: &GuestPath,
        range: ReadRange,
    ) -> Result<ByteStream> {
        let query = [("path", path.as_str()), ("username", name(place.user()))];
        let mut request =
            self.client.inside(place, Method::GET, &["files"], &query).header(ACCEPT_ENCODING, "identity");
        if let Some(bytes) = header(range) {
            request = request.header(RANGE, bytes);
        }
        let response = match self.client.send(request).await {
            Ok(response) => response,
            // There is nothing behind the end.
            Err(failure) if failure.has_status(416) => return Ok(ByteStream::from(Bytes::new())),
            Err(failure) => return Err(self.of_agent(place, failure, of_file).await),
        };
        if range.length == Some(0) {
            return Ok(ByteStream::from(Bytes::new()));
        }
        // Who does not know parts gives all of it.
        let skip = if response.status() == StatusCode::PARTIAL_CONTENT { 0 } else { range.offset };
        let part = Part { response, silence: self.client.silence, skip, left: range.length };
        Ok(ByteStream::new(until(cx.cancellation().clone(), part.pieces())))
    }

    pub(super) async fn file_op(self: &Arc<Self>, place: &Place, op: FileOp) -> Result<FileReply> {
        match op {
            FileOp::Stat { path } => Ok(FileReply::Info(self.stat(place, &path).await?)),
            FileOp::List { path, depth, limit } => {
                let mut entries = match depth {
                    0 => Vec::new(),
                    depth => self.below(place, &path, depth).await?,
                };
                let more = entries.len() > limit;
                entries.truncate(limit);
                Ok(FileReply::List { entries, more })
            }
            FileOp::Search { root, pattern, limit } => {
                let fits =
                    |info: &FileInfo| info.path.file_name().is_some_and(|name| name_fits(name, &pattern));
                let entries = self.below(place, &root, DEEPEST).await?;
                let mut paths: Vec<_> = entries.into_iter().filter(fits).map(|info| info.path).collect();
                let more = paths.len() > limit;
                paths.truncate(limit);
                Ok(FileReply::Found { paths, more })
            }
            FileOp::MakeDir { path } => match self.make_folder(place, &path).await {
                Ok(()) => Ok(FileReply::Done),
                Err(failure) if failure.has_code(Code::AlreadyExists) => Ok(FileReply::Done),
                Err(failure) => Err(self.of_agent(place, failure, of_file).await),
            },
            FileOp::Move { from, to } => {
                let request = MoveRequest { source: from.to_string(), destination: to.to_string() };
                self.change(place, "Move", &request).await
            }
            FileOp::Remove { path, recursive } => self.remove(place, &path, recursive).await,
            FileOp::SetMode { path, mode } => self.set_mode(place, &path, mode).await,
            FileOp::Pack { .. } | FileOp::Unpack { .. } => {
                let why = "the agent knows no archives";
                Err(Error::unmet(vec![Unmet::new("files_archive", "yes", "no", why)]))
            }
        }
    }

    async fn change(
        &self,
        place: &Place,
        method: &str,
        request: &impl serde::Serialize,
    ) -> Result<FileReply> {
        match self.client.unary::<IgnoredAny>(place, FILESYSTEM, method, request).await {
            Ok(_) => Ok(FileReply::Done),
            Err(failure) => Err(self.of_agent(place, failure, of_file).await),
        }
    }

    pub(super) async fn make_folder(&self, place: &Place, path: &GuestPath) -> Result<(), Failure> {
        let request = PathRequest { path: path.to_string(), depth: 0 };
        self.client.unary::<IgnoredAny>(place, FILESYSTEM, "MakeDir", &request).await.map(drop)
    }

    async fn stat(&self, place: &Place, path: &GuestPath) -> Result<FileInfo> {
        let request = PathRequest { path: path.to_string(), depth: 0 };
        match self.client.unary::<EntryReply>(place, FILESYSTEM, "Stat", &request).await {
            Ok(EntryReply { entry }) => {
                let found = info(&entry)?;
                if found.path == *path { Ok(found) } else { Err(senseless("it tells of another file")) }
            }
            Err(failure) => Err(self.of_agent(place, failure, of_file).await),
        }
    }

    /// What lies below a folder, sorted.
    async fn below(&self, place: &Place, path: &GuestPath, depth: u32) -> Result<Vec<FileInfo>> {
        let request = PathRequest { path: path.to_string(), depth: depth.min(DEEPEST) };
        let reply = match self.client.unary::<EntriesReply>(place, FILESYSTEM, "ListDir", &request).await {
            Ok(reply) => reply,
            Err(failure) => return Err(self.of_agent(place, failure, of_file).await),
        };
        let mut entries = Vec::with_capacity(reply.entries.len());
        for entry in reply.entries.iter().filter(|entry| !is_on_its_way(&entry.path)) {
            let found = info(entry)?;
            if found.path == *path || !found.path.is_within(path) {
                return Err(senseless("it lists what lies elsewhere"));
            }
            entries.push(found);
        }
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(entries)
    }

    /// To them what is not there is as good as removed, and a folder goes with all that it holds: both are looked at
    /// before. Between looking and removing a program may put something in.
    async fn remove(&self, place: &Place, path: &GuestPath, recursive: bool) -> Result<FileReply> {
        let there = self.stat(place, path).await?;
        let folder = there.kind == FileKind::Directory;
        if folder && !recursive && !self.below(place, path, 1).await?.is_empty() {
            return Err(Error::new(ErrorKind::FileSystem, "the folder is not empty").with("path", path));
        }
        self.change(place, "Remove", &PathRequest { path: path.to_string(), depth: 0 }).await
    }

    /// The agent has no such call, so a program does it.
    async fn set_mode(&self, place: &Place, path: &GuestPath, mode: u32) -> Result<FileReply> {
        if mode > 0o777 {
            let message = "only the bits of rwxrwxrwx can be set";
            return Err(Error::new(ErrorKind::InvalidRequest, message).with("mode", format!("{mode:o}")));
        }
        self.stat(place, path).await?;
        match self.run(place, &["/bin/chmod", &format!("{mode:o}"), path.as_str()]).await {
            Ok((0, _)) => Ok(FileReply::Done),
            Ok((_, said)) => {
                let message = "the permissions were not changed";
                Err(Error::new(ErrorKind::FileSystem, message).with("path", path).with("reason", said))
            }
            Err(failure) => Err(self.of_agent(place, failure, of).await),
        }
    }
}

/// Which part is asked for. Of nothing one byte is: whether the file is there has to be found out all the same.
fn header(range: ReadRange) -> Option<String> {
    match (range.offset, range.length) {
        (0, None) => None,
        (first, None) => Some(format!("bytes={first}-")),
        (first, Some(length)) => {
            let last = first.saturating_add(length.max(1) - 1).min(i64::MAX.unsigned_abs());
            Some(format!("bytes={first}-{last}"))
        }
    }
}

/// A download: what is not asked for is left out, and a server that is silent is given up.
struct Part {
    response: Response,
    silence: std::time::Duration,
    skip: u64,
    left: Option<u64>,
}

impl Part {
    fn pieces(self) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
        stream::unfold(Some(self), |part| async move {
            let mut part = part?;
            match part.next().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(part))),
                Ok(None) => None,
                Err(failure) => Some((Err(of(failure)), None)),
            }
        })
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            if self.left == Some(0) {
                return Ok(None);
            }
            let piece = tokio::time::timeout(self.silence, self.response.chunk()).await;
            let piece = piece.map_err(|_| Failure::Silent(self.silence))?.map_err(broken)?;
            let Some(mut piece) = piece else { return Ok(None) };
            let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(piece.len());
            self.skip -= skipped as u64;
            let mut piece = piece.split_off(skipped);
            if let Some(left) = &mut self.left {
                piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= piece.len() as u64;
            }
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_asked_for_by_their_first_and_last_byte() {
        let asked = |offset, length| header(ReadRange { offset, length });
        assert_eq!(asked(0, None), None);
        assert_eq!(asked(5, None).as_deref(), Some("bytes=5-"));
        assert_eq!(asked(5, Some(10)).as_deref(), Some("bytes=5-14"));
        assert_eq!(asked(5, Some(0)).as_deref(), Some("bytes=5-5"));
        assert!(asked(1, Some(u64::MAX)).is_some());
    }
}
