//! From spans to stages.

use std::collections::BTreeMap;

use super::collector::SpanRecord;

/// A stage of a run, in the order in which a run goes through them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Outside every span: the loopback, the server's HTTP library, the client.
    Wire,
    Request,
    Key,
    Prepare,
    Admission,
    RecordBegin,
    Sandbox,
    Start,
    Program,
    HandOver,
    RecordEnd,
    Answer,
}

/// Those that a trace has to show.
pub(super) const STAGES: [Stage; 12] = [
    Stage::Wire,
    Stage::Request,
    Stage::Key,
    Stage::Prepare,
    Stage::Admission,
    Stage::RecordBegin,
    Stage::Sandbox,
    Stage::Start,
    Stage::Program,
    Stage::HandOver,
    Stage::RecordEnd,
    Stage::Answer,
];

impl Stage {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Wire => "loopback and HTTP library",
            Self::Request => "routing and reading the request",
            Self::Key => "key",
            Self::Prepare => "deciding how to run it",
            Self::Admission => "admission",
            Self::RecordBegin => "record of the beginning",
            Self::Sandbox => "sandbox, from the pool or made",
            Self::Start => "program handed to the sandbox",
            Self::Program => "program, until its end is known",
            Self::HandOver => "between the stages",
            Self::RecordEnd => "record of the end",
            Self::Answer => "answer",
        }
    }

    /// Whether a cell in a living context goes through it, too: its sandbox and its program are there already.
    pub(super) fn is_of_cells(self) -> bool {
        !matches!(self, Self::Prepare | Self::Admission | Self::Sandbox | Self::Start)
    }

    /// By the name of its span. What is not listed belongs to the one around it.
    fn of(span: &SpanRecord) -> Option<Self> {
        Some(match span.name.as_str() {
            "request" => Self::Request,
            "authenticate" => Self::Key,
            "begin_run" => Self::Prepare,
            "admit" => Self::Admission,
            "record_begin" => Self::RecordBegin,
            "create_sandbox" => Self::Sandbox,
            "start_program" => Self::Start,
            "program" => Self::Program,
            // Whoever waits for a cell, while none of its stages is under way.
            "exec_to_end" => Self::HandOver,
            "carry_out_run" => Self::HandOver,
            "record_end" => Self::RecordEnd,
            _ => return None,
        })
    }
}

/// Gives every nanosecond between two moments to one stage: that of the innermost span that is open then.
pub(super) fn divide(began: u64, ended: u64, spans: &[SpanRecord]) -> BTreeMap<Stage, u64> {
    let known: Vec<(Stage, usize, &SpanRecord)> =
        spans.iter().filter_map(|span| Some((Stage::of(span)?, depth(span, spans), span))).collect();
    let inner = known.iter().filter(|(stage, ..)| !matches!(stage, Stage::Request | Stage::Key));
    // The request's own time after the last of its work is the answer.
    let work_ended = inner.filter(|(.., span)| span.end <= ended).map(|(.., span)| span.end).max();
    let mut moments: Vec<u64> = known.iter().flat_map(|(.., span)| [span.start, span.end]).collect();
    moments.extend([began, ended]);
    moments.retain(|moment| (began..=ended).contains(moment));
    moments.sort_unstable();
    let mut times = BTreeMap::new();
    for pair in moments.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        let open = known.iter().filter(|(.., span)| span.start <= from && span.end >= to);
        let innermost = open.max_by_key(|(_, depth, span)| (*depth, span.start));
        let stage = match innermost {
            None => Stage::Wire,
            Some((Stage::Request | Stage::HandOver, ..)) if work_ended.is_some_and(|end| from >= end) => {
                Stage::Answer
            }
            Some((stage, ..)) => *stage,
        };
        *times.entry(stage).or_default() += to - from;
    }
    times
}

/// How many spans are around one.
fn depth(span: &SpanRecord, spans: &[SpanRecord]) -> usize {
    let (mut depth, mut inner) = (0, span);
    // Bounded, should spans ever name each other in a circle.
    while depth < 64
        && let Some(outer) = around(inner, spans)
    {
        (depth, inner) = (depth + 1, outer);
    }
    depth
}

fn around<'s>(span: &SpanRecord, spans: &'s [SpanRecord]) -> Option<&'s SpanRecord> {
    spans.iter().find(|other| other.id == span.parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(id: u8, parent: u8, name: &str, start: u64, end: u64) -> SpanRecord {
        SpanRecord { trace: [1; 16], id: [id; 8], parent: [parent; 8], name: name.to_owned(), start, end }
    }

    #[test]
    fn stages_add_up_to_the_whole() {
        let spans = [
            span(1, 0, "request", 110, 190),
            span(2, 1, "begin_run", 120, 130),
            span(4, 1, "carry_out_run", 130, 185),
            span(3, 4, "record_begin", 130, 140),
            span(5, 4, "create_sandbox", 145, 150),
            span(6, 4, "program", 150, 170),
            span(7, 6, "something new", 155, 160),
            span(8, 4, "record_end", 172, 180),
            span(9, 6, "task", 151, 400),
        ];
        let times = divide(100, 200, &spans);
        assert_eq!(times.values().sum::<u64>(), 100);
        assert_eq!(
            times[&Stage::Wire],
            20,
            "what nobody has a span for: the clean-up goes on behind the answer"
        );
        assert_eq!(times[&Stage::Request], 10);
        assert_eq!(times[&Stage::Prepare], 10);
        assert_eq!(times[&Stage::RecordBegin], 10);
        assert_eq!(times[&Stage::Program], 20, "a span that is not known belongs to the one around it");
        assert_eq!(times[&Stage::RecordEnd], 8);
        assert_eq!(times[&Stage::HandOver], 12);
        assert_eq!(times[&Stage::Answer], 5);
    }

    #[test]
    fn without_spans_all_of_it_is_outside() {
        assert_eq!(divide(5, 9, &[]), BTreeMap::from([(Stage::Wire, 4)]));
    }

    #[test]
    fn a_circle_of_spans_ends() {
        let spans = [span(1, 2, "request", 0, 9), span(2, 1, "task", 0, 9)];
        assert_eq!(divide(0, 9, &spans).values().sum::<u64>(), 9);
    }
}
