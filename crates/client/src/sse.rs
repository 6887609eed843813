//! Server-sent events, as the HTML standard defines their text.

use crate::{Error, Result};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Message {
    /// The last `id:` that was seen up to here.
    pub(crate) id: Option<String>,
    /// `message` unless named.
    pub(crate) event: Option<String>,
    pub(crate) data: String,
}

/// Takes bytes as they come and gives whole events.
#[derive(Debug)]
pub(crate) struct Parser {
    /// The longest event that is taken.
    most: usize,
    /// An unfinished line.
    line: Vec<u8>,
    /// Whether the last byte was a carriage return: a line feed after it belongs to the same line end.
    after_return: bool,
    /// Whether anything was seen: only at the very beginning is a byte order mark one.
    begun: bool,
    event: Option<String>,
    data: Option<String>,
    last_id: Option<String>,
}

impl Parser {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            line: Vec::new(),
            after_return: false,
            begun: false,
            event: None,
            data: None,
            last_id: None,
        }
    }

    /// Events that `bytes` complete, appended to `messages`.
    pub(crate) fn push(&mut self, bytes: &[u8], messages: &mut impl Extend<Message>) -> Result<(), TooLong> {
        for &byte in bytes {
            match byte {
                b'\n' if self.after_return => self.after_return = false,
                b'\n' | b'\r' => {
                    self.after_return = byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    messages.extend(self.take_line(&line));
                }
                _ => {
                    self.after_return = false;
                    self.line.push(byte);
                    let held = self.line.len() + self.data.as_ref().map_or(0, String::len);
                    if held > self.most {
                        return Err(TooLong);
                    }
                }
            }
        }
        Ok(())
    }

    /// A whole line; an empty one ends an event.
    fn take_line(&mut self, line: &[u8]) -> Option<Message> {
        let line = if std::mem::replace(&mut self.begun, true) {
            line
        } else {
            line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line)
        };
        if line.is_empty() {
            let event = self.event.take();
            let data = self.data.take()?;
            return Some(Message { id: self.last_id.clone(), event, data });
        }
        let text = String::from_utf8_lossy(line);
        let (field, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            "event" => self.event = Some(value.to_owned()),
            "id" if !value.contains('\0') => self.last_id = Some(value.to_owned()),
            // Comments have no name before the colon; `retry` is ours to decide; others are for later versions.
            _ => {}
        }
        None
    }
}

/// An event or line that is too long to be one of ours.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl TooLong {
    pub(crate) fn at(&self, server: String) -> Error {
        Error::Answer { server, what: "an event is longer than any event", source: None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &[u8]) -> Vec<Message> {
        let mut messages = Vec::new();
        Parser::new(1 << 20).push(text, &mut messages).unwrap();
        messages
    }

    fn message(id: Option<&str>, event: Option<&str>, data: &str) -> Message {
        Message { id: id.map(str::to_owned), event: event.map(str::to_owned), data: data.to_owned() }
    }

    #[test]
    fn fields_make_an_event() {
        let text = b": hello\n\nid: 3\nevent: stdout\ndata: {\"a\":1}\n\ndata:two\ndata\ndata:  lines\n\n";
        assert_eq!(
            parse(text),
            [message(Some("3"), Some("stdout"), r#"{"a":1}"#), message(Some("3"), None, "two\n\n lines")]
        );
    }

    #[test]
    fn every_line_end_is_one() {
        let expected = [message(Some("1"), None, "a"), message(Some("1"), None, "b")];
        for text in [
            "id:1\ndata:a\n\ndata:b\n\n",
            "id:1\r\ndata:a\r\n\r\ndata:b\r\n\r\n",
            "id:1\rdata:a\r\rdata:b\r\r",
            "\u{feff}id:1\ndata:a\n\ndata:b\n\n",
        ] {
            assert_eq!(parse(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn what_is_unfinished_or_odd_is_no_event() {
        assert_eq!(parse(b"data: never ended\n"), []);
        assert_eq!(
            parse(b"event: x\n\ndata: 1\n\n"),
            [message(None, None, "1")],
            "a name goes with its event"
        );
        assert_eq!(parse(b"id: 1\n\nid: a\0b\ndata:\n\n"), [message(Some("1"), None, "")]);
        assert_eq!(parse(b"retry: 5\nfuture: x\n:\n\n"), []);
        assert_eq!(parse(b"data: \xff\n\n"), [message(None, None, "\u{fffd}")]);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut parser = Parser::new(64 << 20);
        let piece = vec![b'x'; 1024 * 1024];
        let mut none = Vec::new();
        let end = (0..65).find_map(|_| parser.push(&piece, &mut none).err());
        assert_eq!(end, Some(TooLong));
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(text in "(data|id|event|:|\r|\n|\r\n|: | |é|x){0,60}", cut in 1_usize..7) {
            let mut messages = Vec::new();
            let mut parser = Parser::new(1 << 20);
            for piece in text.as_bytes().chunks(cut) {
                parser.push(piece, &mut messages).unwrap();
            }
            prop_assert_eq!(messages, parse(text.as_bytes()));
        }
    }
}
