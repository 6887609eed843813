//! Further tools for files: deleting, moving, and carrying whole folders in and out.

use bytes::Bytes;
use data_encoding::BASE64;
use sandstorm_provider::{ByteStream, FileOp, FileReply};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::files::unexpected;
use super::{Hints, Tool};
use crate::answer::Answer;
use crate::call::Call;
use crate::handles;
use crate::refusal::Refusal;

/// What was done to which path.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Done {
    path: String,
    done: bool,
}

impl Done {
    fn at(path: impl ToString) -> Self {
        Self { path: path.to_string(), done: true }
    }
}

#[derive(Debug)]
pub(super) struct Delete;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteInput {
    /// The sandbox.
    sandbox_id: String,
    /// The file or folder.
    path: String,
    /// Also a folder that holds something.
    #[serde(default)]
    recursive: bool,
}

impl Tool for Delete {
    const NAME: &'static str = "file_delete";
    const TITLE: &'static str = "Delete a file";
    const DESCRIPTION: &'static str =
        "Deletes a file or an empty folder of a sandbox; a folder with everything in it if `recursive`.";
    const HINTS: Hints = Hints::REPLACES;
    type Input = DeleteInput;
    type Output = Done;

    async fn call(call: Call, input: DeleteInput) -> Result<Answer<Done>, Refusal> {
        let (sandbox, path) = (handles::sandbox(&input.sandbox_id)?, handles::path(&input.path)?);
        let op = FileOp::Remove { path: path.clone(), recursive: input.recursive };
        call.control().files(&call.caller, sandbox, op).await?;
        Ok(Answer::new(Done::at(&path), format!("{path} is gone.")))
    }
}

#[derive(Debug)]
pub(super) struct Move;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MoveInput {
    /// The sandbox.
    sandbox_id: String,
    /// What to move.
    from: String,
    /// What it will be called. Folders above are made; a file that is there is replaced.
    to: String,
}

impl Tool for Move {
    const NAME: &'static str = "file_move";
    const TITLE: &'static str = "Move a file";
    const DESCRIPTION: &'static str =
        "Moves or renames a file or folder of a sandbox. A file that is in the way is replaced.";
    const HINTS: Hints = Hints::REPLACES;
    type Input = MoveInput;
    type Output = Done;

    async fn call(call: Call, input: MoveInput) -> Result<Answer<Done>, Refusal> {
        let sandbox = handles::sandbox(&input.sandbox_id)?;
        let (from, to) = (handles::path(&input.from)?, handles::path(&input.to)?);
        let op = FileOp::Move { from: from.clone(), to: to.clone() };
        call.control().files(&call.caller, sandbox, op).await?;
        Ok(Answer::new(Done::at(&to), format!("{from} is {to} now.")))
    }
}

#[derive(Debug)]
pub(super) struct Upload;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UploadInput {
    /// The sandbox.
    sandbox_id: String,
    /// A tar archive, in base64.
    archive: String,
    /// The folder that it is unpacked into; /workspace unless given.
    #[serde(default)]
    path: String,
}

impl Tool for Upload {
    const NAME: &'static str = "file_upload";
    const TITLE: &'static str = "Upload a folder";
    const DESCRIPTION: &'static str =
        "Unpacks a tar archive into a folder of a sandbox. Names that would leave that folder are refused.";
    const HINTS: Hints = Hints::REPLACES;
    type Input = UploadInput;
    type Output = Done;

    async fn call(call: Call, input: UploadInput) -> Result<Answer<Done>, Refusal> {
        let (sandbox, path) = (handles::sandbox(&input.sandbox_id)?, handles::folder(&input.path)?);
        let bytes = BASE64.decode(input.archive.as_bytes()).map_err(|error| {
            Refusal::argument(format!("`archive` is no standard, padded base64: {error}"))
        })?;
        let archive = ByteStream::from(Bytes::from(bytes));
        call.control().files(&call.caller, sandbox, FileOp::Unpack { path: path.clone(), archive }).await?;
        Ok(Answer::new(Done::at(&path), format!("Unpacked into {path}.")))
    }
}

#[derive(Debug)]
pub(super) struct Download;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DownloadInput {
    /// The sandbox.
    sandbox_id: String,
    /// The folder; /workspace unless given.
    #[serde(default)]
    path: String,
}

/// A folder, packed.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Packed {
    path: String,
    /// A tar archive, in base64.
    archive: String,
    size: usize,
}

impl Tool for Download {
    const NAME: &'static str = "file_download";
    const TITLE: &'static str = "Download a folder";
    const DESCRIPTION: &'static str = "Packs a folder of a sandbox into a tar archive and gives it in base64. For single files, use file_read.";
    const HINTS: Hints = Hints::LOOKS;
    type Input = DownloadInput;
    type Output = Packed;

    async fn call(call: Call, input: DownloadInput) -> Result<Answer<Packed>, Refusal> {
        let (sandbox, path) = (handles::sandbox(&input.sandbox_id)?, handles::folder(&input.path)?);
        let reply = call.control().files(&call.caller, sandbox, FileOp::Pack { path: path.clone() }).await?;
        let FileReply::Archive(stream) = reply else { return Err(unexpected()) };
        let bytes = stream.collect(call.shared.settings.largest_file()).await?;
        let text = format!("{path} as a tar archive of {} bytes, in the structured content.", bytes.len());
        let data = Packed { path: path.to_string(), archive: BASE64.encode(&bytes), size: bytes.len() };
        Ok(Answer::new(data, text))
    }
}
