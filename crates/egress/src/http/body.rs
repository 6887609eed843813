//! Where a request's body ends.

use super::Checked;
use crate::proxy::Refusal;

/// Digits of a chunk's size: more than any body that passes in a sandbox's life.
const SIZE_DIGITS: u32 = 8;
/// Bytes of trailers and of each chunk's extension: nobody needs them, and both were used to hide requests.
const MAX_TRAILER: usize = 4096;

/// What is left of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Length(u64),
    Chunked(Chunk),
}

/// Where in a chunked body we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    Size { value: u64, digits: u32 },
    SizeEnd { value: u64 },
    Data(u64),
    DataCr,
    DataLf,
    Trailer(Vec<u8>),
}

impl Body {
    pub(super) fn chunked() -> Self {
        Self::Chunked(Chunk::Size { value: 0, digits: 0 })
    }

    /// Follows the body through `bytes`: how many of them belong to it, and whether it ends there.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> Checked<(usize, bool)> {
        match self {
            Self::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= taken as u64;
                Ok((taken, *left == 0))
            }
            Self::Chunked(chunk) => {
                let mut taken = 0;
                while taken < bytes.len() {
                    if let Chunk::Data(left) = chunk {
                        let data = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - taken);
                        *left -= data as u64;
                        taken += data;
                        if *left == 0 {
                            *chunk = Chunk::DataCr;
                        }
                        continue;
                    }
                    let ended = chunk.step(bytes[taken])?;
                    taken += 1;
                    if ended {
                        return Ok((taken, true));
                    }
                }
                Ok((taken, false))
            }
        }
    }
}

impl Chunk {
    /// Takes one byte that is not data; true at the end of the body. Extensions are refused.
    fn step(&mut self, byte: u8) -> Checked<bool> {
        *self = match (&mut *self, byte) {
            (Self::Size { value, digits }, _) if byte.is_ascii_hexdigit() && *digits < SIZE_DIGITS => {
                let digit = char::from(byte).to_digit(16).expect("a hexadecimal digit");
                Self::Size { value: *value << 4 | u64::from(digit), digits: *digits + 1 }
            }
            (Self::Size { value, digits: 1.. }, b'\r') => Self::SizeEnd { value: *value },
            (Self::SizeEnd { value: 0 }, b'\n') => Self::Trailer(Vec::new()),
            (Self::SizeEnd { value }, b'\n') => Self::Data(*value),
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Size { value: 0, digits: 0 },
            (Self::Trailer(read), _) if read.len() < MAX_TRAILER => {
                read.push(byte);
                return trailer_ended(read);
            }
            _ => return Err(Refusal::MalformedRequest),
        };
        Ok(false)
    }
}

/// Trailers are lines like headers, and end with an empty one.
fn trailer_ended(read: &[u8]) -> Checked<bool> {
    match read {
        b"\r\n" => Ok(true),
        _ if read.ends_with(b"\r\n\r\n") => {
            super::head::headers(&read[..read.len() - 2])?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Checked<(usize, bool)> {
        Body::chunked().follow(bytes)
    }

    #[test]
    fn finds_the_end() {
        assert_eq!(Body::Length(3).follow(b"abcdef"), Ok((3, true)));
        assert_eq!(Body::Length(9).follow(b"abcdef"), Ok((6, false)));
        assert_eq!(whole(b"3\r\nabc\r\n0\r\n\r\nGET"), Ok((13, true)));
        assert_eq!(whole(b"0A\r\n0123456789\r\n0\r\nX: y\r\n\r\n"), Ok((27, true)));
        assert_eq!(whole(b"3\r\nabc\r\n"), Ok((8, false)));
    }

    #[test]
    fn refuses_what_can_be_read_in_two_ways() {
        for bytes in [
            &b"\r\n"[..],
            b"3\nabc\r\n",
            b"3;x=y\r\nabc\r\n",
            b"3 \r\nabc\r\n",
            b" 3\r\nabc\r\n",
            b"+3\r\nabc\r\n",
            b"0x3\r\nabc\r\n",
            b"3\r\nabcd\r\n",
            b"3\r\nabc\n0\r\n\r\n",
            b"123456789\r\n",
            b"0\r\n X: y\r\n\r\n",
            b"0\r\nX : y\r\n\r\n",
            b"0\r\nX: y\nZ: w\r\n\r\n",
        ] {
            assert_eq!(whole(bytes), Err(Refusal::MalformedRequest), "{:?}", String::from_utf8_lossy(bytes));
        }
        let endless = [&b"0\r\n"[..], &b"X: y\r\n".repeat(1000)].concat();
        assert_eq!(whole(&endless), Err(Refusal::MalformedRequest));
    }
}
