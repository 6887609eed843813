//! Whether bytes that come in pieces are UTF-8.

/// Looks at bytes as they come.
#[derive(Debug, Default)]
pub(super) struct TextCheck {
    /// The beginning of a character of which the rest is still to come.
    begun: Vec<u8>,
    broken: bool,
}

impl TextCheck {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        if self.broken {
            return;
        }
        if self.begun.is_empty() {
            self.look(bytes);
        } else {
            let mut joined = std::mem::take(&mut self.begun);
            joined.extend_from_slice(bytes);
            self.look(&joined);
        }
    }

    fn look(&mut self, bytes: &[u8]) {
        if let Err(error) = str::from_utf8(bytes) {
            match error.error_len() {
                None => self.begun = bytes[error.valid_up_to()..].to_vec(),
                Some(_) => self.broken = true,
            }
        }
    }

    pub(super) fn is_text(&self) -> bool {
        !self.broken && self.begun.is_empty()
    }
}

/// Takes the beginning of a character away that the end of `bytes` cut through.
pub(crate) fn trim(bytes: &mut Vec<u8>) {
    if let Err(error) = str::from_utf8(bytes)
        && error.error_len().is_none()
    {
        bytes.truncate(error.valid_up_to());
    }
}
