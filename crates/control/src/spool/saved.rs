//! Output that was saved, and how it goes out again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use data_encoding::BASE64;
use sandstorm_types::PerStream;

/// Bytes that are read at once: whole groups of base64.
const PIECE: usize = 48 << 10;

/// All that a program wrote, as far as its limit goes.
#[derive(Debug)]
pub struct Whole {
    pub stdout: Saved,
    pub stderr: Saved,
    /// Which streams were longer than this.
    pub truncated: PerStream<bool>,
}

/// What a program wrote to one stream.
#[derive(Debug)]
pub enum Saved {
    Memory(Vec<u8>),
    File {
        file: File,
        length: u64,
        /// Whether it is UTF-8.
        text: bool,
    },
}

impl Saved {
    /// Whether it is UTF-8, and so given as it is; base64 otherwise.
    pub fn is_text(&self) -> bool {
        match self {
            Self::Memory(bytes) => str::from_utf8(bytes).is_ok(),
            Self::File { text, .. } => *text,
        }
    }

    /// All of it in memory.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::Memory(bytes) => Ok(bytes.clone()),
            Self::File { file, length, .. } => {
                let mut bytes = vec![0; usize::try_from(*length).map_err(io::Error::other)?];
                file.read_exact_at(&mut bytes, 0)?;
                Ok(bytes)
            }
        }
    }

    /// It in pieces, as they stand between the quotes of a JSON text. Each is read when it is asked for.
    pub fn json_pieces(self) -> impl Iterator<Item = io::Result<Bytes>> + Send {
        JsonPieces { text: self.is_text(), saved: self, at: 0, begun: Vec::new() }
    }

    fn length(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File { length, .. } => *length,
        }
    }

    fn piece(&self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        match self {
            Self::Memory(bytes) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                Ok(bytes.get(at..at.saturating_add(length)).unwrap_or_default().to_vec())
            }
            Self::File { file, .. } => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, at)?;
                Ok(bytes)
            }
        }
    }
}

struct JsonPieces {
    saved: Saved,
    text: bool,
    at: u64,
    /// The beginning of a character.
    begun: Vec<u8>,
}

impl Iterator for JsonPieces {
    type Item = io::Result<Bytes>;

    fn next(&mut self) -> Option<io::Result<Bytes>> {
        let left = self.saved.length().saturating_sub(self.at);
        if left == 0 {
            return None;
        }
        let length = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let piece = self.saved.piece(self.at, length).and_then(|bytes| self.told(bytes));
        self.at += length as u64;
        Some(piece)
    }
}

impl JsonPieces {
    fn told(&mut self, bytes: Vec<u8>) -> io::Result<Bytes> {
        if !self.text {
            return Ok(BASE64.encode(&bytes).into());
        }
        let mut joined = std::mem::take(&mut self.begun);
        joined.extend_from_slice(&bytes);
        let mut whole = joined.len();
        if let Err(error) = str::from_utf8(&joined) {
            whole = error.valid_up_to();
        }
        self.begun = joined.split_off(whole);
        let text = String::from_utf8(joined).map_err(io::Error::other)?;
        let quoted = Bytes::from(serde_json::to_vec(&text)?);
        Ok(quoted.slice(1..quoted.len() - 1))
    }
}
