//! Files piece by piece.

use axum::Extension;
use axum::extract::State;
use data_encoding::BASE64;
use sandstorm_control::server::Caller;
use sandstorm_provider::ReadRange;
use serde::Serialize;

use crate::answer::Answer;
use crate::file_types;
use crate::paths::file_place;
use crate::refusal::Refusal;
use crate::request::{QueryFields, Target};
use crate::router::Dialect;
use crate::routes::files::content;

/// Most bytes of a piece: it is held in memory, and in base64 it is a third longer.
const MOST_PIECE: u64 = 8 * 1024 * 1024;

#[derive(Debug, Serialize, PartialEq)]
pub(crate) struct Piece {
    /// Text, or base64 when `is_binary`.
    content: String,
    is_binary: bool,
    /// Where the next piece starts.
    offset: u64,
    /// Of the whole file.
    size: u64,
    is_eof: bool,
}

pub(crate) async fn read(
    State(dialect): State<Dialect>,
    Extension(caller): Extension<Caller>,
    target: Target,
    QueryFields(mut query): QueryFields,
) -> Result<Answer<Piece>, Refusal> {
    let offset = query.whole("offset", 0..=u64::MAX / 2, 0);
    let length = query.whole("buffer_size", 1..=MOST_PIECE, 4096);
    query.done()?;
    let path = file_place(&target.path)?;
    let view = dialect.sessions.open(&caller, &target.session).await?;
    let range = ReadRange { offset, length: Some(length) };
    let (info, piece) = content(&dialect, &caller, view.id, &path, range).await?;
    let bytes = piece.collect(usize::try_from(length).unwrap_or(usize::MAX)).await?;
    Ok(Answer(piece_of(&bytes, offset, info.size.as_u64(), file_types::is_text(path.as_str()))))
}

fn piece_of(bytes: &[u8], offset: u64, size: u64, is_text: bool) -> Piece {
    let reached = offset.saturating_add(bytes.len() as u64);
    let text = if is_text { whole_characters(bytes, reached < size) } else { None };
    let (content, taken, is_binary) = match text {
        Some(text) => (text.to_owned(), text.len(), false),
        None if bytes.is_empty() => (String::new(), 0, !is_text),
        None => (BASE64.encode(bytes), bytes.len(), true),
    };
    let next = offset.saturating_add(taken as u64);
    Piece { content, is_binary, offset: next, size, is_eof: next >= size }
}

/// The bytes as text. A character that the end of the piece cuts is left to the next piece, if there is one; bytes that are
/// no text at all give `None`.
fn whole_characters(bytes: &[u8], more: bool) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if more && error.error_len().is_none() && error.valid_up_to() > 0 => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_character_waits_for_the_next_piece() {
        let whole = "aü".as_bytes();
        let first = piece_of(&whole[..2], 0, 3, true);
        assert_eq!((first.content.as_str(), first.offset, first.is_eof), ("a", 1, false));
        let second = piece_of(&whole[1..], 1, 3, true);
        assert_eq!((second.content.as_str(), second.offset, second.is_eof), ("ü", 3, true));
    }

    #[test]
    fn what_is_no_text_comes_in_base64_and_always_goes_on() {
        // One byte at a time can never hold the character: better bytes than standing still.
        let stuck = piece_of(&"ü".as_bytes()[..1], 0, 2, true);
        assert_eq!((stuck.content.as_str(), stuck.is_binary, stuck.offset), ("ww==", true, 1));
        let cut_at_the_end = piece_of(b"a\xc3", 0, 2, true);
        assert!(cut_at_the_end.is_binary && cut_at_the_end.is_eof);
        assert!(piece_of(b"text", 0, 4, false).is_binary);
        let past = piece_of(b"", 9, 4, true);
        assert_eq!((past.offset, past.is_eof, past.is_binary), (9, true, false));
    }
}
