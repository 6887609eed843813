//! Files as SandboxRunner names them: uploaded and written.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use data_encoding::BASE64;
use sandstorm_provider::{ByteStream, FileInfo, FileKind, FileOp, FileReply, ReadRange};
use sandstorm_types::{ErrorKind, GuestPath, SandboxId, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::call::Call;
use crate::handles;
use crate::refusal::Refusal;
use crate::text::plain;
use crate::tools::files::unexpected;
use crate::tools::{Hints, Tool};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::tools) enum Encoding {
    #[default]
    Utf8,
    Base64,
}

impl Encoding {
    fn bytes(self, content: String) -> Result<Vec<u8>, Refusal> {
        match self {
            Self::Utf8 => Ok(content.into_bytes()),
            Self::Base64 => BASE64.decode(content.as_bytes()).map_err(|error| {
                Refusal::argument(format!("`content` is no standard, padded base64: {error}"))
            }),
        }
    }

    pub(super) fn text(self, path: &GuestPath, bytes: &[u8]) -> Result<String, Refusal> {
        match self {
            Self::Utf8 => std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| {
                Refusal::argument(format!("{path} is not text in UTF-8"))
                    .with_next("Read it again with encoding base64.")
            }),
            Self::Base64 => Ok(BASE64.encode(bytes)),
        }
    }
}

/// A file, after it was read or written.
#[derive(Debug, Serialize, JsonSchema)]
pub(in crate::tools) struct File {
    sandbox_id: String,
    path: String,
    pub(super) size: u64,
    encoding: Encoding,
    /// When it was last changed.
    modified: String,
    /// What it holds; download_file only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", default)]
    pub(super) content: Option<String>,
}

impl File {
    pub(super) fn new(sandbox: SandboxId, info: &FileInfo, encoding: Encoding) -> Self {
        Self {
            sandbox_id: sandbox.to_string(),
            path: plain(info.path.as_str()).into_owned(),
            size: info.size.as_u64(),
            encoding,
            modified: when(info.modified),
            content: None,
        }
    }
}

pub(super) fn when(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)).to_string()
}

/// What is at a path; `None` where nothing is.
async fn look(call: &Call, sandbox: SandboxId, path: &GuestPath) -> Result<Option<FileInfo>, Refusal> {
    match call.control().files(&call.caller, sandbox, FileOp::Stat { path: path.clone() }).await {
        Ok(FileReply::Info(info)) => Ok(Some(info)),
        Ok(_) => Err(unexpected()),
        // A sandbox that is not there is complained of, a file is not.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            call.control().sandbox(&call.caller, sandbox).await?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

#[derive(Debug)]
pub(in crate::tools) struct Upload;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct UploadInput {
    /// The sandbox.
    sandbox_id: String,
    /// The file; relative to /workspace unless it begins with `/`. Folders above it are made.
    path: String,
    /// All that it will hold.
    content: String,
    /// How `content` is written.
    #[serde(default)]
    encoding: Encoding,
    /// Its permissions, in octal.
    #[serde(default = "usual_mode")]
    mode: String,
    /// Keeps a file that is overwritten beside the new one, with `.backup` after its name.
    #[serde(default = "yes")]
    create_backup: bool,
    /// Overwrites a file that is there; without it, that is refused.
    #[serde(default)]
    force_overwrite: bool,
    /// Reads the file back and compares it with what was sent.
    #[serde(default = "yes")]
    validate_checksum: bool,
}

fn usual_mode() -> String {
    "0644".to_owned()
}

fn yes() -> bool {
    true
}

fn mode(text: &str) -> Result<u32, Refusal> {
    let digits = text.trim().trim_start_matches("0o");
    u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777).ok_or_else(|| {
        Refusal::argument(format!("`mode` has to be permissions in octal such as \"0644\", not {text:?}"))
    })
}

impl Tool for Upload {
    const NAME: &'static str = "upload_file";
    const TITLE: &'static str = "Upload a file";
    const DESCRIPTION: &'static str = "Puts a file into a sandbox. One that is there is kept and the call refused, unless force_overwrite is set; \
        then the old one stays beside it as a backup.";
    const HINTS: Hints = Hints::REPLACES;
    type Input = UploadInput;
    type Output = File;

    async fn call(call: Call, input: UploadInput) -> Result<Answer<File>, Refusal> {
        let (sandbox, path) = (handles::sandbox(&input.sandbox_id)?, handles::path(&input.path)?);
        let (mode, bytes) = (mode(&input.mode)?, Bytes::from(input.encoding.bytes(input.content)?));
        let mut notes = String::new();
        if let Some(there) = look(&call, sandbox, &path).await? {
            if there.kind == FileKind::Directory {
                return Err(Refusal::argument(format!("{path} is a folder")));
            }
            if !input.force_overwrite {
                return Err(Refusal::argument(format!("{path} exists"))
                    .with_next("Set force_overwrite to replace it, or choose another path."));
            }
            if input.create_backup {
                let backup = handles::path(&format!("{path}.backup"))?;
                let (_, content) =
                    call.control().read_file(&call.caller, sandbox, &path, ReadRange::default()).await?;
                call.control().write_file(&call.caller, sandbox, &backup, content).await?;
                notes = format!(" The old one is {backup}.");
            }
        }
        let body = ByteStream::from(bytes.clone());
        call.control().write_file(&call.caller, sandbox, &path, body).await?;
        call.control().files(&call.caller, sandbox, FileOp::SetMode { path: path.clone(), mode }).await?;
        if input.validate_checksum {
            let (_, content) =
                call.control().read_file(&call.caller, sandbox, &path, ReadRange::default()).await?;
            if content.collect(bytes.len()).await.ok().as_ref() != Some(&bytes) {
                return Err(Refusal::argument(format!("{path} does not hold what was sent")).with_next(
                    "Something in the sandbox writes to it too. Try again, or choose another path.",
                ));
            }
            notes.push_str(" Its content was checked.");
        }
        wrote(&call, sandbox, &path, input.encoding, &notes).await
    }
}

async fn wrote(
    call: &Call,
    sandbox: SandboxId,
    path: &GuestPath,
    encoding: Encoding,
    notes: &str,
) -> Result<Answer<File>, Refusal> {
    let info =
        look(call, sandbox, path).await?.ok_or_else(|| Refusal::argument(format!("{path} is gone again")))?;
    let file = File::new(sandbox, &info, encoding);
    let text = format!("Wrote {} bytes to {path}.{notes}", file.size);
    Ok(Answer::new(file, text))
}

#[derive(Debug)]
pub(in crate::tools) struct Write;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct WriteInput {
    /// The sandbox.
    sandbox_id: String,
    /// The file; relative to /workspace unless it begins with `/`. Folders above it are made.
    path: String,
    /// All that it will hold.
    content: String,
    /// How `content` is written.
    #[serde(default)]
    encoding: Encoding,
}

impl Tool for Write {
    const NAME: &'static str = "write_file";
    const TITLE: &'static str = "Write a file";
    const DESCRIPTION: &'static str =
        "Writes a file of a sandbox, whole or not at all; one that is there is replaced.";
    const HINTS: Hints = Hints::REPLACES;
    type Input = WriteInput;
    type Output = File;

    async fn call(call: Call, input: WriteInput) -> Result<Answer<File>, Refusal> {
        let (sandbox, path) = (handles::sandbox(&input.sandbox_id)?, handles::path(&input.path)?);
        let body = ByteStream::from(Bytes::from(input.encoding.bytes(input.content)?));
        call.control().write_file(&call.caller, sandbox, &path, body).await?;
        wrote(&call, sandbox, &path, input.encoding, "").await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_and_ordinary() {
        assert_eq!(
            (mode("0644").unwrap(), mode("755").unwrap(), mode("0o600").unwrap()),
            (0o644, 0o755, 0o600)
        );
        for wrong in ["", "rw-r--r--", "0888", "4755", "-1", "+644x"] {
            assert!(mode(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_not_given_as_text() {
        let path: GuestPath = "x".parse().unwrap();
        assert!(Encoding::Utf8.text(&path, b"\xff").is_err());
        assert_eq!(Encoding::Base64.text(&path, b"\xff").unwrap(), "/w==");
        assert_eq!(Encoding::Base64.bytes("/w==".to_owned()).unwrap(), b"\xff");
        assert!(Encoding::Base64.bytes("no base64".to_owned()).is_err());
    }
}
