//! Files of a sandbox.

use std::io;

use bytes::Bytes;
use futures_util::Stream;
use http::{Method, StatusCode};
use sandstorm_types::{GuestPath, SandboxId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::address::with_query;
use crate::event_stream::EventStream;
use crate::transport::Call;
use crate::{Client, Download, Error, Result};

/// What is at a path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileInfo {
    pub path: GuestPath,
    pub kind: FileKind,
    pub size: u64,
    /// Permission bits; octal digits on the wire.
    #[serde(with = "octal")]
    pub mode: u32,
    pub modified: Timestamp,
    /// Where a link points, as it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Directory,
    Link,
    /// A pipe, socket or device, or something that this client does not know.
    #[serde(other)]
    Other,
}

/// What lies below a folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Listing {
    pub entries: Vec<FileInfo>,
    /// Whether there was more than the limit let through.
    #[serde(default)]
    pub more: bool,
}

/// What a search found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundPaths {
    pub paths: Vec<GuestPath>,
    #[serde(default)]
    pub more: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WrittenFile {
    pub path: GuestPath,
    pub size: u64,
}

/// A change that was seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileChange {
    pub path: GuestPath,
    /// `created`, `modified`, `removed`, `moved` or `lost`.
    pub change: String,
    /// Where something that was moved came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<GuestPath>,
}

/// Changes as they happen. What happens while nobody is connected is lost, so a broken connection is an error.
#[derive(Debug)]
pub struct FileChanges(EventStream<FileChange>);

impl FileChanges {
    pub async fn next(&mut self) -> Option<Result<FileChange>> {
        self.0.next().await
    }
}

mod octal {
    use serde::{Deserialize, Deserializer, Serializer, de};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(mode: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{mode:04o}"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        let text = String::deserialize(deserializer)?;
        u32::from_str_radix(&text, 8).map_err(|_| de::Error::custom("a mode is written in octal digits"))
    }
}

#[derive(Deserialize)]
struct Exists {
    exists: bool,
}

impl Client {
    /// The content of a file from byte `from` on.
    pub async fn read_file(&self, sandbox: SandboxId, path: &GuestPath, from: u64) -> Result<Download> {
        self.read_file_part(sandbox, path, from, None).await
    }

    /// At most `length` bytes of a file from byte `from` on. A part that begins behind the file's end, or of which
    /// nothing is asked for, is refused with status 416.
    pub async fn read_file_part(
        &self,
        sandbox: SandboxId,
        path: &GuestPath,
        from: u64,
        length: Option<u64>,
    ) -> Result<Download> {
        let mut call = Call::get(self.file_url(sandbox, &[], path, &[]));
        let last = length.and_then(|length| from.checked_add(length)).map(|end| end.saturating_sub(1));
        let part = from > 0 || last.is_some();
        if part {
            let last = last.map(|last| last.to_string()).unwrap_or_default();
            call = call.header("range", &format!("bytes={from}-{last}"));
        }
        let response = self.send(call).await?;
        if part && response.status() != StatusCode::PARTIAL_CONTENT {
            let what = "it begins at the start of the file";
            return Err(Error::Answer { server: self.server(), what, source: None });
        }
        Ok(Download::new(self, response))
    }

    /// Whole or not at all. `mode` are the permission bits of a new file.
    pub async fn write_file(
        &self,
        sandbox: SandboxId,
        path: &GuestPath,
        mode: Option<u32>,
        body: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<WrittenFile> {
        let url = self.file_url(sandbox, &[], path, &[("mode", mode.map(|mode| format!("{mode:03o}")))]);
        let call = Call::new(Method::PUT, url).header("content-type", "application/octet-stream");
        let response = self.upload(call, reqwest::Body::wrap_stream(body)).await?;
        self.read(response, Some(self.options().answer)).await
    }

    pub async fn remove_file(&self, sandbox: SandboxId, path: &GuestPath, recursive: bool) -> Result<()> {
        let url = self.file_url(sandbox, &[], path, &[("recursive", recursive.then(|| "true".to_owned()))]);
        self.tell(Call::new(Method::DELETE, url)).await
    }

    /// What lies below a folder down to `depth` levels.
    pub async fn list_files(
        &self,
        sandbox: SandboxId,
        path: &GuestPath,
        depth: u32,
        limit: Option<u32>,
    ) -> Result<Listing> {
        let more = [("depth", Some(depth.to_string())), ("limit", limit.map(|limit| limit.to_string()))];
        self.ask(Call::get(self.file_url(sandbox, &["list"], path, &more))).await
    }

    /// What is at a path; a link is described, not followed.
    pub async fn stat_file(&self, sandbox: SandboxId, path: &GuestPath) -> Result<FileInfo> {
        self.ask(Call::get(self.file_url(sandbox, &["stat"], path, &[]))).await
    }

    pub async fn file_exists(&self, sandbox: SandboxId, path: &GuestPath) -> Result<bool> {
        Ok(self.ask::<Exists>(Call::get(self.file_url(sandbox, &["exists"], path, &[]))).await?.exists)
    }

    /// Makes a folder and those above it; an existing folder is success.
    pub async fn make_folder(&self, sandbox: SandboxId, path: &GuestPath) -> Result<()> {
        let call = Call::post(self.sandbox_url(sandbox, &["files", "mkdir"]));
        self.tell(call.json(&serde_json::json!({ "path": path })).repeatable()).await
    }

    pub async fn move_file(&self, sandbox: SandboxId, from: &GuestPath, to: &GuestPath) -> Result<()> {
        let call = Call::post(self.sandbox_url(sandbox, &["files", "move"]));
        self.tell(call.json(&serde_json::json!({ "from": from, "to": to }))).await
    }

    pub async fn set_file_mode(&self, sandbox: SandboxId, path: &GuestPath, mode: u32) -> Result<()> {
        let call = Call::post(self.sandbox_url(sandbox, &["files", "mode"]));
        self.tell(call.json(&serde_json::json!({ "path": path, "mode": format!("{mode:03o}") })).repeatable())
            .await
    }

    /// Paths below `root` whose last part fits `pattern` (`*` and `?`).
    pub async fn search_files(
        &self,
        sandbox: SandboxId,
        root: &GuestPath,
        pattern: &str,
        limit: Option<u32>,
    ) -> Result<FoundPaths> {
        let more = [("pattern", Some(pattern.to_owned())), ("limit", limit.map(|limit| limit.to_string()))];
        self.ask(Call::get(self.file_url(sandbox, &["search"], root, &more))).await
    }

    /// A folder as a tar archive with names relative to it.
    pub async fn download_archive(&self, sandbox: SandboxId, path: &GuestPath) -> Result<Download> {
        let call = Call::get(self.file_url(sandbox, &["archive"], path, &[]));
        Ok(Download::new(self, self.send(call).await?))
    }

    /// Unpacks a tar archive below a folder, which is made if it is missing.
    pub async fn upload_archive(
        &self,
        sandbox: SandboxId,
        path: &GuestPath,
        archive: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<()> {
        let url = self.file_url(sandbox, &["archive"], path, &[]);
        let call = Call::new(Method::PUT, url).header("content-type", "application/x-tar");
        self.upload(call, reqwest::Body::wrap_stream(archive)).await.map(drop)
    }

    pub async fn watch_files(
        &self,
        sandbox: SandboxId,
        path: &GuestPath,
        recursive: bool,
    ) -> Result<FileChanges> {
        let more = [("recursive", recursive.then(|| "true".to_owned()))];
        let url = self.file_url(sandbox, &["watch"], path, &more);
        Ok(FileChanges(EventStream::open_once(self, url).await?))
    }

    fn file_url(
        &self,
        sandbox: SandboxId,
        rest: &[&str],
        path: &GuestPath,
        more: &[(&str, Option<String>)],
    ) -> reqwest::Url {
        let mut parts = vec!["files"];
        parts.extend(rest);
        let url = with_query(self.sandbox_url(sandbox, &parts), &[("path", Some(path.to_string()))]);
        with_query(url, more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_on_the_wire() {
        let told = r#"{"path":"/workspace/a","kind":"file","size":3,"mode":"0640","modified":"2026-11-15T12:00:00.000Z","target":null}"#;
        let info: FileInfo = serde_json::from_str(told).unwrap();
        assert_eq!((info.mode, info.kind), (0o640, FileKind::File));
        assert_eq!(serde_json::to_value(&info).unwrap()["mode"], "0640");
        assert!(serde_json::from_str::<FileInfo>(&told.replace("0640", "rw")).is_err());
    }
}
