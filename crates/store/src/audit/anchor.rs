//! The side file: one line for each checkpoint, each signed together with the line before it.
//!
//! `v1 <node> <mark|cut> <seq> <hash> <milliseconds> <mac>`. The first one has the number 0 and is there before the first
//! record: a file without it was begun anew. Lines are only ever appended, under a lock of the file, so
//! that a server and a command line can both do it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use sandstorm_types::Timestamp;

use super::record::Canonical;
use super::{AuditKey, Checkpoint, Kind};
use crate::{Result, StoreError};

/// More than any line has.
const LINE: u64 = 512;

/// A line that was read, its signature not checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) node: String,
    pub(super) checkpoint: Checkpoint,
    pub(super) mac: String,
}

pub(super) fn append(path: &Path, key: &AuditKey, node: &str, checkpoints: &[Checkpoint]) -> Result<()> {
    append_lines(path, key, node, checkpoints).map_err(StoreError::file("write", path))
}

fn append_lines(path: &Path, key: &AuditKey, node: &str, checkpoints: &[Checkpoint]) -> io::Result<()> {
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.lock()?;
    let mut before = whole_tail(&mut file)?.map(|line| line.mac).unwrap_or_default();
    let mut text = String::new();
    for checkpoint in checkpoints {
        let mac = key.sign(&signed_text(node, checkpoint, &before));
        let Checkpoint { kind, seq, hash, at } = checkpoint;
        text += &format!("v1 {node} {} {seq} {hash} {} {mac}\n", kind.name(), at.millis());
        before = mac;
    }
    file.seek(SeekFrom::End(0))?;
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

/// Copies the whole lines that are there into a new file that nobody else may read. Without an anchor the copy is empty.
pub(super) fn copy(path: &Path, to: &Path) -> Result<()> {
    let text = match File::open(path).and_then(read_locked) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        text => text.map_err(StoreError::file("read", path))?,
    };
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to);
    let written = written.and_then(|mut file| file.write_all(&text[..whole]).and_then(|()| file.sync_all()));
    written.map_err(StoreError::file("write", to))
}

fn read_locked(mut file: File) -> io::Result<Vec<u8>> {
    file.lock_shared()?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    Ok(text)
}

/// Writes the line that comes before every record, unless there is a line.
pub(super) fn begin(path: &Path, key: &AuditKey, node: &str) -> Result<()> {
    let begun = std::fs::metadata(path).is_ok_and(|file| file.len() > 0);
    let nothing = Checkpoint { kind: Kind::Mark, seq: 0, hash: "0".to_owned(), at: Timestamp::now() };
    if begun { Ok(()) } else { append(path, key, node, &[nothing]) }
}

/// The number of the last line; `None` when there is no file or no line of this node at its end.
pub(super) fn newest(path: &Path, node: &str) -> Result<Option<u64>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(StoreError::file("read", path))?,
    };
    let tail = tail(&mut file).map_err(StoreError::file("read", path))?;
    let whole = tail.rfind('\n').map_or("", |end| &tail[..end]);
    let last = whole.lines().last().and_then(parse).filter(|line| line.node == node);
    Ok(last.map(|line| line.checkpoint.seq))
}

/// All lines; what cannot be read is `None`. The last one counts only when it was written to its end: without a newline
/// it is what a crash left.
pub(super) fn lines(path: &Path) -> Result<Vec<Option<Line>>> {
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.map_err(StoreError::file("read", path))?,
    };
    let text = String::from_utf8_lossy(&text);
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    Ok(whole.lines().map(parse).collect())
}

/// Whether the line is of this key and stands after a line with that signature.
pub(super) fn genuine(line: &Line, key: &AuditKey, before: &str) -> bool {
    key.signed(&signed_text(&line.node, &line.checkpoint, before), &line.mac)
}

fn signed_text(node: &str, checkpoint: &Checkpoint, before: &str) -> Canonical {
    let mut text = Canonical::new("sandstorm audit anchor v1");
    text.add(checkpoint.text(node).bytes());
    text.add(before.as_bytes());
    text
}

/// Removes half a line that a crash left, and reads the last whole one.
fn whole_tail(file: &mut File) -> io::Result<Option<Line>> {
    let text = tail(file)?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    if whole < text.len() {
        let length = file.metadata()?.len();
        file.set_len(length - (text.len() - whole) as u64)?;
    }
    Ok(text[..whole].lines().last().and_then(parse))
}

fn tail(file: &mut File) -> io::Result<String> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LINE)))?;
    let mut bytes = Vec::new();
    file.take(LINE).read_to_end(&mut bytes)?;
    // Every line is ASCII; other bytes are somebody else's and are told apart by the signature.
    bytes.iter_mut().filter(|byte| !byte.is_ascii()).for_each(|byte| *byte = b'?');
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn parse(line: &str) -> Option<Line> {
    let words: Vec<&str> = line.split(' ').collect();
    let ["v1", node, kind, seq, hash, at, mac] = words[..] else { return None };
    let checkpoint = Checkpoint {
        kind: Kind::parse(kind)?,
        seq: seq.parse().ok()?,
        hash: hash.to_owned(),
        at: Timestamp::from_millis(at.parse().ok()?),
    };
    Some(Line { node: node.to_owned(), checkpoint, mac: mac.to_owned() })
}
