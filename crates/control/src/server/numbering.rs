//! From what a provider tells of a program to the numbered events that clients see.
//!
//! The provider's events are the same on every attach, so the numbers made from them here are, too: a client that comes
//! back after a restart of the server goes on where it was.

use std::collections::VecDeque;

use sandstorm_provider::ExecEvent;
use sandstorm_types::{Chunk, ChunkData, Event, EventBody, ExecId, PerStream, Status, Stream, TextSplitter};

use super::ended::Ended;

/// Numbers the events of one exec.
#[derive(Debug)]
pub(super) struct Numbering {
    exec: ExecId,
    next: u64,
    stdout: TextSplitter,
    stderr: TextSplitter,
    /// Everything is shown as errors: what a compiler that refused has said.
    complaints: bool,
    /// Bytes of each stream that were told.
    told: PerStream<u64>,
    /// Events have the provider's own numbers, each as it is: there may be none before the first.
    as_told: bool,
    /// The listener heard all that was told before.
    goes_on: bool,
}

impl Numbering {
    pub(super) fn new(exec: ExecId, complaints: bool) -> Self {
        let (stdout, stderr) = (TextSplitter::new(), TextSplitter::new());
        let told = PerStream::default();
        Self { exec, next: 0, stdout, stderr, complaints, told, as_told: false, goes_on: false }
    }

    /// For output that is not kept: a listener that comes back for the event `from` counts on from the provider's `first`.
    pub(super) fn as_told(exec: ExecId, from: u64, first: u64) -> Self {
        let goes_on = from > 0 && from == first;
        Self { next: first, as_told: true, goes_on, ..Self::new(exec, false) }
    }

    /// Takes one event in. `true`: the program has ended and has said everything.
    pub(super) fn take(&mut self, event: ExecEvent, into: &mut VecDeque<Event>) -> bool {
        match event {
            ExecEvent::Started => self.push(EventBody::Start { exec: self.exec }, into),
            ExecEvent::Output { stream, offset, bytes } if self.as_told => {
                *of(&mut self.told, stream) = offset + bytes.len() as u64;
                let data = match String::from_utf8(bytes.into()) {
                    Ok(text) => ChunkData::Text(text),
                    Err(other) => ChunkData::Base64(other.into_bytes()),
                };
                self.push(shown(stream, Chunk { offset, data }), into);
            }
            ExecEvent::Output { stream, bytes, .. } => self.output(stream, &bytes, into),
            ExecEvent::Channel { .. } => {}
            ExecEvent::Exited(_) => {
                self.flush(into);
                return true;
            }
        }
        false
    }

    pub(super) fn output(&mut self, stream: Stream, bytes: &[u8], into: &mut VecDeque<Event>) {
        let stream = if self.complaints { Stream::Stderr } else { stream };
        *of(&mut self.told, stream) += bytes.len() as u64;
        let splitter = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        for chunk in splitter.push(bytes) {
            self.push(shown(stream, chunk), into);
        }
    }

    /// Gives what was held back of characters that never came to their end.
    pub(super) fn flush(&mut self, into: &mut VecDeque<Event>) {
        if let Some(chunk) = self.stdout.finish() {
            self.push(shown(Stream::Stdout, chunk), into);
        }
        if let Some(chunk) = self.stderr.finish() {
            self.push(shown(Stream::Stderr, chunk), into);
        }
    }

    /// The last event.
    pub(super) fn end(&mut self, ended: &Ended, into: &mut VecDeque<Event>) {
        self.flush(into);
        let mut end = ended.told();
        // What is stored may be cut shorter than what was told here, and the other way round.
        // A stream of which nothing came since the listener went on had ended for it before.
        let cut = |all: u64, told: u64| all > told && !(self.goes_on && told == 0);
        end.truncated = PerStream {
            stdout: cut(end.metrics.stdout_bytes, self.told.stdout),
            stderr: cut(end.metrics.stderr_bytes, self.told.stderr),
        };
        if end.status == Status::CompileError {
            // What counts there is the compiler's, and all of it is told as one stream.
            end.truncated = PerStream::default();
        }
        self.push(EventBody::End(Box::new(end)), into);
    }

    pub(super) fn push(&mut self, body: EventBody, into: &mut VecDeque<Event>) {
        into.push_back(Event { seq: self.next, body });
        self.next += 1;
    }
}

fn of(told: &mut PerStream<u64>, stream: Stream) -> &mut u64 {
    match stream {
        Stream::Stdout => &mut told.stdout,
        Stream::Stderr => &mut told.stderr,
    }
}

fn shown(stream: Stream, chunk: Chunk) -> EventBody {
    match stream {
        Stream::Stdout => EventBody::Stdout(chunk),
        Stream::Stderr => EventBody::Stderr(chunk),
    }
}

/// The events of an exec whose own are gone, made from what is stored of it. Their numbers are not those that a client
/// saw while it ran, so they end at `last` where that is known: who saw everything but the end hears the end.
pub(super) fn from_stored(exec: ExecId, ended: &Ended) -> VecDeque<Event> {
    let mut events = VecDeque::new();
    let mut numbering = Numbering::new(exec, false);
    let result = &ended.result;
    numbering.push(EventBody::Start { exec }, &mut events);
    numbering.output(Stream::Stdout, &result.stdout_bytes().unwrap_or_default(), &mut events);
    numbering.output(Stream::Stderr, &result.stderr_bytes().unwrap_or_default(), &mut events);
    numbering.flush(&mut events);
    for shown in &result.results {
        numbering.push(EventBody::Result(shown.clone()), &mut events);
    }
    if let Some(error) = &result.error {
        numbering.push(EventBody::Error(error.clone()), &mut events);
    }
    numbering.end(ended, &mut events);
    if let Some(event) = events.back_mut() {
        event.seq = event.seq.max(ended.last.unwrap_or_default());
        if let EventBody::End(end) = &mut event.body {
            end.truncated = result.truncated;
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sandstorm_provider::ProviderInfo;
    use sandstorm_types::{ProgramError, Status, Walls};

    use super::*;

    fn output(stream: Stream, bytes: &'static [u8]) -> ExecEvent {
        ExecEvent::Output { stream, offset: 0, bytes: Bytes::from_static(bytes) }
    }

    fn numbered(complaints: bool) -> Vec<Event> {
        let mut events = VecDeque::new();
        let mut numbering = Numbering::new(ExecId::from_bits(1), complaints);
        for event in [
            ExecEvent::Started,
            output(Stream::Stdout, b"a\xe2\x82"),
            output(Stream::Stderr, b"b"),
            output(Stream::Stdout, b"\xac"),
            output(Stream::Stdout, b"\xe2"),
        ] {
            assert!(!numbering.take(event, &mut events));
        }
        numbering.flush(&mut events);
        events.into()
    }

    #[test]
    fn numbers_do_not_depend_on_who_listens() {
        let events = numbered(false);
        assert_eq!(events, numbered(false));
        assert!(events.iter().zip(0..).all(|(event, number)| event.seq == number));
        let said: Vec<&[u8]> = events
            .iter()
            .filter_map(|event| match &event.body {
                EventBody::Stdout(chunk) => Some(chunk.data.as_bytes()),
                _ => None,
            })
            .collect();
        // A character that came in two pieces is whole, one that never came to its end goes out as bytes.
        assert_eq!(said, ["a".as_bytes(), "€".as_bytes(), b"\xe2"]);
    }

    #[test]
    fn what_is_not_kept_has_the_numbers_of_its_provider() {
        let mut events = VecDeque::new();
        let mut numbering = Numbering::as_told(ExecId::from_bits(1), 7, 7);
        let bytes = Bytes::from_static(b"a\xe2\x82");
        numbering.take(ExecEvent::Output { stream: Stream::Stdout, offset: 90, bytes }, &mut events);
        numbering.take(output(Stream::Stderr, b"b"), &mut events);
        let seen: Vec<_> = events
            .iter()
            .map(|event| match &event.body {
                EventBody::Stdout(chunk) | EventBody::Stderr(chunk) => {
                    (event.seq, chunk.offset, chunk.data.as_bytes().to_vec())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(seen, [(7, 90, b"a\xe2\x82".to_vec()), (8, 0, b"b".to_vec())]);
    }

    #[test]
    fn a_listener_that_goes_on_without_a_gap_misses_nothing() {
        let info = ProviderInfo { name: "memory".into(), kind: "memory".into(), region: None };
        let exec = ExecId::from_bits(1);
        let mut ended =
            Ended::new(super::super::ended::empty(exec, Status::Ok, &info, Walls::default()), None);
        (ended.result.metrics.stdout_bytes, ended.result.metrics.stderr_bytes) = (93, 5);
        let truncated = |from, first, output: Option<u64>| {
            let (mut numbering, mut events) = (Numbering::as_told(exec, from, first), VecDeque::new());
            if let Some(offset) = output {
                let bytes = Bytes::from_static(b"abc");
                numbering.take(ExecEvent::Output { stream: Stream::Stdout, offset, bytes }, &mut events);
            }
            numbering.end(&ended, &mut events);
            let Some(Event { body: EventBody::End(end), .. }) = events.pop_back() else { panic!("no end") };
            (end.truncated.stdout, end.truncated.stderr)
        };
        assert_eq!(truncated(7, 7, None), (false, false), "only the end is left");
        assert_eq!(truncated(7, 7, Some(90)), (false, false));
        assert_eq!(truncated(7, 7, Some(50)), (true, false), "the rest of it was lost");
        assert_eq!(truncated(7, 9, None), (true, true), "something is missing in between");
        assert_eq!(truncated(0, 0, None), (true, true), "it heard nothing at all");
    }

    #[test]
    fn a_compiler_only_complains() {
        let shown = |event: &Event| matches!(event.body, EventBody::Stdout(_));
        assert!(!numbered(true).iter().any(shown));
    }

    #[test]
    fn what_is_made_from_the_record_ends_where_the_original_did() {
        let info = ProviderInfo { name: "memory".into(), kind: "memory".into(), region: None };
        let exec = ExecId::from_bits(1);
        let mut ended =
            Ended::new(super::super::ended::empty(exec, Status::Error, &info, Walls::default()), None);
        ended.result.set_output(b"out".to_vec(), b"err".to_vec());
        ended.result.error = Some(ProgramError::default());
        ended.last = Some(90);
        let events = from_stored(exec, &ended);
        assert_eq!(events.len(), 5);
        assert_eq!(events.back().map(|event| event.seq), Some(90));
    }
}
