//! Writes netlink messages: a header, a fixed part, then attributes that may nest.
//!
//! Lengths are patched in when a message or a nest closes, so the caller writes top-down and never counts bytes.

/// Every message and attribute starts on this boundary.
const ALIGNMENT: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;
/// Marks an attribute whose value is a list of attributes.
const NESTED: u16 = 0x8000;

pub(super) const REQUEST: u16 = 0x1;
pub(super) const ACK: u16 = 0x4;
pub(super) const EXCL: u16 = 0x200;
pub(super) const CREATE: u16 = 0x400;
pub(super) const APPEND: u16 = 0x800;

/// A run of netlink messages that is sent as one datagram.
#[derive(Debug, Default)]
pub(super) struct Messages {
    bytes: Vec<u8>,
    /// How many of the messages ask for an acknowledgement.
    acknowledged: usize,
    count: u32,
}

impl Messages {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn acknowledged(&self) -> usize {
        self.acknowledged
    }

    /// Appends one message; `fixed` is the family's header struct, `attributes` writes the rest.
    pub(super) fn message(
        &mut self,
        kind: u16,
        flags: u16,
        fixed: &[u8],
        attributes: impl FnOnce(&mut Attributes<'_>),
    ) {
        if flags & ACK != 0 {
            self.acknowledged += 1;
        }
        self.count += 1;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&self.count.to_ne_bytes());
        // Port id 0: the kernel knows which socket this came from.
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(fixed);
        pad(&mut self.bytes);
        attributes(&mut Attributes { bytes: &mut self.bytes });
        let length = u32::try_from(self.bytes.len() - start).expect("a message is far below 4 GiB");
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }
}

/// The attributes of the message or nest that is open.
#[derive(Debug)]
pub(super) struct Attributes<'a> {
    bytes: &'a mut Vec<u8>,
}

impl Attributes<'_> {
    pub(super) fn raw(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length = u16::try_from(ATTRIBUTE_HEADER + value.len()).expect("an attribute is far below 64 KiB");
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        pad(self.bytes);
        self
    }

    /// A string with the closing NUL that the kernel's policies ask for.
    pub(super) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut terminated = value.as_bytes().to_vec();
        terminated.push(0);
        self.raw(kind, &terminated)
    }

    pub(super) fn u32_be(&mut self, kind: u16, value: u32) -> &mut Self {
        self.raw(kind, &value.to_be_bytes())
    }

    pub(super) fn u64_be(&mut self, kind: u16, value: u64) -> &mut Self {
        self.raw(kind, &value.to_be_bytes())
    }

    pub(super) fn u32_ne(&mut self, kind: u16, value: u32) -> &mut Self {
        self.raw(kind, &value.to_ne_bytes())
    }

    pub(super) fn nest(&mut self, kind: u16, inner: impl FnOnce(&mut Attributes<'_>)) -> &mut Self {
        let start = self.bytes.len();
        self.raw(kind | NESTED, &[]);
        inner(&mut Attributes { bytes: self.bytes });
        let length = u16::try_from(self.bytes.len() - start).expect("an attribute is far below 64 KiB");
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_cover_padding_inside_and_exclude_it_outside() {
        let mut messages = Messages::default();
        messages.message(7, ACK, &[1, 2], |attributes| {
            attributes.nest(3, |inner| {
                inner.text(1, "ab").raw(2, &[9]);
            });
        });
        let bytes = messages.bytes();
        assert_eq!(u32::from_ne_bytes(bytes[0..4].try_into().unwrap()) as usize, bytes.len());
        assert_eq!(u16::from_ne_bytes(bytes[6..8].try_into().unwrap()), ACK | REQUEST);
        // 16 bytes of header, 2 of fixed part padded to 4, then the nest: 4 + (4 + 3 + 1) + (4 + 1 + 3).
        assert_eq!(u16::from_ne_bytes(bytes[20..22].try_into().unwrap()), 20);
        assert_eq!(u16::from_ne_bytes(bytes[22..24].try_into().unwrap()), 3 | NESTED);
        // The text counts its NUL but not its padding.
        assert_eq!(u16::from_ne_bytes(bytes[24..26].try_into().unwrap()), 7);
        assert_eq!(&bytes[28..32], b"ab\0\0");
        assert_eq!(messages.acknowledged(), 1);
    }

    #[test]
    fn sequence_numbers_rise_within_one_batch() {
        let mut messages = Messages::default();
        messages.message(1, 0, &[], |_| {});
        messages.message(1, ACK, &[], |_| {});
        let second = &messages.bytes()[16..];
        assert_eq!(u32::from_ne_bytes(second[8..12].try_into().unwrap()), 2);
        assert_eq!(messages.acknowledged(), 1);
    }
}
