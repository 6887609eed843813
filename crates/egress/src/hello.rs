//! Reads the server name out of a TLS ClientHello.
//!
//! The hello may come in any number of segments and records, so the parser is asked again as bytes arrive. It reads
//! only as far as it must and is strict about every length on the way: what is odd is refused, not guessed.

mod stream;

pub(crate) use stream::Hellos;

/// A hello that is longer than this is refused. Those of current clients, post-quantum key shares included, are
/// under 2 KiB.
pub(crate) const MAX_BYTES: usize = 16 * 1024;

const RECORD_HEADER: usize = 5;
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const EXTENSION_ENCRYPTED_HELLO: u16 = 0xfe0d;
const NAME_TYPE_HOST: u8 = 0;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The one host name, as sent.
    pub(crate) server_name: Option<Vec<u8>>,
    /// The client sent another hello inside this one that we cannot read.
    pub(crate) encrypted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HelloError {
    /// More bytes are needed.
    Incomplete,
    /// The stream is not TLS.
    NotTls,
    /// It is TLS, and broken or ambiguous.
    Malformed,
}

/// Whether a stream that starts like this is, or could become, TLS.
pub(crate) fn looks_like_tls(start: &[u8]) -> bool {
    matches!(start, [] | [HANDSHAKE] | [HANDSHAKE, 3, ..])
}

pub(crate) fn parse(stream: &[u8]) -> Result<Hello, HelloError> {
    parse_with_length(stream).map(|(hello, _)| hello)
}

/// The hello, and how many bytes of the stream its records are.
fn parse_with_length(stream: &[u8]) -> Result<(Hello, usize), HelloError> {
    let handshake = handshake_bytes(stream)?;
    let [CLIENT_HELLO, a, b, c, body @ ..] = &handshake[..] else {
        return Err(match handshake.first() {
            Some(&kind) if kind != CLIENT_HELLO => HelloError::Malformed,
            _ => incomplete_or_too_long(stream),
        });
    };
    let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
    if length > MAX_BYTES {
        return Err(HelloError::Malformed);
    }
    let body = body.get(..length).ok_or_else(|| incomplete_or_too_long(stream))?;
    let hello = client_hello(body).ok_or(HelloError::Malformed)?;
    Ok((hello, records_of(stream, 4 + length)?))
}

/// The length of the records that hold this much of a handshake. A record that also holds the start of what follows is
/// refused: nobody sends that, and it would have to be looked into.
fn records_of(stream: &[u8], mut handshake: usize) -> Result<usize, HelloError> {
    let mut end = 0;
    while handshake > 0 {
        let length = usize::from(u16::from_be_bytes([stream[end + 3], stream[end + 4]]));
        handshake = handshake.checked_sub(length).ok_or(HelloError::Malformed)?;
        end += RECORD_HEADER + length;
    }
    Ok(end)
}

fn incomplete_or_too_long(stream: &[u8]) -> HelloError {
    if stream.len() >= MAX_BYTES { HelloError::Malformed } else { HelloError::Incomplete }
}

/// Joins the contents of the handshake records at the start of the stream, the last of which may be cut short.
fn handshake_bytes(mut stream: &[u8]) -> Result<Vec<u8>, HelloError> {
    let mut joined = Vec::new();
    let mut first = true;
    while !stream.is_empty() {
        if !looks_like_tls(stream) {
            // Only the first bytes can show another protocol; a wrong record after a handshake record is broken TLS,
            // unless the hello was complete before it.
            return if first { Err(HelloError::NotTls) } else { Ok(joined) };
        }
        let Some((header, rest)) = stream.split_at_checked(RECORD_HEADER) else { break };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if length == 0 || length > MAX_BYTES {
            return Err(HelloError::Malformed);
        }
        let (content, after) = rest.split_at(length.min(rest.len()));
        joined.extend_from_slice(content);
        stream = after;
        first = false;
    }
    Ok(joined)
}

fn client_hello(body: &[u8]) -> Option<Hello> {
    let mut reader = Reader(body);
    // Version and random.
    reader.take(2 + 32)?;
    // Session id, cipher suites, compression methods.
    reader.vector_u8()?;
    reader.vector_u16()?;
    reader.vector_u8()?;
    let mut hello = Hello { server_name: None, encrypted: false };
    if reader.0.is_empty() {
        return Some(hello);
    }
    let mut extensions = Reader(reader.vector_u16()?);
    if !reader.0.is_empty() {
        return None;
    }
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let data = extensions.vector_u16()?;
        match kind {
            // A second name, in the same list or in another extension, could be the one that the server obeys.
            EXTENSION_SERVER_NAME if hello.server_name.is_some() => return None,
            EXTENSION_SERVER_NAME => hello.server_name = Some(server_name(data)?),
            EXTENSION_ENCRYPTED_HELLO => hello.encrypted = true,
            _ => {}
        }
    }
    Some(hello)
}

fn server_name(data: &[u8]) -> Option<Vec<u8>> {
    let mut reader = Reader(data);
    let mut list = Reader(reader.vector_u16()?);
    if !reader.0.is_empty() || list.take(1)? != [NAME_TYPE_HOST] {
        return None;
    }
    let name = list.vector_u16()?;
    (list.0.is_empty() && !name.is_empty()).then(|| name.to_vec())
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn vector_u8(&mut self) -> Option<&'a [u8]> {
        let length = self.take(1)?[0];
        self.take(length.into())
    }

    fn vector_u16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(length.into())
    }
}

#[cfg(test)]
pub(crate) mod tests;
