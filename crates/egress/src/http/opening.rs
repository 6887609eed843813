//! What a client speaks, by its first bytes.

use super::is_token;
use crate::hello;

/// Longer first lines are no request's.
const MAX_LINE: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// More bytes are needed.
    Undecided,
    Tls,
    /// A server could take it for an HTTP request, well-formed or not.
    Http,
    Other,
}

/// Looks wider than the parser that follows: what a lenient server would still answer is sent to that parser too, to be
/// refused there.
pub(crate) fn classify(start: &[u8]) -> Opening {
    if hello::looks_like_tls(start) {
        return if start.len() < 2 { Opening::Undecided } else { Opening::Tls };
    }
    let blank = start.iter().take_while(|byte| matches!(byte, b'\r' | b'\n' | b' ' | b'\t')).count();
    let text = &start[blank..];
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let ended = line.len() < text.len();
    let odd = |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\t' | b'\r' | 0x0b | 0x0c);
    let method = line.iter().take_while(|&&byte| is_token(byte)).count();
    let spoken = line.get(method).is_none_or(|byte| matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c));
    if !spoken || line.iter().any(odd) || start.len() > MAX_LINE {
        return Opening::Other;
    }
    match (ended, line.to_ascii_uppercase().windows(5).any(|window| window == b"HTTP/")) {
        (false, _) => Opening::Undecided,
        (true, true) => Opening::Http,
        (true, false) => Opening::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_is_spoken() {
        for (start, opening) in [
            (&b""[..], Opening::Undecided),
            (&[22], Opening::Undecided),
            (&[22, 3], Opening::Tls),
            (&[22, 4], Opening::Other),
            (b"GET", Opening::Undecided),
            (b"GET / HTTP/1.1", Opening::Undecided),
            (b"GET / HTTP/1.1\r\n", Opening::Http),
            (b"get / http/1.1\n", Opening::Http),
            (b"\r\n\r\nGET / HTTP/1.1\r\n", Opening::Http),
            (b" GET / HTTP/1.1\r\n", Opening::Http),
            (b"GET\t/\x0bHTTP/1.1\r\n", Opening::Http),
            (b"FROB / HTTP/9\r\n", Opening::Http),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Opening::Http),
            (b"GET / HTTP/1.1\rHost: a\n", Opening::Http),
            (b"SSH-2.0-OpenSSH\r\n", Opening::Other),
            (b"EHLO a.test\r\n", Opening::Other),
            (b"*1\r\n$4\r\nPING\r\n", Opening::Other),
            (b"0032git-upload-pack /a\0host", Opening::Other),
            (b"\0\0\0\x08", Opening::Other),
            (b"AMQP\0\0\x09\x01", Opening::Other),
        ] {
            assert_eq!(classify(start), opening, "{:?}", String::from_utf8_lossy(start));
        }
        assert_eq!(classify(&[b'a'; MAX_LINE + 1]), Opening::Other);
    }

    #[test]
    fn nothing_that_the_parser_accepts_goes_past_it() {
        let request = b"PATCH /x HTTP/1.0\r\nHost: a.test\r\n\r\n";
        for length in 1..request.len() {
            let opening = classify(&request[..length]);
            assert!(matches!(opening, Opening::Undecided | Opening::Http), "{length}: {opening:?}");
        }
    }
}
