//! What is at a path, as E2B's clients see it.

use sandstorm_control::server::WrittenFile;
use sandstorm_e2b_wire::filesystem::{EntryInfo, FileType};
use sandstorm_provider::{FileInfo, FileKind, FileOp, FileReply, Metadata};
use sandstorm_types::{ErrorKind, GuestPath, Timestamp, User};
use serde_json::{Value, json};

use crate::door::Guest;
use crate::rpc::{Code, RpcError, RpcResult};
use crate::state::Dialect;

/// Links that are followed from one to the next.
const LINKS: usize = 16;
/// Where the sandbox's user owns things, if the provider does not say whose a file is.
const OWN: [&str; 4] = ["/home/user", "/workspace", "/tmp", "/dev/shm"];

/// What is at a path, with what it leads to if it is a link.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) info: FileInfo,
    /// What a link leads to; itself when it is none, `None` when it leads nowhere.
    pub(super) target: Option<FileInfo>,
}

impl Dialect {
    pub(super) async fn stat(&self, guest: &Guest, path: &GuestPath) -> RpcResult<FileInfo> {
        let stat = FileOp::Stat { path: path.clone() };
        match self.control.files(&guest.caller, guest.sandbox, stat).await {
            Ok(FileReply::Info(info)) => Ok(info),
            Ok(_) => Err(RpcError::new(Code::Internal, "looking at a file gave something else")),
            Err(error) => {
                let gone = error.kind() == ErrorKind::NotFound;
                let refused = RpcError::from(error);
                match gone || refused.code == Code::NotFound {
                    true => Err(RpcError::new(Code::NotFound, format!("path '{path}' does not exist"))),
                    false => Err(refused),
                }
            }
        }
    }

    pub(super) async fn entry(&self, guest: &Guest, path: &GuestPath) -> RpcResult<Entry> {
        let info = self.stat(guest, path).await?;
        self.followed(guest, info).await
    }

    /// Follows a link to what it leads to.
    pub(super) async fn followed(&self, guest: &Guest, info: FileInfo) -> RpcResult<Entry> {
        let mut at = info.clone();
        for _ in 0..LINKS {
            let (FileKind::Link, Some(to)) = (at.kind, at.target.clone()) else {
                return Ok(Entry { info, target: Some(at) });
            };
            let folder = at.path.parent().unwrap_or_else(GuestPath::root);
            let next = if to.starts_with('/') { to } else { format!("{folder}/{to}") };
            match self.stat(guest, &guest.resolve(&next)?).await {
                Ok(next) => at = next,
                Err(error) if error.code == Code::NotFound => return Ok(Entry { info, target: None }),
                Err(error) => return Err(error),
            }
        }
        Err(RpcError::new(Code::FailedPrecondition, format!("path '{}' has too many links", info.path)))
    }
}

impl Entry {
    pub(super) fn is_folder(&self) -> bool {
        self.target.as_ref().is_some_and(|target| target.kind == FileKind::Directory)
    }

    /// Type and mode are those of what a link leads to, permissions those of the link.
    pub(super) fn info(&self) -> EntryInfo {
        let shown = self.target.as_ref().unwrap_or(&self.info);
        let kind = match shown.kind {
            FileKind::File => FileType::File,
            FileKind::Directory => FileType::Directory,
            FileKind::Link => FileType::Symlink,
            FileKind::Other => FileType::Unspecified,
        };
        let path = &self.info.path;
        let owner = match self.info.owner {
            Some(User::User) => "user",
            Some(User::Root) => "root",
            None if owned(path) => "user",
            None => "root",
        };
        let target = self.target.as_ref().filter(|_| self.info.kind == FileKind::Link);
        EntryInfo {
            name: path.file_name().unwrap_or("/").to_owned(),
            kind,
            path: path.to_string(),
            size: shown.size.as_u64(),
            mode: shown.mode,
            permissions: permissions(&self.info),
            owner: owner.to_owned(),
            group: owner.to_owned(),
            modified_time: Timestamp::from(self.info.modified).to_string(),
            symlink_target: target.map(|target| target.path.to_string()),
            metadata: shown.metadata.clone(),
        }
    }

    pub(super) fn json(&self) -> Value {
        json!(self.info())
    }
}

fn owned(path: &GuestPath) -> bool {
    OWN.iter().any(|base| base.parse().is_ok_and(|base| path.is_within(&base)))
}

/// As `ls -l` writes it.
fn permissions(info: &FileInfo) -> String {
    let kind = match info.kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Link => 'L',
        FileKind::Other => '?',
    };
    let bit = |shift: u32, letter: char| if info.mode >> shift & 1 == 1 { letter } else { '-' };
    let bits = (0..9).rev().zip("rwxrwxrwx".chars()).map(|(shift, letter)| bit(shift, letter));
    std::iter::once(kind).chain(bits).collect()
}

/// A file that was written, and what is kept with it.
pub(crate) fn written(file: &WrittenFile, metadata: &Metadata) -> Value {
    let name = file.path.file_name().unwrap_or_default();
    let mut told = json!({"path": file.path, "name": name, "type": "file"});
    if !metadata.is_empty() {
        told["metadata"] = json!(metadata);
    }
    told
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use sandstorm_types::ByteSize;

    use super::*;

    fn info(path: &str, kind: FileKind, mode: u32) -> FileInfo {
        let path = path.parse().unwrap();
        FileInfo {
            path,
            kind,
            size: ByteSize::bytes(5),
            mode,
            modified: UNIX_EPOCH,
            target: None,
            owner: None,
            metadata: Metadata::new(),
        }
    }

    #[test]
    fn entries_have_the_fields_of_e2b() {
        let file = info("/home/user/a.txt", FileKind::File, 0o644);
        let entry = Entry { info: file.clone(), target: Some(file) }.json();
        assert_eq!(entry["size"], "5");
        assert_eq!((&entry["name"], &entry["permissions"]), (&json!("a.txt"), &json!("-rw-r--r--")));
        assert_eq!((&entry["mode"], &entry["owner"]), (&json!(420), &json!("user")));
        assert_eq!(entry["modifiedTime"], "1970-01-01T00:00:00.000Z");
        assert!(entry.get("symlinkTarget").is_none() && entry.get("metadata").is_none());
    }

    #[test]
    fn what_the_provider_tells_is_shown() {
        let mut file = info("/home/user/a.txt", FileKind::File, 0o644);
        file.owner = Some(User::Root);
        file.metadata.insert("k".to_owned(), "v".to_owned());
        let entry = Entry { info: file.clone(), target: Some(file) }.json();
        assert_eq!((&entry["owner"], &entry["group"]), (&json!("root"), &json!("root")));
        assert_eq!(entry["metadata"], json!({"k": "v"}));
    }

    #[test]
    fn links_are_shown_as_what_they_lead_to() {
        let link = info("/home/user/l", FileKind::Link, 0o777);
        let entry =
            Entry { info: link.clone(), target: Some(info("/usr", FileKind::Directory, 0o755)) }.json();
        assert_eq!(entry["type"], "FILE_TYPE_DIRECTORY");
        assert_eq!((&entry["symlinkTarget"], &entry["permissions"]), (&json!("/usr"), &json!("Lrwxrwxrwx")));
        assert_eq!(Entry { info: link, target: None }.json()["type"], "FILE_TYPE_SYMLINK");
    }
}
