//! Files of a sandbox.

use sandstorm_provider::{FileInfo, FileKind};
use sandstorm_types::{GuestPath, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::shapes::PathText;
use crate::json::Wire;
use crate::problem::{ApiError, ApiResult};

/// What is at a path; a link is described, not followed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileInfo)]
pub(crate) struct FileBody {
    #[schema(value_type = String)]
    path: GuestPath,
    kind: Kind,
    size: u64,
    /// Permission bits in octal, such as `0644`.
    #[schema(pattern = "^[0-7]{4}$")]
    mode: String,
    #[schema(value_type = String, format = DateTime)]
    modified: Timestamp,
    /// Where a link points.
    target: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = FileKind)]
enum Kind {
    File,
    Directory,
    Link,
    Other,
}

impl From<FileInfo> for FileBody {
    fn from(info: FileInfo) -> Self {
        Self {
            path: info.path,
            kind: match info.kind {
                FileKind::File => Kind::File,
                FileKind::Directory => Kind::Directory,
                FileKind::Link => Kind::Link,
                FileKind::Other => Kind::Other,
            },
            size: info.size.as_u64(),
            mode: format!("{:04o}", info.mode & 0o7777),
            modified: info.modified.into(),
            target: info.target,
        }
    }
}

/// What lies below a folder, sorted by path.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileList)]
pub(crate) struct Entries {
    pub(crate) entries: Vec<FileBody>,
    /// Whether there was more than the limit let through.
    pub(crate) more: bool,
}

/// Paths that fit.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FoundFiles)]
pub(crate) struct FoundBody {
    #[schema(value_type = Vec<String>)]
    pub(crate) paths: Vec<GuestPath>,
    pub(crate) more: bool,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Exists)]
pub(crate) struct ExistsBody {
    pub(crate) exists: bool,
}

/// A file that was written.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WrittenFile)]
pub(crate) struct WrittenBody {
    #[schema(value_type = String)]
    pub(crate) path: GuestPath,
    pub(crate) size: u64,
}

/// A folder to make, with those above it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MakeDir {
    #[schema(value_type = PathText)]
    pub(crate) path: GuestPath,
}

/// A file or folder to rename.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoveFile {
    #[schema(value_type = PathText)]
    pub(crate) from: GuestPath,
    #[schema(value_type = PathText)]
    pub(crate) to: GuestPath,
}

/// New permission bits.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetMode {
    #[schema(value_type = PathText)]
    pub(crate) path: GuestPath,
    /// In octal, such as `644`.
    #[schema(pattern = "^0?[0-7]{3}$")]
    pub(crate) mode: String,
}

impl Wire for MakeDir {}
impl Wire for MoveFile {}
impl Wire for SetMode {}

/// Permission bits from octal digits; bits above `777` have no place in a sandbox.
pub(crate) fn octal(field: &str, text: &str) -> ApiResult<u32> {
    let digits = (3..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if digits && mode <= 0o777 => Ok(mode),
        _ => Err(ApiError::field(field, "must be three octal digits, such as 644")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_and_harmless() {
        assert_eq!(octal("mode", "644").unwrap(), 0o644);
        assert_eq!(octal("mode", "0755").unwrap(), 0o755);
        for bad in ["", "4755", "99", "888", "+77", "0o644", "00644"] {
            assert!(octal("mode", bad).is_err(), "{bad}");
        }
    }
}
