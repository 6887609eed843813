//! Messages of `filesystem.Filesystem`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;

/// What is at a path. Type, size and mode are those of what a link leads to, permissions those of the link.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EntryInfo {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: FileType,
    pub path: String,
    #[serde(serialize_with = "as_text", deserialize_with = "text_or_number")]
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// As `ls -l` writes them.
    pub permissions: String,
    pub owner: String,
    pub group: String,
    #[serde(alias = "modified_time")]
    pub modified_time: String,
    #[serde(alias = "symlink_target", skip_serializing_if = "Option::is_none")]
    pub symlink_target: Option<String>,
    /// What is kept with it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "&'static str")]
pub enum FileType {
    #[default]
    Unspecified,
    File,
    Directory,
    Symlink,
}

impl From<FileType> for &'static str {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::Unspecified => "FILE_TYPE_UNSPECIFIED",
            FileType::File => "FILE_TYPE_FILE",
            FileType::Directory => "FILE_TYPE_DIRECTORY",
            FileType::Symlink => "FILE_TYPE_SYMLINK",
        }
    }
}

impl TryFrom<Value> for FileType {
    type Error = &'static str;

    /// One that came later is unspecified.
    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match (value.as_str(), value.as_i64()) {
            (Some("FILE_TYPE_FILE"), _) | (_, Some(1)) => Ok(Self::File),
            (Some("FILE_TYPE_DIRECTORY"), _) | (_, Some(2)) => Ok(Self::Directory),
            (Some("FILE_TYPE_SYMLINK"), _) | (_, Some(3)) => Ok(Self::Symlink),
            (Some(_), _) | (_, Some(_)) => Ok(Self::Unspecified),
            _ => Err("the type of a file is neither a name nor a number"),
        }
    }
}

/// The answer of `Stat`, `MakeDir` and `Move`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EntryReply {
    pub entry: EntryInfo,
}

/// The answer of `ListDir`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EntriesReply {
    pub entries: Vec<EntryInfo>,
}

/// `Stat`, `MakeDir`, `ListDir`, `Remove`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PathRequest {
    pub path: String,
    pub depth: u32,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MoveRequest {
    pub source: String,
    pub destination: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchRequest {
    pub path: String,
    pub recursive: bool,
    /// Whether a change comes with what is at its path then.
    #[serde(rename = "includeEntry", alias = "include_entry", skip_serializing_if = "is_false")]
    pub include_entry: bool,
    /// Whether a folder may be watched whose file system another machine changes.
    #[serde(rename = "allowNetworkMounts", alias = "allow_network_mounts", skip_serializing_if = "is_false")]
    pub allow_network_mounts: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// A change, by a name relative to the watched folder.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FilesystemEvent {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: EventType,
    /// What is at the path, if it was asked for and is still there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryInfo>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "&'static str")]
pub enum EventType {
    #[default]
    Unspecified,
    Create,
    Write,
    Remove,
    Rename,
    Chmod,
}

impl From<EventType> for &'static str {
    fn from(kind: EventType) -> Self {
        match kind {
            EventType::Unspecified => "EVENT_TYPE_UNSPECIFIED",
            EventType::Create => "EVENT_TYPE_CREATE",
            EventType::Write => "EVENT_TYPE_WRITE",
            EventType::Remove => "EVENT_TYPE_REMOVE",
            EventType::Rename => "EVENT_TYPE_RENAME",
            EventType::Chmod => "EVENT_TYPE_CHMOD",
        }
    }
}

impl TryFrom<Value> for EventType {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match (value.as_str(), value.as_i64()) {
            (Some("EVENT_TYPE_CREATE"), _) | (_, Some(1)) => Ok(Self::Create),
            (Some("EVENT_TYPE_WRITE"), _) | (_, Some(2)) => Ok(Self::Write),
            (Some("EVENT_TYPE_REMOVE"), _) | (_, Some(3)) => Ok(Self::Remove),
            (Some("EVENT_TYPE_RENAME"), _) | (_, Some(4)) => Ok(Self::Rename),
            (Some("EVENT_TYPE_CHMOD"), _) | (_, Some(5)) => Ok(Self::Chmod),
            (Some(_), _) | (_, Some(_)) => Ok(Self::Unspecified),
            _ => Err("the type of a change is neither a name nor a number"),
        }
    }
}

/// One message of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WatchMessage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Nothing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<FilesystemEvent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive: Option<Nothing>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Nothing {}

/// Numbers of 64 bits are texts in this form of JSON.
fn as_text<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
    number.ok_or_else(|| de::Error::custom("a size is no number"))
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    #[test]
    fn entries_are_read_in_either_spelling() {
        let entry: EntryInfo = from_value(json!({
            "name": "a", "type": "FILE_TYPE_FILE", "path": "/a", "size": "5", "mode": 420,
            "modified_time": "2026-01-01T00:00:00Z", "symlinkTarget": "/b", "metadata": {"k": "v"},
        }))
        .unwrap();
        assert_eq!((entry.size, entry.kind), (5, FileType::File));
        assert_eq!(entry.symlink_target.as_deref(), Some("/b"));
        assert_eq!(entry.metadata["k"], "v");
        assert_eq!(to_value(&entry).unwrap()["size"], "5");
        assert_eq!(from_value::<EntryInfo>(json!({"type": 2, "size": 7})).unwrap().kind, FileType::Directory);
        assert!(from_value::<EntryInfo>(json!({"size": "-1"})).is_err());
        assert_eq!(from_value::<FileType>(json!("FILE_TYPE_NEW")).unwrap(), FileType::Unspecified);
    }

    #[test]
    fn watches_tell_one_thing_at_a_time() {
        let told: WatchMessage =
            from_value(json!({"filesystem": {"name": "a/b", "type": "EVENT_TYPE_WRITE"}})).unwrap();
        assert_eq!(told.filesystem.unwrap().kind, EventType::Write);
        assert_eq!(from_value::<WatchMessage>(json!({"start": {}})).unwrap().start, Some(Nothing {}));
    }
}
