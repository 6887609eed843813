//! The line and headers of one request.

use std::collections::BTreeMap;

use sandstorm_types::HostName;

use super::body::Body;
use super::{Checked, is_token};
use crate::proxy::Refusal;

const MAX_HEADERS: usize = 128;
/// What a request may ask the next hop to do. Any other header that `Connection` names would be taken away by whoever
/// comes next, `Host` among them.
const HOP_OPTIONS: [&str; 5] = ["keep-alive", "close", "upgrade", "te", "http2-settings"];

/// Who the request has to be for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Authority<'a> {
    pub(super) name: &'a HostName,
    pub(super) port: u16,
}

/// What matters of a request that may pass.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) body: Option<Body>,
    pub(super) upgrade: Upgrade,
}

/// What the connection is to become if the server agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Upgrade {
    No,
    WebSocket,
    /// Something in which other hosts could be named. The server may decline it.
    Other,
}

impl Authority<'_> {
    /// `name` or `name:port`, in any case.
    fn is(self, text: &[u8]) -> bool {
        let (name, port) = match text.iter().position(|&byte| byte == b':') {
            Some(place) => (&text[..place], Some(&text[place + 1..])),
            None => (text, None),
        };
        name.eq_ignore_ascii_case(self.name.as_str().as_bytes())
            && port.is_none_or(|port| port == self.port.to_string().as_bytes())
    }
}

/// Reads a head up to and with its empty line.
pub(super) fn parse(head: &[u8], authority: Authority<'_>) -> Checked<Head> {
    let head = head.strip_suffix(b"\r\n").ok_or(Refusal::MalformedRequest)?;
    let end = head.windows(2).position(|pair| pair == b"\r\n").ok_or(Refusal::MalformedRequest)?;
    let version = request_line(&head[..end], authority)?;
    let headers = headers(&head[end + 2..])?;
    let all = |name: &'static str| {
        headers
            .iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
            .map(|&(_, value)| value)
    };
    let single = |name| {
        let mut values = all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err(Refusal::MalformedRequest),
        }
    };
    if headers.iter().any(|(name, _)| name.to_ascii_lowercase().starts_with(b"proxy-")) {
        return Err(Refusal::ProxyRequest);
    }
    if !authority.is(single("host")?.ok_or(Refusal::MalformedRequest)?) {
        return Err(Refusal::OtherHost);
    }
    let hop_options = all("connection").flat_map(|value| value.split(|&byte| byte == b','));
    if !hop_options.map(trim).all(|option| HOP_OPTIONS.iter().any(|known| is(option, known))) {
        return Err(Refusal::MalformedRequest);
    }
    let body = match (single("content-length")?, single("transfer-encoding")?) {
        (None, None) => None,
        (Some(length), None) => length_of(length)?.map(Body::Length),
        // An HTTP/1.0 server would not know it, and wait for the end of the connection instead.
        (None, Some(coding)) if is(coding, "chunked") && version == Version::One => Some(Body::chunked()),
        _ => return Err(Refusal::MalformedRequest),
    };
    let upgrade = match single("upgrade")? {
        None => Upgrade::No,
        Some(protocol) if is(protocol, "websocket") => Upgrade::WebSocket,
        Some(_) => Upgrade::Other,
    };
    Ok(Head { body, upgrade })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Zero,
    One,
}

fn request_line(line: &[u8], authority: Authority<'_>) -> Checked<Version> {
    let mut words = line.split(|&byte| byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refusal::MalformedRequest);
    };
    let version = match version {
        b"HTTP/1.1" => Version::One,
        b"HTTP/1.0" => Version::Zero,
        b"HTTP/2.0" => return Err(Refusal::PlainHttp2),
        _ => return Err(Refusal::MalformedRequest),
    };
    let written = |byte: &u8| !byte.is_ascii_control() && *byte != b'#';
    if method.is_empty() || !method.iter().all(|&byte| is_token(byte)) || !target.iter().all(written) {
        return Err(Refusal::MalformedRequest);
    }
    if method.eq_ignore_ascii_case(b"CONNECT") {
        return Err(Refusal::ProxyRequest);
    }
    match target {
        [b'/', ..] => Ok(version),
        b"*" if method == b"OPTIONS" => Ok(version),
        _ => {
            let scheme = target.get(..7).filter(|scheme| is(scheme, "http://"));
            let rest = &target[scheme.ok_or(Refusal::MalformedRequest)?.len()..];
            let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
            if authority.is(&rest[..end]) { Ok(version) } else { Err(Refusal::OtherHost) }
        }
    }
}

/// A head that was read, with these headers in place of its own of the same names.
pub(super) fn with_headers(head: &[u8], set: &BTreeMap<String, String>) -> Checked<Vec<u8>> {
    let head = head.strip_suffix(b"\r\n").ok_or(Refusal::MalformedRequest)?;
    let end = head.windows(2).position(|pair| pair == b"\r\n").ok_or(Refusal::MalformedRequest)?;
    let mut written = head[..end + 2].to_vec();
    let kept = headers(&head[end + 2..])?
        .into_iter()
        .filter(|(name, _)| !set.keys().any(|ours| name.eq_ignore_ascii_case(ours.as_bytes())));
    let ours = set.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    for (name, value) in kept.chain(ours) {
        written.extend_from_slice(name);
        written.extend_from_slice(b": ");
        written.extend_from_slice(value);
        written.extend_from_slice(b"\r\n");
    }
    written.extend_from_slice(b"\r\n");
    Ok(written)
}

/// Reads header lines, each with its end.
pub(super) fn headers(mut lines: &[u8]) -> Checked<Vec<(&[u8], &[u8])>> {
    let mut headers = Vec::new();
    while !lines.is_empty() {
        let end = lines.windows(2).position(|pair| pair == b"\r\n").ok_or(Refusal::MalformedRequest)?;
        let (line, rest) = lines.split_at(end);
        lines = &rest[2..];
        let colon = line.iter().position(|&byte| byte == b':').ok_or(Refusal::MalformedRequest)?;
        let (name, value) = (&line[..colon], trim(&line[colon + 1..]));
        // A folded line, or a space before the colon, fails here; a bare CR or LF below.
        let proper = !name.is_empty() && name.iter().all(|&byte| is_token(byte));
        if !proper || value.iter().any(|&byte| byte.is_ascii_control() && byte != b'\t') {
            return Err(Refusal::MalformedRequest);
        }
        headers.push((name, value));
        if headers.len() > MAX_HEADERS {
            return Err(Refusal::MalformedRequest);
        }
    }
    Ok(headers)
}

/// The length of a body; none for zero.
fn length_of(text: &[u8]) -> Checked<Option<u64>> {
    if text.is_empty() || text.len() > 18 || !text.iter().all(u8::is_ascii_digit) {
        return Err(Refusal::MalformedRequest);
    }
    let length = text.iter().fold(0, |length, digit| length * 10 + u64::from(digit - b'0'));
    Ok(Some(length).filter(|&length| length > 0))
}

fn is(text: &[u8], known: &str) -> bool {
    text.eq_ignore_ascii_case(known.as_bytes())
}

/// Without the spaces and tabs around it: no other white space counts as such.
fn trim(text: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = text.iter().position(|byte| !blank(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
    &text[start..end]
}

#[cfg(test)]
mod tests;
