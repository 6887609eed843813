//! One record: made safe, written down canonically, hashed.

use std::fmt::Write;

use ring::digest::{SHA256, digest};

use super::redact::redacted_json;
use super::{Audit, AuditRow, Decision, redact};
use crate::database::Row;
use crate::{Json, Result, StoreError};

const MAX_PRINCIPAL: usize = 128;
const MAX_ACTION: usize = 64;
const MAX_OBJECT: usize = 512;
const MAX_REQUEST: usize = 128;
const MAX_DETAIL: usize = 4096;

/// Bytes in which no two different lists of fields look the same: each has its length in front.
#[derive(Debug)]
pub(super) struct Canonical(Vec<u8>);

impl Canonical {
    pub(super) fn new(domain: &str) -> Self {
        let mut text = Self(Vec::with_capacity(512));
        text.add(domain.as_bytes());
        text
    }

    pub(super) fn add(&mut self, field: &[u8]) {
        self.0.extend_from_slice(&(field.len() as u64).to_be_bytes());
        self.0.extend_from_slice(field);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A record as its columns hold it. What was tampered with need not be a tenant or JSON any more, and what is hashed is
/// the text that was stored, not another spelling of it.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) node: String,
    pub(super) seq: i64,
    pub(super) at: i64,
    pub(super) monotonic_ms: i64,
    pub(super) tenant: String,
    pub(super) principal: String,
    pub(super) action: String,
    pub(super) object: String,
    pub(super) decision: String,
    pub(super) request_id: String,
    pub(super) detail: Option<String>,
    pub(super) prev_hash: String,
    pub(super) hash: String,
}

impl Record {
    /// The hash that a record with these fields has at place `seq`.
    pub(super) fn hash_at(&self, seq: i64) -> String {
        let mut text = Canonical::new("sandstorm audit v1");
        text.add(self.node.as_bytes());
        for number in [seq, self.at, self.monotonic_ms] {
            text.add(&number.to_be_bytes());
        }
        for field in
            [&self.tenant, &self.principal, &self.action, &self.object, &self.decision, &self.request_id]
        {
            text.add(field.as_bytes());
        }
        text.add(&[u8::from(self.detail.is_some())]);
        text.add(self.detail.as_deref().unwrap_or_default().as_bytes());
        text.add(self.prev_hash.as_bytes());
        hex(digest(&SHA256, text.bytes()).as_ref())
    }

    pub(super) fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            node: row.get("node")?,
            seq: row.get("seq")?,
            at: row.get("at")?,
            monotonic_ms: row.get("monotonic_ms")?,
            tenant: row.get("tenant")?,
            principal: row.get("principal")?,
            action: row.get("action")?,
            object: row.get("object")?,
            decision: row.get("decision")?,
            request_id: row.get("request_id")?,
            detail: row.optional("detail")?,
            prev_hash: row.get("prev_hash")?,
            hash: row.get("hash")?,
        })
    }
}

/// What stands before the first record of a node.
pub(super) fn genesis(node: &str) -> String {
    let mut text = Canonical::new("sandstorm audit genesis v1");
    text.add(node.as_bytes());
    hex(digest(&SHA256, text.bytes()).as_ref())
}

/// The record as it may be stored: bounded, printable, without secrets.
pub(super) fn safe(audit: &Audit) -> Audit {
    Audit {
        tenant: audit.tenant,
        principal: safe_text(&audit.principal, MAX_PRINCIPAL),
        action: safe_text(&audit.action, MAX_ACTION),
        object: safe_text(&audit.object, MAX_OBJECT),
        decision: audit.decision,
        request_id: safe_text(&audit.request_id, MAX_REQUEST),
        detail: audit.detail.as_ref().map(safe_detail),
    }
}

fn safe_text(text: &str, most: usize) -> String {
    bounded(&escaped(&redact::redacted_text(text)), most)
}

fn safe_detail(detail: &Json) -> Json {
    let redacted = redacted_json(detail, &escaped);
    let text = redacted.to_string();
    // As a text of its own it is quoted, which at most doubles it.
    if text.len() <= MAX_DETAIL { redacted } else { Json::String(bounded(&text, MAX_DETAIL / 2)) }
}

/// Without characters that a terminal or a log could take for something else.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        // Controls, separators of lines, and what turns the direction of writing.
        let turns = matches!(character, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{feff}');
        let turns = turns || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if character.is_control() || turns {
            safe.extend(character.escape_unicode());
        } else {
            safe.push(character);
        }
    }
    safe
}

/// What is too long keeps its beginning and the hash of all of it.
fn bounded(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let hash = hex(&digest(&SHA256, text.as_bytes()).as_ref()[..16]);
    let end = (0..=most - 48).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…sha256:{hash}", &text[..end])
}

impl Decision {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        }
    }

    fn parse(name: &str) -> Result<Self> {
        match name {
            "allowed" => Ok(Self::Allowed),
            "denied" => Ok(Self::Denied),
            _ => Err(StoreError::corrupt("an audit record holds an unknown decision")),
        }
    }
}

/// A record for people.
pub(super) fn read(row: &Row) -> Result<AuditRow> {
    Ok(AuditRow {
        node: row.get("node")?,
        seq: row.get("seq")?,
        at: row.get("at")?,
        monotonic_ms: row.get("monotonic_ms")?,
        audit: Audit {
            tenant: row.get("tenant")?,
            principal: row.get("principal")?,
            action: row.get("action")?,
            object: row.get("object")?,
            decision: Decision::parse(&row.get::<String>("decision")?)?,
            request_id: row.get("request_id")?,
            detail: row.optional("detail")?,
        },
        prev_hash: row.get("prev_hash")?,
        hash: row.get("hash")?,
    })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String cannot fail");
        text
    })
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_cannot_flow_into_each_other() {
        let canonical = |fields: &[&str]| {
            let mut text = Canonical::new("d");
            fields.iter().for_each(|field| text.add(field.as_bytes()));
            text.0
        };
        assert_ne!(canonical(&["ab", "c"]), canonical(&["a", "bc"]));
        assert_ne!(canonical(&["", "a"]), canonical(&["a", ""]));
    }

    #[test]
    fn nothing_that_a_log_could_misread_gets_through() {
        let text = safe_text("a\r\n{\"x\":1}\u{1b}[31m\u{202e}\u{85}", 100);
        assert_eq!(text, "a\\u{d}\\u{a}{\"x\":1}\\u{1b}[31m\\u{202e}\\u{85}");
    }

    #[test]
    fn long_texts_are_cut_at_a_character_and_told_apart_by_their_hash() {
        let (one, two) = ("ü".repeat(1000), format!("{}x", "ü".repeat(999)));
        assert!(safe_text(&one, 128).len() <= 128);
        assert_ne!(safe_text(&one, 128), safe_text(&two, 128));
    }

    #[test]
    fn hexadecimal_there_and_back() {
        assert_eq!(from_hex(&hex(&[0, 127, 255])), Some(vec![0, 127, 255]));
        assert_eq!(from_hex("zz"), None);
        assert_eq!(from_hex("é"), None);
    }
}
