//! Answers with output that is not in memory: it is read and written while the client takes it.

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use sandstorm_control::{Outcome, Whole};
use sandstorm_types::{PerStream, RunResult};

/// Where the output belongs in the text of an answer without any.
const PLACE: &[u8] = br#""stdout":"","stderr":"""#;
const STDOUT: &[u8] = br#""stdout":""#;
const BETWEEN: &[u8] = br#"","stderr":""#;

/// A long answer: its text without the output, and the output.
#[derive(Debug)]
pub(crate) struct Long {
    frame: Bytes,
    whole: Whole,
}

impl Long {
    /// Takes the output from an outcome where it is long. `write` gives the text of an answer.
    pub(crate) fn of(
        outcome: Outcome,
        write: impl FnOnce(RunResult) -> Vec<u8>,
    ) -> (RunResult, Option<Self>) {
        let Outcome { mut result, whole } = outcome;
        let Some(whole) = whole else { return (result, None) };
        let (stdout, stderr) = (std::mem::take(&mut result.stdout), std::mem::take(&mut result.stderr));
        let mut bare = result.clone();
        bare.truncated = whole.truncated;
        bare.base64 = PerStream { stdout: !whole.stdout.is_text(), stderr: !whole.stderr.is_text() };
        (result.stdout, result.stderr) = (stdout, stderr);
        (result, Some(Self { frame: write(bare).into(), whole }))
    }

    /// The body of the answer, which keeps `seat` until it was read or dropped. A file that cannot be read any more breaks it
    /// off, so that nobody takes it for whole.
    pub(crate) fn into_body(self, seat: impl Send + 'static) -> Body {
        let Self { frame, whole: Whole { stdout, stderr, .. } } = self;
        // What a program or an operator wrote has no bare quotes in JSON, so this is found nowhere else.
        let place = frame.windows(PLACE.len()).position(|window| window == PLACE);
        let place = place.expect("an answer has both streams, one after the other") + STDOUT.len();
        let (head, tail) = (frame.slice(..place), frame.slice(place + BETWEEN.len()..));
        let one = |bytes: Bytes| std::iter::once(Ok(bytes));
        let between = Bytes::from_static(BETWEEN);
        let pieces = one(head)
            .chain(stdout.json_pieces())
            .chain(one(between))
            .chain(stderr.json_pieces())
            .chain(one(tail));
        let seated = pieces.inspect(move |_| {
            let _seat = &seat;
        });
        Body::from_stream(stream::iter(seated))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use sandstorm_control::Saved;
    use sandstorm_types::{Metrics, RichResult, Route, Status, Walls};

    use super::*;
    use crate::json;
    use crate::wire::ResultBody;

    fn result() -> RunResult {
        let place = String::from_utf8(PLACE.to_vec()).unwrap();
        RunResult {
            id: "run_x".into(),
            status: Status::Ok,
            success: true,
            exit_code: Some(0),
            signal: None,
            stdout: "the beginning".into(),
            stderr: String::new(),
            truncated: PerStream { stdout: true, stderr: false },
            base64: PerStream::default(),
            results: vec![RichResult {
                data: [("a".to_owned(), place.into())].into(),
                ..RichResult::default()
            }],
            error: None,
            limits_hit: Vec::new(),
            denied: Vec::new(),
            walls: Walls::default(),
            metrics: Metrics::default(),
            route: Route::default(),
            cached_from: None,
            stopped_by: None,
        }
    }

    #[tokio::test]
    async fn it_reads_as_if_it_had_been_in_memory() {
        let stdout = "\"stdout\":\"\",\"stderr\":\"\"\n\u{20ac}".repeat(10_000);
        for stderr in [b"plain".to_vec(), b"\xff".repeat(100_000)] {
            let whole = Whole {
                stdout: Saved::Memory(stdout.clone().into_bytes()),
                stderr: Saved::Memory(stderr.clone()),
                truncated: PerStream::default(),
            };
            let outcome = Outcome { result: result(), whole: Some(whole) };
            let (short, long) = Long::of(outcome, |bare| json::written(&ResultBody::from(bare)));
            assert_eq!(short, result());
            let seat = std::sync::Arc::new(());
            let body = long.unwrap().into_body(std::sync::Arc::clone(&seat));
            assert_eq!(std::sync::Arc::strong_count(&seat), 2, "it is kept while there is something to read");
            let body = body.collect().await.unwrap().to_bytes();
            assert_eq!(std::sync::Arc::strong_count(&seat), 1);
            let mut expected = result();
            expected.set_output(stdout.clone().into_bytes(), stderr);
            expected.truncated = PerStream::default();
            assert_eq!(body, json::written(&ResultBody::from(expected)));
        }
    }
}
