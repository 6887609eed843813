//! Every client hello of a connection, not only its first.
//!
//! A TLS 1.3 server may ask the client for a second hello, and some obey the name in that one. It comes in the clear like
//! the first, after any number of other records, so records are followed for as long as one can still come.

use super::{CLIENT_HELLO, HANDSHAKE, Hello, HelloError, MAX_BYTES, RECORD_HEADER};

const CHANGE_CIPHER: u8 = 20;
const ALERT: u8 = 21;
const DATA: u8 = 23;
/// No server takes a hello whose length has a higher first byte. What else starts with the number of a hello is an
/// encrypted message of TLS 1.2.
const MAX_LENGTH_HIGH: u8 = 2;

/// Follows the records of a client.
#[derive(Debug)]
pub(crate) struct Hellos {
    held: Vec<u8>,
    /// Bytes left of a record that is not looked into.
    left: usize,
    free: bool,
}

/// What the bytes at the start of a record are.
enum Next {
    Incomplete,
    /// A record of this many bytes that names nobody.
    Other(usize),
    /// No hello can follow: the client has encrypted what comes, as TLS 1.2 does.
    Free,
    Hello(Hello, usize),
}

impl Hellos {
    pub(crate) fn new() -> Self {
        Self { held: Vec::new(), left: 0, free: false }
    }

    /// Takes what the client sent and returns what of it, and of what was held before, may go on: hellos once they are
    /// whole and `check` has nothing against them.
    pub(crate) fn take<E: From<HelloError>>(
        &mut self,
        bytes: &[u8],
        check: impl Fn(&Hello) -> Result<(), E>,
    ) -> Result<Vec<u8>, E> {
        let mut passed = Vec::with_capacity(bytes.len());
        let skipped = if self.free { bytes.len() } else { self.left.min(bytes.len()) };
        self.left = self.left.saturating_sub(skipped);
        passed.extend_from_slice(&bytes[..skipped]);
        self.held.extend_from_slice(&bytes[skipped..]);
        while !self.held.is_empty() {
            let length = match next(&self.held)? {
                Next::Incomplete => break,
                Next::Other(length) => length,
                Next::Free => {
                    self.free = true;
                    self.held.len()
                }
                Next::Hello(hello, length) => {
                    check(&hello)?;
                    length
                }
            };
            self.left = length.saturating_sub(self.held.len());
            passed.extend(self.held.drain(..length.min(self.held.len())));
        }
        Ok(passed)
    }

    /// Whether a hello has begun and is not whole.
    pub(crate) fn is_within_hello(&self) -> bool {
        !self.held.is_empty()
    }
}

fn next(held: &[u8]) -> Result<Next, HelloError> {
    let Some(header) = held.first_chunk::<RECORD_HEADER>() else { return Ok(Next::Incomplete) };
    let length = RECORD_HEADER + usize::from(u16::from_be_bytes([header[3], header[4]]));
    match (header[0], header[1]) {
        (CHANGE_CIPHER | ALERT | DATA, 3) => Ok(Next::Other(length)),
        (HANDSHAKE, 3) => match super::handshake_bytes(held)?.as_slice() {
            [] | [CLIENT_HELLO] => too_long_or(held, Next::Incomplete),
            [CLIENT_HELLO, ..=MAX_LENGTH_HIGH, ..] => match super::parse_with_length(held) {
                Ok((hello, length)) => Ok(Next::Hello(hello, length)),
                Err(HelloError::Incomplete) => Ok(Next::Incomplete),
                Err(_) => Err(HelloError::Malformed),
            },
            _ => Ok(Next::Free),
        },
        _ => Err(HelloError::Malformed),
    }
}

fn too_long_or(held: &[u8], next: Next) -> Result<Next, HelloError> {
    if held.len() >= MAX_BYTES { Err(HelloError::Malformed) } else { Ok(next) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::hello_for;
    use super::*;

    const KEY_EXCHANGE: &[u8] = &[22, 3, 3, 0, 5, 16, 0, 0, 1, 9];
    const FINISHED: &[u8] = &[22, 3, 3, 0, 4, 77, 1, 2, 3];
    const CHANGE: &[u8] = &[20, 3, 3, 0, 1, 1];
    const EARLY: &[u8] = &[23, 3, 3, 0, 3, 22, 3, 1];

    #[derive(Debug, PartialEq)]
    enum Wrong {
        Name,
        Hello,
    }

    impl From<HelloError> for Wrong {
        fn from(_: HelloError) -> Self {
            Self::Hello
        }
    }

    /// What passes of a stream in which every hello must be for `a.test`.
    fn pass(parts: &[&[u8]], size: usize) -> Result<Vec<u8>, Wrong> {
        let mut hellos = Hellos::new();
        let mut passed = Vec::new();
        let check = |hello: &Hello| match hello.server_name.as_deref() {
            Some(b"a.test") => Ok(()),
            _ => Err(Wrong::Name),
        };
        for piece in parts.concat().chunks(size) {
            passed.extend(hellos.take(piece, check)?);
        }
        Ok(passed)
    }

    #[test]
    fn ordinary_connections_pass_unchanged() {
        let hello = &hello_for(&["a.test"])[..];
        let data = &[&[23, 3, 3, 0x40, 0][..], &[22; 0x4000]].concat()[..];
        for parts in [
            &[hello, CHANGE, data, data][..],
            &[hello, CHANGE, hello, data],
            &[hello, hello, CHANGE, data],
            &[hello, EARLY, hello, data],
            &[hello, KEY_EXCHANGE, CHANGE, FINISHED, data, b"anything"],
            &[hello, CHANGE, FINISHED, data],
            &[hello, &[21, 3, 3, 0, 2, 1, 0], data],
        ] {
            for size in [1, 7, 100, 100_000] {
                assert_eq!(pass(parts, size), Ok(parts.concat()), "pieces of {size}");
            }
        }
    }

    #[test]
    fn a_later_hello_may_not_name_another() {
        let (good, evil) = (&hello_for(&["a.test"])[..], &hello_for(&["evil.test"])[..]);
        let nameless = &hello_for(&[])[..];
        // The same in records of one byte each.
        let split: Vec<u8> = evil[5..].iter().flat_map(|&byte| [22, 3, 1, 0, 1, byte]).collect();
        for later in [evil, nameless, &split] {
            for between in [&[][..], CHANGE, EARLY, &[EARLY, CHANGE].concat()] {
                for size in [1, 7, 100_000] {
                    assert_eq!(pass(&[good, between, later], size), Err(Wrong::Name), "pieces of {size}");
                }
            }
        }
        // Two in one record, or one that does not parse.
        let mut both = [&good[5..], &evil[5..]].concat();
        both.splice(0..0, [&[22, 3, 1][..], &u16::try_from(both.len()).unwrap().to_be_bytes()].concat());
        assert_eq!(pass(&[&both], 100_000), Err(Wrong::Hello));
        assert_eq!(pass(&[good, &[22, 3, 1, 0, 5, 1, 0, 0, 1, 0]], 3), Err(Wrong::Hello));
        assert_eq!(pass(&[good, b"GET / HTTP/1.1\r\n"], 3), Err(Wrong::Hello));
    }
}
