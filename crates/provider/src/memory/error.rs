//! What can go wrong in memory, mapped once to the boundary's error.

use sandstorm_types::{
    ByteSize, Conflict, ErrorKind, ExecId, GuestPath, GuestPathError, SandboxId, SnapshotId, State,
};
use thiserror::Error as ThisError;

use crate::Error;

#[derive(Debug, ThisError)]
pub(super) enum MemoryError {
    #[error("there is no sandbox {0}")]
    NoSandbox(SandboxId),
    #[error("there is no exec {0}")]
    NoExec(ExecId),
    #[error("there is no snapshot {0}")]
    NoSnapshot(SnapshotId),
    #[error("there is a sandbox {0} already")]
    Exists(SandboxId),
    #[error("there is a snapshot {0} already")]
    SnapshotExists(SnapshotId),
    #[error("the snapshot would take {0}, which is more than it may")]
    SnapshotTooLarge(ByteSize),
    #[error("there is an exec {0} already")]
    ExecExists(ExecId),
    #[error("sandbox {id} is {state}, not ready")]
    NotReady { id: SandboxId, state: State },
    #[error("the sandbox cannot change that way")]
    State(#[from] Conflict),
    #[error("there is no program `{0}`")]
    NoProgram(String),
    #[error("exec {0} cannot be carried: {1}")]
    NotCarried(ExecId, &'static str),
    #[error("the program has no terminal")]
    NoTerminal,
    #[error("nothing listens on port {port}")]
    Refused { port: u16 },
    #[error("memory cannot be saved")]
    NoMemorySnapshots,
    #[error("there is no file {0}")]
    NoFile(GuestPath),
    #[error("{0} is a directory")]
    IsDirectory(GuestPath),
    #[error("{0} is not a directory")]
    NotDirectory(GuestPath),
    #[error("directory {0} is not empty")]
    NotEmpty(GuestPath),
    #[error("{0} cannot be written")]
    ReadOnly(GuestPath),
    #[error("{from} cannot move into itself")]
    IntoItself { from: GuestPath },
    #[error("mode {0:o} has more than permission bits")]
    Mode(u32),
    #[error("there is no room for {0}")]
    NoRoom(GuestPath),
    #[error("there are too many files for {0}")]
    NoInodes(GuestPath),
    #[error("the archive cannot be read")]
    Archive(#[from] std::io::Error),
    #[error("archive entry {0:?} is neither a file nor a folder")]
    ArchiveKind(String),
    #[error("archive entry {name:?} has no usable name")]
    ArchiveName { name: String, source: GuestPathError },
}

impl MemoryError {
    /// A body that is longer than the disk is a full disk, not a bad request.
    pub(super) fn of_body(error: Error, path: &GuestPath) -> Error {
        match error.kind() {
            ErrorKind::InvalidRequest => Self::NoRoom(path.clone()).into(),
            _ => error,
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSandbox(_) | Self::NoExec(_) | Self::NoSnapshot(_) | Self::NoFile(_) => {
                ErrorKind::NotFound
            }
            Self::Exists(_)
            | Self::ExecExists(_)
            | Self::SnapshotExists(_)
            | Self::NotReady { .. }
            | Self::NotCarried(..)
            | Self::State(_) => ErrorKind::Conflict,
            Self::SnapshotTooLarge(_) => ErrorKind::Quota,
            Self::NoProgram(_) | Self::NoTerminal | Self::Refused { .. } | Self::NoMemorySnapshots => {
                ErrorKind::InvalidRequest
            }
            Self::IsDirectory(_)
            | Self::NotDirectory(_)
            | Self::NotEmpty(_)
            | Self::ReadOnly(_)
            | Self::IntoItself { .. }
            | Self::Mode(_)
            | Self::NoRoom(_)
            | Self::NoInodes(_)
            | Self::Archive(_)
            | Self::ArchiveKind(_)
            | Self::ArchiveName { .. } => ErrorKind::FileSystem,
        }
    }
}

impl From<MemoryError> for Error {
    fn from(error: MemoryError) -> Self {
        // The source of the variant becomes the source of the boundary's error; its own text is the message.
        let message = error.to_string();
        let boundary = Self::new(error.kind(), message);
        match error {
            MemoryError::State(source) => boundary.with_source(source),
            MemoryError::Archive(source) => boundary.with_source(source),
            MemoryError::ArchiveName { source, .. } => boundary.with_source(source),
            _ => boundary,
        }
    }
}
