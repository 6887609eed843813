//! What a program said so far: numbers, offsets and sizes have to fit, and what is known to the listener is left out.

use std::time::Duration;

use bytes::Bytes;
use sandstorm_provider::{AttachFrom, EndCause, ExecEnd, ExecEvent, ExecStatus, Offset, Result, Usage};
use sandstorm_types::{
    ByteSize, Chunk, ChunkData, DeniedList, End, Event, EventBody, ExecId, LimitName, PerStream, Status,
    Stream,
};

use crate::sandstorm::error::senseless;

/// The longest processor time that is believed.
const MOST_CPU_MS: f64 = 1e15;

/// One telling of a program's events, from the first one on.
#[derive(Debug)]
pub(super) struct Story {
    exec: ExecId,
    /// Most bytes of output in all.
    most: u64,
    from: AttachFrom,
    /// Number that the next event has at least.
    next: u64,
    started: bool,
    heard: PerStream<u64>,
    /// Whether nothing is kept there, so that every number has to be heard.
    passing: bool,
    /// Of a telling that begins in the middle: whether it is known where a stream is, which its first part tells.
    found: Option<PerStream<bool>>,
    /// Whether the first event tells where the telling begins.
    anywhere: bool,
}

/// What an event comes to.
#[derive(Debug, PartialEq)]
pub(super) enum Heard {
    Event(ExecEvent),
    /// The listener knows it already.
    Known,
    End(Box<End>),
}

impl Story {
    pub(super) fn new(exec: ExecId, most: ByteSize, from: AttachFrom) -> Self {
        let heard = PerStream::default();
        let most = most.as_u64();
        Self {
            exec,
            most,
            from,
            next: 0,
            started: false,
            heard,
            passing: false,
            found: None,
            anywhere: false,
        }
    }

    /// One of a program whose output is not kept, from this number on: everything that is told is new, and nothing may be
    /// missing.
    pub(super) fn passing(exec: ExecId, first: u64) -> Self {
        Self {
            next: first,
            started: first > 0,
            passing: true,
            found: (first > 0).then(PerStream::default),
            ..Self::new(exec, ByteSize::bytes(u64::MAX), AttachFrom::Seq(first))
        }
    }

    /// The same, from wherever they still have it.
    pub(super) fn anywhere(exec: ExecId) -> Self {
        Self { found: Some(PerStream::default()), anywhere: true, ..Self::passing(exec, 0) }
    }

    pub(super) fn hear(&mut self, event: Event) -> Result<Heard> {
        let Event { seq, body } = event;
        if std::mem::take(&mut self.anywhere) {
            (self.next, self.started) = (seq, seq > 0);
        }
        if seq < self.next {
            return Err(senseless("an event comes twice"));
        }
        if self.passing && seq > self.next {
            return Err(senseless("a part of what the program did is missing"));
        }
        self.next = seq.saturating_add(1);
        let known = matches!(self.from, AttachFrom::Seq(first) if seq < first);
        match body {
            EventBody::Start { exec } if exec != self.exec => {
                Err(senseless("the events are those of another program"))
            }
            EventBody::Start { .. } if self.started => Err(senseless("the program starts twice")),
            EventBody::Start { .. } => {
                self.started = true;
                Ok(if known { Heard::Known } else { Heard::Event(ExecEvent::Started) })
            }
            _ if !self.started => Err(senseless("the program does something before it starts")),
            EventBody::Stdout(chunk) => self.output(Stream::Stdout, chunk, known),
            EventBody::Stderr(chunk) => self.output(Stream::Stderr, chunk, known),
            EventBody::End(end) => Ok(Heard::End(end)),
            // Values and exceptions are for code in a context.
            EventBody::Result(_) | EventBody::Error(_) => Ok(Heard::Known),
        }
    }

    fn output(&mut self, stream: Stream, chunk: Chunk, known: bool) -> Result<Heard> {
        let heard = match stream {
            Stream::Stdout => &mut self.heard.stdout,
            Stream::Stderr => &mut self.heard.stderr,
        };
        let found = self.found.as_mut().map(|found| match stream {
            Stream::Stdout => &mut found.stdout,
            Stream::Stderr => &mut found.stderr,
        });
        if let Some(found) = found
            && !std::mem::replace(found, true)
        {
            *heard = chunk.offset;
        }
        if chunk.offset != *heard {
            return Err(senseless("a part of the output is missing"));
        }
        let mut bytes = match chunk.data {
            ChunkData::Text(text) => Bytes::from(text.into_bytes()),
            ChunkData::Base64(bytes) => Bytes::from(bytes),
        };
        *heard = heard
            .checked_add(bytes.len() as u64)
            .ok_or_else(|| senseless("the output is longer than can be"))?;
        let (end, mut offset) = (*heard, chunk.offset);
        if self.heard.stdout.saturating_add(self.heard.stderr) > self.most {
            return Err(senseless("there is more output than the program may have"));
        }
        if let AttachFrom::Offset(Offset { stdout, stderr }) = self.from {
            let has = if stream == Stream::Stdout { stdout } else { stderr };
            let skip = has.min(end).saturating_sub(offset);
            // It fits: no more is skipped than there is.
            bytes = bytes.split_off(usize::try_from(skip).unwrap_or(usize::MAX).min(bytes.len()));
            offset += skip;
        }
        Ok(match known || bytes.is_empty() {
            true => Heard::Known,
            false => Heard::Event(ExecEvent::Output { stream, offset, bytes }),
        })
    }

    /// The end as ours.
    pub(super) fn end(&self, end: &End, cause: EndCause) -> Result<ExecEnd> {
        let status = match (end.exit_code, end.signal) {
            (_, Some(signal)) => ExecStatus::Signal(signal),
            (Some(code), None) => ExecStatus::Code(code),
            // It was done away with before it was a program.
            (None, None) if matches!(cause, EndCause::Caller | EndCause::Sandbox) => ExecStatus::Signal(9),
            (None, None) => return Err(senseless("the program ended with neither a code nor a signal")),
        };
        let metrics = &end.metrics;
        let written = PerStream { stdout: metrics.stdout_bytes, stderr: metrics.stderr_bytes };
        let written = PerStream {
            stdout: written.stdout.max(self.heard.stdout),
            stderr: written.stderr.max(self.heard.stderr),
        };
        let cpu_ms = if metrics.cpu_ms.is_finite() { metrics.cpu_ms.clamp(0.0, MOST_CPU_MS) } else { 0.0 };
        Ok(ExecEnd {
            status,
            cause,
            limits_hit: end.limits_hit.iter().copied().collect(),
            // Of no more than is told here, whatever the other server says.
            denied: end.denied.iter().cloned().collect::<DeniedList>().into_vec(),
            written,
            truncated: PerStream {
                stdout: written.stdout > self.heard.stdout,
                stderr: written.stderr > self.heard.stderr,
            },
            usage: Usage {
                cpu: Duration::from_secs_f64(cpu_ms / 1000.0),
                peak_memory: ByteSize::bytes(metrics.peak_memory_bytes),
                ..Usage::default()
            },
        })
    }
}

/// Who ended a program that nobody killed.
pub(super) fn cause(status: Status) -> Result<EndCause> {
    match status {
        Status::Ok | Status::Error => Ok(EndCause::Program),
        Status::Timeout => Ok(EndCause::Limit(LimitName::Wall)),
        Status::Cpu => Ok(EndCause::Limit(LimitName::CpuTime)),
        Status::Memory => Ok(EndCause::Limit(LimitName::Memory)),
        Status::Output => Ok(EndCause::Limit(LimitName::Output)),
        Status::Killed => Ok(EndCause::Caller),
        Status::CompileError => Ok(EndCause::Compiler),
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_types::{Denied, DeniedProtocol, Metrics, Timestamp};

    use super::*;

    const EXEC: ExecId = ExecId::from_bits(1);

    fn told(seq: u64, body: EventBody) -> Event {
        Event { seq, body }
    }

    fn said(seq: u64, offset: u64, text: &str) -> Event {
        told(seq, EventBody::Stdout(Chunk { offset, data: ChunkData::Text(text.to_owned()) }))
    }

    fn story(most: u64, from: AttachFrom) -> Story {
        let mut story = Story::new(EXEC, ByteSize::bytes(most), from);
        story.hear(told(0, EventBody::Start { exec: EXEC })).unwrap();
        story
    }

    fn output(offset: u64, text: &'static str) -> Heard {
        let bytes = Bytes::from_static(text.as_bytes());
        Heard::Event(ExecEvent::Output { stream: Stream::Stdout, offset, bytes })
    }

    #[test]
    fn who_has_heard_a_part_hears_the_rest() {
        let mut all = story(100, AttachFrom::START);
        assert_eq!(all.hear(said(1, 0, "one")).unwrap(), output(0, "one"));
        let mut rest = story(100, AttachFrom::Offset(Offset { stdout: 4, stderr: 0 }));
        assert_eq!(rest.hear(said(1, 0, "one")).unwrap(), Heard::Known);
        assert_eq!(rest.hear(said(2, 3, "two")).unwrap(), output(4, "wo"));
        let mut later = story(100, AttachFrom::Seq(2));
        assert_eq!(later.hear(said(1, 0, "one")).unwrap(), Heard::Known);
        assert_eq!(later.hear(said(2, 3, "two")).unwrap(), output(3, "two"));
        let far = AttachFrom::Offset(Offset { stdout: u64::MAX, stderr: 0 });
        assert_eq!(story(100, far).hear(said(1, 0, "one")).unwrap(), Heard::Known);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut early = Story::new(EXEC, ByteSize::mib(1), AttachFrom::START);
        assert!(early.hear(said(0, 0, "x")).is_err(), "before the start");
        let other = told(0, EventBody::Start { exec: ExecId::from_bits(2) });
        assert!(Story::new(EXEC, ByteSize::mib(1), AttachFrom::START).hear(other).is_err());
        let twice = told(1, EventBody::Start { exec: EXEC });
        assert!(story(9, AttachFrom::START).hear(twice).is_err());
        assert!(story(9, AttachFrom::START).hear(said(0, 0, "x")).is_err(), "a number that was there");
        assert!(story(9, AttachFrom::START).hear(said(1, 1, "x")).is_err(), "a gap");
        assert!(story(2, AttachFrom::START).hear(said(1, 0, "xyz")).is_err(), "more than allowed");
    }

    #[test]
    fn what_passes_has_no_limit_and_no_gaps() {
        let mut all = Story::passing(EXEC, 0);
        all.hear(told(0, EventBody::Start { exec: EXEC })).unwrap();
        assert_eq!(all.hear(said(1, 0, "one")).unwrap(), output(0, "one"));
        assert!(all.hear(said(3, 3, "two")).is_err(), "a number is missing");
        let mut rest = Story::passing(EXEC, 7);
        assert_eq!(rest.hear(said(7, 900, "one")).unwrap(), output(900, "one"));
        assert_eq!(rest.hear(said(8, 903, "two")).unwrap(), output(903, "two"));
        assert!(rest.hear(said(9, 907, "x")).is_err(), "a gap");
        assert!(Story::passing(EXEC, 7).hear(said(8, 0, "x")).is_err(), "what was said before is lost");
        assert!(Story::passing(EXEC, 7).hear(said(6, 0, "x")).is_err(), "what was heard before");
        let mut rest = Story::anywhere(EXEC);
        assert_eq!(rest.hear(said(7, 900, "one")).unwrap(), output(900, "one"));
        assert!(rest.hear(said(9, 903, "x")).is_err(), "a number is missing");
        let start = told(0, EventBody::Start { exec: EXEC });
        assert_eq!(Story::anywhere(EXEC).hear(start).unwrap(), Heard::Event(ExecEvent::Started));
        assert!(Story::passing(EXEC, 7).hear(said(7, u64::MAX, "x")).is_err(), "more than can be");
    }

    #[test]
    fn an_end_says_what_was_cut() {
        let mut story = story(3, AttachFrom::START);
        story.hear(said(1, 0, "abc")).unwrap();
        let metrics = Metrics { stdout_bytes: 5, cpu_ms: f64::INFINITY, ..Metrics::default() };
        let refused = Denied {
            host: Some("a.test".to_owned()),
            port: Some(443),
            protocol: DeniedProtocol::Tcp,
            reason: "not_allowed".to_owned(),
            message: "why".to_owned(),
            count: 2,
            at: Timestamp::from_millis(1),
        };
        let end = End {
            status: Status::Ok,
            success: true,
            exit_code: Some(0),
            signal: None,
            limits_hit: vec![LimitName::Disk],
            denied: vec![refused.clone()],
            metrics,
            truncated: PerStream::default(),
            problem: None,
        };
        let told = story.end(&end, EndCause::Program).unwrap();
        assert_eq!((told.written.stdout, told.truncated.stdout, told.truncated.stderr), (5, true, false));
        assert_eq!((told.status, told.usage.cpu), (ExecStatus::Code(0), Duration::ZERO));
        assert_eq!(told.denied, [refused]);
        let nothing = End { exit_code: None, ..end };
        assert!(story.end(&nothing, EndCause::Program).is_err());
        assert_eq!(story.end(&nothing, EndCause::Sandbox).unwrap().status, ExecStatus::Signal(9));
        assert_eq!(cause(Status::CompileError).unwrap(), EndCause::Compiler);
    }
}
