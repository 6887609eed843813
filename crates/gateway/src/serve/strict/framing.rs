//! The grammar of heads and bodies, as far as it decides where a message ends.

use crate::serve::refusal::Refusal;

/// Longest line of a chunk's size with its extensions.
const MAX_CHUNK_LINE: usize = 256;
const MAX_TRAILERS: usize = 8 << 10;

/// What is still to come of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body {
    Sized(u64),
    Chunked(Chunks),
}

/// Where in a chunked body we are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Chunks {
    /// In the line with the size: what was read of it.
    Size(Vec<u8>),
    Data(u64),
    /// After the data: so many bytes of the line end.
    DataEnd(usize),
    /// In the lines after the last chunk: what was read of them.
    Trailers(Vec<u8>),
}

/// Looks at a whole head. Gives the body that follows, or refuses.
pub(super) fn judge(head: &[u8], max_fields: usize) -> Result<Option<Body>, Refusal> {
    let text = head.strip_suffix(b"\r\n\r\n").ok_or(Refusal::Malformed)?;
    let lines = split_lines(text).map_err(|()| Refusal::Malformed)?;
    if lines.len() - 1 > max_fields {
        return Err(Refusal::TooLarge);
    }
    body_of(&lines).map_err(|()| Refusal::Malformed)
}

fn body_of(lines: &[&[u8]]) -> Result<Option<Body>, ()> {
    let mut lines = lines.iter().copied();
    let is_http_11 = request_line(lines.next().ok_or(())?)?;
    let (mut length, mut chunked) = (None, false);
    for line in lines {
        let (name, value) = field(line)?;
        if name.eq_ignore_ascii_case(b"content-length") {
            let number = std::str::from_utf8(value).map_err(|_| ())?;
            let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            // A second length is refused even if it is the same: whoever sends two is no honest client.
            if !digits || length.replace(number.parse::<u64>().map_err(|_| ())?).is_some() {
                return Err(());
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if chunked || !is_http_11 || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(());
            }
            chunked = true;
        }
    }
    match (length, chunked) {
        (Some(_), true) => Err(()),
        (None, true) => Ok(Some(Body::Chunked(Chunks::Size(Vec::new())))),
        (Some(length @ 1..), false) => Ok(Some(Body::Sized(length))),
        (Some(0) | None, false) => Ok(None),
    }
}

/// Lines that end in CR LF; either of the two alone is refused.
fn split_lines(text: &[u8]) -> Result<Vec<&[u8]>, ()> {
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        if rest.get(at..at + 2) != Some(b"\r\n") {
            return Err(());
        }
        lines.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    lines.push(rest);
    Ok(lines)
}

/// Method, target and version with one space between; whether the version is 1.1.
fn request_line(line: &[u8]) -> Result<bool, ()> {
    let parts: Vec<_> = line.split(|byte| *byte == b' ').collect();
    let [method, target, version] = parts[..] else { return Err(()) };
    if http::Uri::try_from(target).is_err() || method.is_empty() || !method.iter().all(|byte| is_token(*byte))
    {
        return Err(());
    }
    match version {
        b"HTTP/1.1" => Ok(true),
        b"HTTP/1.0" => Ok(false),
        _ => Err(()),
    }
}

/// Name and value of a field. A line that begins with a space would continue the one before it, for some.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), ()> {
    let colon = line.iter().position(|byte| *byte == b':').ok_or(())?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    let plain = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) || !value.iter().all(plain) {
        return Err(());
    }
    Ok((name, value.trim_ascii()))
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl Body {
    /// How much is still to come, where that is known.
    pub(super) fn plain(&self) -> Option<u64> {
        match self {
            Self::Sized(left) => Some(*left),
            Self::Chunked(_) => None,
        }
    }

    /// How many of `bytes` belong to the body, and whether it is over with them.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), ()> {
        match self {
            Self::Sized(left) => {
                let length = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= length as u64;
                Ok((length, *left == 0))
            }
            Self::Chunked(chunks) => {
                let mut taken = 0;
                while taken < bytes.len() {
                    let (length, over) = chunks.step(&bytes[taken..])?;
                    taken += length;
                    if over {
                        return Ok((taken, true));
                    }
                }
                Ok((taken, false))
            }
        }
    }
}

impl Chunks {
    /// Takes at least one byte; also says whether the body is over.
    fn step(&mut self, bytes: &[u8]) -> Result<(usize, bool), ()> {
        match self {
            Self::Size(line) => {
                line.push(bytes[0]);
                if line.ends_with(b"\r\n") {
                    *self = match size(&line[..line.len() - 2])? {
                        0 => Self::Trailers(b"\r\n".to_vec()),
                        length => Self::Data(length),
                    };
                } else if line.len() > MAX_CHUNK_LINE || bytes[0] == b'\n' {
                    return Err(());
                }
                Ok((1, false))
            }
            Self::Data(left) => {
                let length = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= length as u64;
                if *left == 0 {
                    *self = Self::DataEnd(0);
                }
                Ok((length, false))
            }
            Self::DataEnd(place) => {
                if bytes[0] != b"\r\n"[*place] {
                    return Err(());
                }
                *place += 1;
                if *place == 2 {
                    *self = Self::Size(Vec::new());
                }
                Ok((1, false))
            }
            Self::Trailers(lines) => {
                lines.push(bytes[0]);
                if bytes[0] == b'\n' && !lines.ends_with(b"\r\n") || lines.len() > MAX_TRAILERS {
                    return Err(());
                }
                Ok((1, lines.ends_with(b"\r\n\r\n")))
            }
        }
    }
}

/// The size of a chunk; what follows a semicolon is an extension, which nobody uses.
fn size(line: &[u8]) -> Result<u64, ()> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let plain = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let extension = line[digits.len()..].iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    if !plain || !extension {
        return Err(());
    }
    let text = std::str::from_utf8(digits).map_err(|_| ())?;
    u64::from_str_radix(text, 16).map_err(|_| ())
}
