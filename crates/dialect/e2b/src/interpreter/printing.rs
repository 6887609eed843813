//! What programs print, as clients of E2B read it: a line that was printed in pieces is one piece.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::output;

/// How long the beginning of a line waits for its end. A prompt has none, and is to be seen all the same.
const PATIENCE: Duration = Duration::from_millis(100);
/// Most bytes that wait.
const MOST: usize = 64 << 10;

/// The beginning of a line.
#[derive(Debug, Default)]
pub(super) struct Printing {
    stream: &'static str,
    bytes: Vec<u8>,
    since: Option<Instant>,
}

impl Printing {
    /// Takes in what was printed, and gives what can be told now.
    pub(super) fn add(&mut self, stream: &'static str, bytes: &[u8]) -> Vec<Value> {
        let mut told = Vec::new();
        if stream != self.stream {
            told.extend(self.take());
            self.stream = stream;
        }
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= MOST || self.bytes.ends_with(b"\n") {
            told.extend(self.take());
        } else if !self.bytes.is_empty() {
            // A line that goes on and on is told in between: this is the time of its first piece.
            self.since.get_or_insert_with(Instant::now);
        }
        told
    }

    /// What waits.
    pub(super) fn take(&mut self) -> Option<Value> {
        self.since = None;
        let bytes = std::mem::take(&mut self.bytes);
        (!bytes.is_empty()).then(|| output::printed(self.stream, &bytes))
    }

    /// Waits until the beginning of a line has waited for long enough.
    pub(super) async fn rested(&self) {
        match self.since {
            Some(since) => tokio::time::sleep_until(since + PATIENCE).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(told: impl IntoIterator<Item = Value>) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        told.into_iter().map(|line| (text(&line["type"]), text(&line["text"]))).collect()
    }

    fn pair(stream: &str, text: &str) -> (String, String) {
        (stream.to_owned(), text.to_owned())
    }

    #[test]
    fn pieces_of_a_line_are_one() {
        let mut printing = Printing::default();
        for piece in ["a", " ", "\u{20ac}"] {
            assert!(printing.add("stdout", piece.as_bytes()).is_empty());
        }
        assert_eq!(texts(printing.add("stdout", b"\n")), [pair("stdout", "a \u{20ac}\n")]);
        assert_eq!(texts(printing.add("stdout", b"one\ntwo\n")), [pair("stdout", "one\ntwo\n")]);
        assert!(printing.take().is_none());
    }

    #[test]
    fn the_other_stream_and_the_end_do_not_wait() {
        let mut printing = Printing::default();
        printing.add("stdout", b"out");
        assert_eq!(texts(printing.add("stderr", b"err\n")), [pair("stdout", "out"), pair("stderr", "err\n")]);
        printing.add("stdout", b"prompt> ");
        assert_eq!(texts(printing.take()), [pair("stdout", "prompt> ")]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut printing = Printing::default();
        let told = printing.add("stdout", &[b'x'; MOST]);
        assert_eq!(told[0]["text"].as_str().unwrap().len(), MOST);
        assert!(printing.bytes.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_prompt_is_seen_soon() {
        let mut printing = Printing::default();
        assert!(tokio::time::timeout(Duration::from_secs(60), printing.rested()).await.is_err());
        printing.add("stdout", b"name: ");
        printing.rested().await;
        assert_eq!(texts(printing.take()), [pair("stdout", "name: ")]);
    }
}
