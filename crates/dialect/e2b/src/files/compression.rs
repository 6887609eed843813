//! gzip on the way, piece by piece.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzDecoder, GzEncoder};
use futures_util::stream::{self, Stream, StreamExt};
use sandstorm_provider::{Error, Result};
use sandstorm_types::ErrorKind;

/// Compressed bytes that are taken at once, so that however well they were compressed little memory is needed.
const BITE: usize = 4 << 10;

/// Compresses what comes.
pub(super) fn packed(
    content: impl Stream<Item = Result<Bytes>> + Send + Unpin + 'static,
) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
    let encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
    stream::unfold((content, encoder), |(mut content, encoder)| async move {
        let mut encoder = encoder?;
        loop {
            match content.next().await {
                Some(Ok(piece)) => {
                    if let Err(error) = encoder.write_all(&piece) {
                        return Some((Err(broken(error)), (content, None)));
                    }
                    if !encoder.get_ref().is_empty() {
                        let out = std::mem::take(encoder.get_mut());
                        return Some((Ok(Bytes::from(out)), (content, Some(encoder))));
                    }
                }
                Some(Err(error)) => return Some((Err(error), (content, None))),
                None => {
                    let last = encoder.finish().map(Bytes::from).map_err(broken);
                    return Some((last, (content, None)));
                }
            }
        }
    })
}

struct Unpacking<S> {
    content: S,
    decoder: GzDecoder<Vec<u8>>,
    /// What of the last piece was not taken yet.
    left: Bytes,
    over: bool,
}

/// Decompresses what comes; what is not gzip, or breaks off, is an error.
pub(super) fn unpacked(
    content: impl Stream<Item = Result<Bytes>> + Send + Unpin + 'static,
) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
    let state = Unpacking { content, decoder: GzDecoder::new(Vec::new()), left: Bytes::new(), over: false };
    stream::unfold(state, |mut state| async move {
        if state.over {
            return None;
        }
        let piece = state.piece().await;
        state.over |= !matches!(piece, Some(Ok(_)));
        piece.map(|piece| (piece, state))
    })
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> Unpacking<S> {
    async fn piece(&mut self) -> Option<Result<Bytes>> {
        loop {
            while self.left.is_empty() {
                match self.content.next().await {
                    Some(Ok(piece)) => self.left = piece,
                    Some(Err(error)) => return Some(Err(error)),
                    None => return self.last(),
                }
            }
            let bite = self.left.split_to(self.left.len().min(BITE));
            if let Err(error) = self.decoder.write_all(&bite) {
                return Some(Err(broken(error)));
            }
            let out = std::mem::take(self.decoder.get_mut());
            if !out.is_empty() {
                return Some(Ok(Bytes::from(out)));
            }
        }
    }

    fn last(&mut self) -> Option<Result<Bytes>> {
        match self.decoder.try_finish() {
            Ok(()) => {
                let out = std::mem::take(self.decoder.get_mut());
                self.over = true;
                (!out.is_empty()).then(|| Ok(Bytes::from(out)))
            }
            Err(error) => Some(Err(broken(error))),
        }
    }
}

fn broken(error: io::Error) -> Error {
    Error::new(ErrorKind::InvalidRequest, "the compressed content is broken").with_source(error)
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt;

    use super::*;

    fn pieces(bytes: &[u8], size: usize) -> impl Stream<Item = Result<Bytes>> + Send + Unpin + 'static {
        let pieces: Vec<_> = bytes.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        stream::iter(pieces)
    }

    async fn all(content: impl Stream<Item = Result<Bytes>>) -> Result<Vec<u8>> {
        let pieces: Vec<Bytes> = content.try_collect().await?;
        Ok(pieces.concat())
    }

    #[tokio::test]
    async fn what_is_packed_is_unpacked_again() {
        let content: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        for size in [1000, 65_536, 1 << 20] {
            let packed = all(Box::pin(packed(pieces(&content, size)))).await.unwrap();
            assert!(packed.len() < content.len() / 4);
            assert_eq!(all(Box::pin(unpacked(pieces(&packed, size)))).await.unwrap(), content);
        }
        let nothing = all(Box::pin(packed(pieces(&[], 1)))).await.unwrap();
        assert_eq!(all(Box::pin(unpacked(pieces(&nothing, 7)))).await.unwrap(), b"");
    }

    #[tokio::test]
    async fn broken_content_is_refused() {
        let packed = all(Box::pin(packed(pieces(&[7; 1000], 100)))).await.unwrap();
        for bad in [&b"not gzip at all, not at all"[..], &packed[..packed.len() - 5]] {
            assert!(all(Box::pin(unpacked(pieces(bad, 64)))).await.is_err());
        }
    }
}
