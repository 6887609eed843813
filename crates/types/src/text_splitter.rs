//! Cuts a stream of output bytes into chunks that JSON can carry.
//!
//! What is UTF-8 goes out as text, never cut inside a character; what is not goes out as base64. A
//! character that has only begun to arrive is held back until the next push or the end. One push gives at
//! most two chunks, so that a megabyte of noise does not become a million tiny events.

use crate::{Chunk, ChunkData};

/// Splits the bytes of one stream.
#[derive(Debug, Clone, Default)]
pub struct TextSplitter {
    offset: u64,
    held: Vec<u8>,
}

impl TextSplitter {
    pub fn new() -> Self {
        Self::default()
    }

    /// A splitter for a stream whose first `offset` bytes were seen already.
    pub fn starting_at(offset: u64) -> Self {
        Self { offset, held: Vec::new() }
    }

    /// Offset of the next byte that will go out.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Takes more bytes and gives the chunks that are complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Chunk> {
        let mut bytes = [std::mem::take(&mut self.held).as_slice(), bytes].concat();
        self.held = bytes.split_off(bytes.len() - incomplete_tail(&bytes));
        let text_len = match std::str::from_utf8(&bytes) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let noise = bytes.split_off(text_len);
        let text = String::from_utf8(bytes).expect("from_utf8 found it valid up to here");
        let text = (!text.is_empty()).then(|| self.chunk(text_len, ChunkData::Text(text)));
        let noise = (!noise.is_empty()).then(|| self.chunk(noise.len(), ChunkData::Base64(noise)));
        text.into_iter().chain(noise).collect()
    }

    /// Gives what was held back; the stream has ended in the middle of a character.
    pub fn finish(&mut self) -> Option<Chunk> {
        let held = std::mem::take(&mut self.held);
        (!held.is_empty()).then(|| self.chunk(held.len(), ChunkData::Base64(held)))
    }

    fn chunk(&mut self, len: usize, data: ChunkData) -> Chunk {
        let offset = self.offset;
        self.offset += len as u64;
        Chunk { offset, data }
    }
}

/// Length of a character at the end that lacks only bytes which may still come: 0 to 3.
fn incomplete_tail(bytes: &[u8]) -> usize {
    let longest = bytes.len().min(3);
    (1..=longest)
        .find(|len| {
            let tail = &bytes[bytes.len() - len..];
            // `error_len` of `None` means that the input ended too early, not that it is wrong.
            matches!(std::str::from_utf8(tail), Err(error) if error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(pieces: &[&[u8]]) -> Vec<Chunk> {
        let mut splitter = TextSplitter::new();
        let mut chunks: Vec<_> = pieces.iter().flat_map(|piece| splitter.push(piece)).collect();
        chunks.extend(splitter.finish());
        chunks
    }

    fn text(offset: u64, text: &str) -> Chunk {
        Chunk { offset, data: ChunkData::Text(text.into()) }
    }

    fn noise(offset: u64, bytes: &[u8]) -> Chunk {
        Chunk { offset, data: ChunkData::Base64(bytes.to_vec()) }
    }

    #[test]
    fn a_cut_character_waits_for_its_rest() {
        let bytes = "a€😀".as_bytes();
        assert_eq!(
            split(&[&bytes[..2], &bytes[2..3], &bytes[3..6], &bytes[6..]]),
            [text(0, "a"), text(1, "€"), text(4, "😀")]
        );
    }

    #[test]
    fn a_character_that_never_ends_goes_out_as_bytes() {
        assert_eq!(split(&[b"ok\xe2\x82"]), [text(0, "ok"), noise(2, b"\xe2\x82")]);
        assert_eq!(split(&[b"\xe2", b"x"]), [noise(0, b"\xe2x")]);
    }

    #[test]
    fn noise_gives_two_chunks_at_most() {
        assert_eq!(split(&[b"ok\xff\0abc\xffdef"]), [text(0, "ok"), noise(2, b"\xff\0abc\xffdef")]);
        assert_eq!(split(&[b"\xff", b"text again"]), [noise(0, b"\xff"), text(1, "text again")]);
    }

    #[test]
    fn surrogates_overlong_forms_and_nul_are_carried() {
        for bytes in [b"\xed\xa0\x80".as_slice(), b"\xc0\xaf", b"\xf8\x88\x80\x80\x80"] {
            assert!(matches!(&split(&[bytes])[0].data, ChunkData::Base64(_)), "{bytes:?}");
        }
        assert_eq!(split(&[b"data: x\r\n\r\nevent: y\0"]), [text(0, "data: x\r\n\r\nevent: y\0")]);
    }

    proptest! {
        #[test]
        fn bytes_come_back_in_order(pieces: Vec<Vec<u8>>) {
            let pieces: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
            check(&pieces)?;
        }

        #[test]
        fn text_stays_text_however_it_is_cut(text in "\\PC{0,40}", cuts in proptest::collection::vec(0usize..120, 0..6)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            check(&pieces)?;
            let texts = split(&pieces).iter().all(|chunk| matches!(chunk.data, ChunkData::Text(_)));
            prop_assert!(texts);
        }
    }

    fn check(pieces: &[&[u8]]) -> Result<(), TestCaseError> {
        let whole = pieces.concat();
        let mut seen = Vec::new();
        for chunk in split(pieces) {
            prop_assert_eq!(chunk.offset, seen.len() as u64);
            // Through JSON and back, as a client sees it.
            let json = serde_json::to_string(&chunk).unwrap();
            let back: Chunk = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(&back, &chunk);
            prop_assert!(!json.contains('\n'));
            seen.extend_from_slice(back.data.as_bytes());
        }
        prop_assert_eq!(seen, whole);
        let mut splitter = TextSplitter::new();
        for piece in pieces {
            prop_assert!(splitter.push(piece).len() <= 2);
            prop_assert!(splitter.held.len() <= 3);
        }
        Ok(())
    }
}
