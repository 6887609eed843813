//! Values that code produced: text is shown, the rest is saved or named.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bytes::Bytes;
use data_encoding::BASE64;
use sandstorm_types::{ProgramError, RichResult, Stream};
use serde_json::Value;

use super::super::units;
use crate::complaint::safe;

/// What is shown of a value, the best first.
const TEXTS: [&str; 4] = ["text/plain", "text/markdown", "application/json", "text/html"];

#[derive(Debug)]
pub(super) struct Rich {
    folder: Option<PathBuf>,
    quiet: bool,
    saved: usize,
    failure: Option<anyhow::Error>,
}

impl Rich {
    /// `folder` is made if it is missing, before the code runs: what could not be kept should not be computed.
    pub(super) fn new(folder: Option<&Path>, quiet: bool) -> anyhow::Result<Self> {
        if let Some(folder) = folder {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("could not make {}", folder.display()))?;
        }
        Ok(Self { folder: folder.map(Path::to_owned), quiet, saved: 0, failure: None })
    }

    /// Whether everything could be saved.
    pub(super) fn failure(self) -> anyhow::Result<()> {
        self.failure.map_or(Ok(()), Err)
    }

    /// What to print for a value.
    pub(super) fn result(&mut self, result: RichResult) -> Option<(Stream, Bytes)> {
        let mut text = String::new();
        if let Some(shown) = TEXTS.into_iter().find_map(|kind| result.data.get(kind)) {
            let shown = plain(shown);
            let gap = if shown.ends_with('\n') || shown.is_empty() { "" } else { "\n" };
            let _ = write!(text, "{}{gap}", safe(&shown));
        }
        for (kind, value) in result.data.iter().filter(|(kind, _)| !TEXTS.contains(&kind.as_str())) {
            match self.keep(kind, value) {
                Ok(line) => {
                    let _ = writeln!(text, "{}", safe(&line));
                }
                Err(error) => self.failure = Some(error),
            }
        }
        (!self.quiet && !text.is_empty()).then(|| (Stream::Stdout, Bytes::from(text)))
    }

    /// What to print for an exception: its traceback, which interpreters write for people.
    pub(super) fn error(&self, error: &ProgramError) -> Option<(Stream, Bytes)> {
        if self.quiet {
            return None;
        }
        let mut text = match error.traceback.as_slice() {
            [] => format!("{}: {}", error.name, error.value),
            lines => lines.join("\n"),
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        Some((Stream::Stderr, Bytes::from(safe(&text))))
    }

    /// Saves a value that is no text, if there is a place for it, and says what it is.
    fn keep(&mut self, kind: &str, value: &Value) -> anyhow::Result<String> {
        let bytes = bytes(kind, value);
        let size = units::bytes(bytes.len() as u64);
        let Some(folder) = &self.folder else { return Ok(format!("[{kind}, {size}; --save DIR keeps it]")) };
        // Earlier pictures in the folder stay.
        let path = loop {
            self.saved += 1;
            let path = folder.join(format!("result-{}.{}", self.saved, extension(kind)));
            if !path.exists() {
                break path;
            }
        };
        std::fs::write(&path, bytes).with_context(|| format!("could not write {}", path.display()))?;
        Ok(format!("[{kind}, {size}: {}]", path.display()))
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Text as it is, everything else from base64.
fn bytes(kind: &str, value: &Value) -> Vec<u8> {
    let text = plain(value);
    if kind.starts_with("text/") || kind.ends_with("+xml") || kind.ends_with("json") || !value.is_string() {
        return text.into_bytes();
    }
    let packed: String = text.split_ascii_whitespace().collect();
    BASE64.decode(packed.as_bytes()).unwrap_or_else(|_| text.into_bytes())
}

/// How a file of this type ends. The type comes from the sandbox, so nothing of an unknown one reaches the name.
fn extension(kind: &str) -> &'static str {
    match kind {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "application/pdf" => "pdf",
        "text/latex" => "tex",
        "text/csv" => "csv",
        kind if kind.ends_with("json") => "json",
        _ => "bin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(pairs: &[(&str, &str)]) -> RichResult {
        let data = pairs.iter().map(|(kind, value)| ((*kind).to_owned(), Value::from(*value))).collect();
        RichResult { data, ..RichResult::default() }
    }

    fn text(printed: Option<(Stream, Bytes)>) -> String {
        String::from_utf8(printed.unwrap().1.to_vec()).unwrap()
    }

    #[test]
    fn text_is_shown_and_pictures_are_named() {
        let mut rich = Rich::new(None, false).unwrap();
        let shown =
            rich.result(result(&[("text/plain", "<Figure>"), ("text/html", "<b>"), ("image/png", "AAAA")]));
        assert_eq!(text(shown), "<Figure>\n[image/png, 3; --save DIR keeps it]\n");
        assert_eq!(text(rich.result(result(&[("text/plain", "\u{1b}[2J")]))), "\u{fffd}[2J\n");
        assert_eq!(rich.result(result(&[])), None);
        assert_eq!(Rich::new(None, true).unwrap().result(result(&[("text/plain", "x")])), None);
    }

    #[test]
    fn pictures_are_saved_beside_earlier_ones() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("result-1.png"), "earlier").unwrap();
        let mut rich = Rich::new(Some(folder.path()), false).unwrap();
        text(rich.result(result(&[("image/png", "iVBO\nRw==")])));
        text(rich.result(result(&[("image/../../evil", "AA==")])));
        rich.failure().unwrap();
        assert_eq!(std::fs::read(folder.path().join("result-1.png")).unwrap(), b"earlier");
        assert_eq!(std::fs::read(folder.path().join("result-2.png")).unwrap(), b"\x89PNG");
        assert_eq!(std::fs::read(folder.path().join("result-3.bin")).unwrap(), b"\0");
    }

    #[test]
    fn exceptions_come_with_their_traceback() {
        let rich = Rich::new(None, false).unwrap();
        let error = ProgramError { name: "ValueError".into(), value: "no".into(), traceback: vec![] };
        assert_eq!(text(rich.error(&error)), "ValueError: no\n");
        let error = ProgramError { traceback: vec!["Traceback:".into(), "ValueError: no".into()], ..error };
        assert_eq!(text(rich.error(&error)), "Traceback:\nValueError: no\n");
    }
}
