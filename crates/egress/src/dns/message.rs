//! The little of DNS that a sandbox may speak: one question in, one address or nothing out.

use std::net::Ipv4Addr;

use sandstorm_types::HostName;

const HEADER: usize = 12;
const MAX_NAME: usize = 255;
const CLASS_INTERNET: u16 = 1;
/// Short, so that programs ask again and a name in use stays in the table.
const TTL_SECONDS: u32 = 30;

const RESPONSE: u8 = 0x80;
const OPCODE: u8 = 0x78;
const RECURSION_DESIRED: u8 = 0x01;
const RECURSION_AVAILABLE: u8 = 0x80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordType {
    A,
    Aaaa,
    Https,
    Other,
}

/// A well-formed query for a name that could exist.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query<'a> {
    header: &'a [u8; HEADER],
    /// The question section as it came, to be sent back unchanged.
    question: &'a [u8],
    pub(super) name: HostName,
    pub(super) kind: RecordType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    NoError = 0,
    Malformed = 1,
    NotImplemented = 4,
    Refused = 5,
}

/// A message that is not a query to answer: `Some` is the error to send back, `None` is silence.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rejected(pub(super) Option<Vec<u8>>);

impl<'a> Query<'a> {
    pub(super) fn parse(message: &'a [u8]) -> Result<Self, Rejected> {
        let Some((header, body)) = message.split_first_chunk::<HEADER>() else { return Err(Rejected(None)) };
        // Answering an answer would let two resolvers talk for ever.
        if header[2] & RESPONSE != 0 {
            return Err(Rejected(None));
        }
        let reject = |code| Rejected(Some(reply(header, &[], code, None)));
        if header[2] & OPCODE != 0 {
            return Err(reject(Code::NotImplemented));
        }
        // One question and neither answers nor authorities; additional records carry options and are not read.
        if header[4..10] != [0, 1, 0, 0, 0, 0] {
            return Err(reject(Code::Malformed));
        }
        let (name, rest) = read_name(body).ok_or_else(|| reject(Code::Malformed))?;
        let (&[k1, k2, c1, c2], _) = rest.split_first_chunk().ok_or_else(|| reject(Code::Malformed))?;
        let question = &body[..body.len() - rest.len() + 4];
        let refused = || Rejected(Some(reply(header, question, Code::Refused, None)));
        if u16::from_be_bytes([c1, c2]) != CLASS_INTERNET {
            return Err(refused());
        }
        let kind = match u16::from_be_bytes([k1, k2]) {
            1 => RecordType::A,
            28 => RecordType::Aaaa,
            65 => RecordType::Https,
            _ => RecordType::Other,
        };
        let name = name.and_then(|name| name.parse().ok()).ok_or_else(refused)?;
        Ok(Self { header, question, name, kind })
    }

    pub(super) fn address(&self, address: Ipv4Addr) -> Vec<u8> {
        reply(self.header, self.question, Code::NoError, Some(address))
    }

    /// The name exists and has no record of this type.
    pub(super) fn empty(&self) -> Vec<u8> {
        reply(self.header, self.question, Code::NoError, None)
    }

    pub(super) fn refused(&self) -> Vec<u8> {
        reply(self.header, self.question, Code::Refused, None)
    }
}

/// Reads the labels of an uncompressed name. The outer `None` is a broken message; the inner one is a name that is
/// well-formed DNS but holds bytes that no host name has, a dot inside a label among them.
fn read_name(body: &[u8]) -> Option<(Option<String>, &[u8])> {
    let mut name = Some(String::new());
    let mut rest = body;
    loop {
        let (&length, after) = rest.split_first()?;
        // The two high bits mark pointers, which a question has no use for.
        if length > 63 {
            return None;
        }
        let (label, after) = after.split_at_checked(length.into())?;
        rest = after;
        if body.len() - rest.len() > MAX_NAME {
            return None;
        }
        if label.is_empty() {
            return Some((name, rest));
        }
        let plain = label.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        name = name.filter(|_| plain).map(|mut name| {
            if !name.is_empty() {
                name.push('.');
            }
            name.extend(label.iter().map(|&byte| char::from(byte)));
            name
        });
    }
}

fn reply(query: &[u8; HEADER], question: &[u8], code: Code, answer: Option<Ipv4Addr>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + question.len() + 16);
    bytes.extend_from_slice(&query[..2]);
    bytes.push(RESPONSE | (query[2] & (OPCODE | RECURSION_DESIRED)));
    bytes.push(RECURSION_AVAILABLE | code as u8);
    bytes.extend_from_slice(&[0, u8::from(!question.is_empty()), 0, u8::from(answer.is_some()), 0, 0, 0, 0]);
    bytes.extend_from_slice(question);
    if let Some(address) = answer {
        // A pointer to the question's name, then type A, class IN, time to live, length and address.
        bytes.extend_from_slice(&[0xc0, HEADER as u8, 0, 1, 0, 1]);
        bytes.extend_from_slice(&TTL_SECONDS.to_be_bytes());
        bytes.extend_from_slice(&[0, 4]);
        bytes.extend_from_slice(&address.octets());
    }
    bytes
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn query(labels: &[&[u8]], kind: u16) -> Vec<u8> {
        let mut bytes = vec![0x12, 0x34, RECURSION_DESIRED, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in labels {
            bytes.push(u8::try_from(label.len()).unwrap());
            bytes.extend_from_slice(label);
        }
        bytes.push(0);
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&[0, 1]);
        bytes
    }

    fn code(message: &[u8]) -> Option<u8> {
        match Query::parse(message) {
            Ok(_) => Some(0),
            Err(Rejected(reply)) => reply.map(|reply| reply[3] & 0x0f),
        }
    }

    #[test]
    fn reads_a_question_and_answers_it() {
        let bytes = query(&[b"Www", b"Example", b"com"], 1);
        let query = Query::parse(&bytes).unwrap();
        assert_eq!((query.name.as_str(), query.kind), ("www.example.com", RecordType::A));
        let answer = query.address([198, 18, 1, 0].into());
        assert_eq!(answer[..12], [0x12, 0x34, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(answer[12..bytes.len()], bytes[12..]);
        assert_eq!(answer[bytes.len()..], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 198, 18, 1, 0]);
        assert_eq!(query.empty()[6..8], [0, 0]);
        assert_eq!(query.refused()[3] & 0x0f, 5);
    }

    #[test]
    fn options_after_the_question_are_ignored() {
        let mut bytes = query(&[b"example", b"com"], 28);
        bytes[11] = 1;
        bytes.extend_from_slice(&[0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0]);
        let query = Query::parse(&bytes).unwrap();
        assert_eq!(query.kind, RecordType::Aaaa);
        assert!(!query.empty().ends_with(&[0, 0, 0]), "the options came back");
    }

    #[test]
    fn names_that_are_no_host_names_are_refused() {
        for labels in [
            &[&b"attacker\0"[..], b"example", b"com"][..],
            &[b"attacker.example", b"com"],
            &[b"a b", b"com"],
            &[b"ex\xc3\xa4mple", b"com"],
            &[b"%2e", b"com"],
            &[b"user@host", b"com"],
            &[b"a/b", b"com"],
            &[b"127", b"0", b"0", b"1"],
            &[b"0x7f000001"],
            &[b"2130706433"],
            &[],
        ] {
            assert_eq!(code(&query(labels, 1)), Some(5), "{labels:?}");
        }
    }

    #[test]
    fn broken_messages_are_malformed_or_dropped() {
        let good = query(&[b"example", b"com"], 1);
        for length in 0..12 {
            assert_eq!(code(&good[..length]), None);
        }
        for length in 12..good.len() {
            assert_eq!(code(&good[..length]), Some(1), "cut at {length}");
        }
        let mut pointer = good.clone();
        pointer[12] = 0xc0;
        assert_eq!(code(&pointer), Some(1));
        for count in [4, 5, 7, 9] {
            let mut bytes = good.clone();
            bytes[count] += 1;
            assert_eq!(code(&bytes), Some(1), "count at {count}");
        }
        let long = query(&[&[b'a'; 63][..]; 4], 1);
        assert_eq!(code(&long), Some(1));
    }

    #[test]
    fn answers_and_other_operations_get_no_address() {
        let mut answer = query(&[b"example", b"com"], 1);
        answer[2] |= RESPONSE;
        assert_eq!(code(&answer), None);
        let mut update = query(&[b"example", b"com"], 1);
        update[2] |= 5 << 3;
        assert_eq!(code(&update), Some(4));
        let mut chaos = query(&[b"version", b"bind"], 16);
        *chaos.last_mut().unwrap() = 3;
        assert_eq!(code(&chaos), Some(5));
    }

    proptest! {
        #[test]
        fn never_panics_and_never_answers_more_than_it_was_asked(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            match Query::parse(&bytes) {
                Ok(query) => prop_assert!(query.address([198, 18, 1, 1].into()).len() <= bytes.len() + 16),
                Err(Rejected(Some(reply))) => prop_assert!(reply.len() <= bytes.len()),
                Err(Rejected(None)) => {}
            }
        }

        #[test]
        fn a_name_is_read_as_the_bytes_say(labels in prop::collection::vec("[A-Za-z0-9_-]{1,20}", 1..6)) {
            let parts: Vec<&[u8]> = labels.iter().map(|label| label.as_bytes()).collect();
            if let Ok(query) = Query::parse(&query(&parts, 1)) {
                prop_assert_eq!(query.name.as_str(), labels.join(".").to_ascii_lowercase());
            }
        }
    }
}
