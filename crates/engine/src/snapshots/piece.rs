//! Pieces of a saved sandbox on disk: each behind its length and a hash, the last one empty.
//!
//! A hash covers the hash before it, the length and the bytes; the first one goes on from the id of the snapshot. So a
//! piece that was changed, moved, left out, cut off or taken from another snapshot is found before it is passed on.

use std::fs::File;
use std::io::{self, ErrorKind, Read};

use bytes::{Bytes, BytesMut};
use sandstorm_types::SnapshotId;

/// Most bytes of one piece.
pub(super) const PIECE: usize = 64 * 1024;
const LENGTH: usize = 4;
const HASH: usize = 32;
const HEAD: usize = LENGTH + HASH;

type Hash = [u8; HASH];

/// Makes what stands in front of each piece.
pub(super) struct Seal(Hash);

impl Seal {
    pub(super) fn new(id: SnapshotId) -> Self {
        Self(hash(&[0; HASH], &id.bits().to_be_bytes()))
    }

    /// The head of the next piece, which has at most [`PIECE`] bytes.
    pub(super) fn head(&mut self, bytes: &[u8]) -> [u8; HEAD] {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        self.0 = hash(&self.0, bytes);
        let mut head = [0; HEAD];
        head[..LENGTH].copy_from_slice(&length);
        head[LENGTH..].copy_from_slice(&self.0);
        head
    }
}

/// The length is part of what is hashed: it is that of the bytes.
fn hash(before: &Hash, bytes: &[u8]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(before).update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    *hasher.finalize().as_bytes()
}

/// Reads what was saved, piece by piece.
pub(super) struct Reader {
    file: File,
    seal: Seal,
}

impl Reader {
    /// `file`: what comes behind the header.
    pub(super) fn new(file: File, id: SnapshotId) -> Self {
        Self { file, seal: Seal::new(id) }
    }

    /// The next piece; `None` at the end. `InvalidData` or `UnexpectedEof`: it is not what was saved.
    pub(super) fn next(&mut self) -> io::Result<Option<Bytes>> {
        let mut head = [0; HEAD];
        self.file.read_exact(&mut head)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if length > PIECE {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut piece = BytesMut::zeroed(length);
        self.file.read_exact(&mut piece)?;
        if self.seal.head(&piece) != head {
            return Err(ErrorKind::InvalidData.into());
        }
        if length > 0 {
            return Ok(Some(piece.freeze()));
        }
        // Nothing comes after the end.
        match self.file.read(&mut [0])? {
            0 => Ok(None),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }
}
