//! One piece of code in a context, from sending it to what came of it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use sandstorm_provider::{ExecSignal, OUTPUT_HARD_FACTOR, Result};
use sandstorm_types::{ExecId, PerStream, ProgramError, RichResult, Stream};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::context::message::{CellId, Ended, FromKernel, ToKernel};
use crate::context::transport::Heard;
use crate::context::{Context, Interrupter, broken};
use crate::spool::trim;

/// An interrupt that came just before a blocking call is missed by it, so it is sent again.
const AGAIN: Duration = Duration::from_millis(500);

/// How long a cell that wrote far too much may take to heed an interrupt.
const GIVE_UP: Duration = Duration::from_secs(5);

/// Results are not bounded by the limit on output, but by this: twice the largest message. A cell that says more is ended.
const MOST_RESULTS: u64 = 256 << 20;

/// Bytes of results that are kept of a cell, unless its limit on output is higher, and how many of them.
const RESULTS_KEPT: u64 = 64 << 20;
const RESULTS: usize = 10_000;

/// Bytes of a traceback that are kept, and of an exception's name and text.
const TRACEBACK: usize = 1 << 20;
const TEXT: usize = 1 << 20;

/// What came of a piece of code.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    pub status: CellStatus,
    /// Values that it produced, in order; the last expression's is marked as the main one.
    pub results: Vec<RichResult>,
    pub error: Option<ProgramError>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Which streams were longer than what was kept.
    pub truncated: PerStream<bool>,
    /// Bytes that were written to each stream, kept or not.
    pub written: PerStream<u64>,
    pub execution_count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellStatus {
    Ok,
    Error,
    Interrupted,
}

/// What happens while a cell runs, as it happens.
#[derive(Debug, Clone, PartialEq)]
pub enum ContextEvent {
    Output { stream: Stream, bytes: Bytes },
    Display(RichResult),
}

/// Is told each event at once, and must not wait: meanwhile nobody hears what the interpreter says.
pub type Told<'a> = &'a (dyn Fn(ContextEvent) + Send + Sync);

/// Hears a cell while it runs, and may slow it down.
pub(crate) trait Listener: Send + Sync {
    /// Takes an event in at once. `false`: output past the limit reaches no client.
    fn hear(&self, event: ContextEvent) -> bool;

    /// Waits until there is room for the next event. Until then the interpreter is not read, so the code in it waits.
    fn room(&self) -> BoxFuture<'_, ()>;
}

impl Listener for Option<Told<'_>> {
    fn hear(&self, event: ContextEvent) -> bool {
        if let Some(told) = self {
            told(event);
        }
        false
    }

    fn room(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Leaves no name behind.
const RENEW: &str = r#"
exec("""
import os, sys
for name in ("random", "numpy.random"):
    if name in sys.modules:
        sys.modules[name].seed()
if "tempfile" in sys.modules:
    sys.modules["tempfile"]._name_sequence = None
if "_ssl" in sys.modules:
    sys.modules["_ssl"].RAND_add(os.urandom(32), 32.0)
""", {})
"#;

impl Context {
    /// A handle for [`Context::execute`] that ends the cell from elsewhere and keeps the variables.
    pub fn interrupter() -> Interrupter {
        Interrupter(CancellationToken::new())
    }

    /// Runs a piece of code. What the code does wrong is in the cell. An error of kind `InvalidRequest` means that the
    /// code was not sent; any other that the context is gone.
    ///
    /// Dropping the future leaves the cell running; the next one waits for it inside the kernel.
    pub async fn execute(
        &mut self,
        code: &str,
        interrupter: &Interrupter,
        events: Option<Told<'_>>,
    ) -> Result<Cell> {
        self.execute_for(code, interrupter, &events).await
    }

    /// The same for a listener that may slow it down.
    pub(crate) async fn execute_for(
        &mut self,
        code: &str,
        interrupter: &Interrupter,
        events: &dyn Listener,
    ) -> Result<Cell> {
        if let Some(probe) = self.renewing.take() {
            self.follow(self.next_cell, Some(&probe), interrupter, &None::<Told<'_>>).await?;
        }
        let number = self.next_cell;
        self.say(&ToKernel::Execute { id: CellId::Cell(number), code, silent: false, late_start: true })
            .await?;
        self.next_cell += 1;
        let followed = self.follow(number, None, interrupter, events).await?;
        followed.ok_or_else(|| broken("it skipped a cell"))
    }

    /// Follows a cell that was under way when an earlier host died, from its first event on. `None`: the kernel never
    /// got it.
    pub async fn resume_cell(
        &mut self,
        number: u64,
        interrupter: &Interrupter,
        events: Option<Told<'_>>,
    ) -> Result<Option<Cell>> {
        self.resume_cell_for(number, interrupter, &events).await
    }

    /// The same for a listener that may slow it down.
    pub(crate) async fn resume_cell_for(
        &mut self,
        number: u64,
        interrupter: &Interrupter,
        events: &dyn Listener,
    ) -> Result<Option<Cell>> {
        // Cells run in order, so one behind it is done before it only if it is not there. The name is one that no
        // earlier host can have used.
        let probe = format!("probe {}", ExecId::random());
        self.say(&ToKernel::Execute { id: CellId::Probe(&probe), code: "", silent: true, late_start: true })
            .await?;
        self.follow(number, Some(&probe), interrupter, events).await
    }

    /// Has the generators of a copy seeded anew, as Python does in the child of a fork: it must not draw what its source
    /// draws. Cells run in order, so this is done before the next one; nobody waits for it but that.
    pub(crate) async fn renew(&mut self) -> Result<()> {
        let probe = format!("probe {}", ExecId::random());
        self.say(&ToKernel::Execute {
            id: CellId::Probe(&probe),
            code: RENEW,
            silent: true,
            late_start: true,
        })
        .await?;
        self.renewing = Some(probe);
        Ok(())
    }

    /// Hears the events of one cell until it is done. `None`: the probe behind it was done before it began.
    async fn follow(
        &mut self,
        number: u64,
        probe: Option<&str>,
        interrupter: &Interrupter,
        events: &dyn Listener,
    ) -> Result<Option<Cell>> {
        let mut cell = Collecting {
            cell: Cell::empty(),
            room: self.output,
            head: self.head,
            result_room: self.output.max(RESULTS_KEPT),
            unheard: 0,
            said: 0,
            began: false,
            events,
        };
        let mut has_room = true;
        let mut interrupting = false;
        let mut flooding: Option<Instant> = None;
        loop {
            let too_much = self.output.saturating_mul(OUTPUT_HARD_FACTOR);
            if flooding.is_none() && (cell.unheard > too_much || cell.said > MOST_RESULTS) {
                flooding = Some(Instant::now() + GIVE_UP);
                interrupting = true;
                self.interrupt().await?;
            }
            let nudge = async {
                if interrupting {
                    tokio::time::sleep(AGAIN).await;
                } else {
                    interrupter.0.cancelled().await;
                }
            };
            let give_up = async {
                match flooding {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = events.room(), if !has_room => has_room = true,
                heard = self.next(), if has_room => match heard? {
                    Heard::Message(message) => match cell.hear(message, number, probe) {
                        Meaning::Done => return Ok(Some(cell.finish())),
                        Meaning::Probe if !cell.began => return Ok(None),
                        Meaning::Probe | Meaning::More => has_room = false,
                    },
                    Heard::Output { stream, bytes } => {
                        cell.output(stream, bytes);
                        has_room = false;
                    }
                    Heard::Said(bytes) => cell.said += bytes as u64,
                },
                () = nudge => {
                    interrupting = true;
                    self.interrupt().await?;
                }
                () = give_up => {
                    self.signal(ExecSignal::Kill).await?;
                    return Err(broken("it wrote without end and could not be interrupted"));
                }
            }
        }
    }
}

impl Cell {
    fn empty() -> Self {
        Self {
            status: CellStatus::Ok,
            results: Vec::new(),
            error: None,
            stdout: Vec::new(),
            stderr: Vec::new(),
            truncated: PerStream::default(),
            written: PerStream::default(),
            execution_count: 0,
        }
    }
}

/// What a message means for the cell that is followed.
enum Meaning {
    More,
    Done,
    Probe,
}

struct Collecting<'a> {
    cell: Cell,
    /// Bytes of output that may still be kept.
    room: u64,
    /// Bytes of each stream that are kept here. The listener has the rest.
    head: usize,
    /// Bytes of results that may still be kept.
    result_room: u64,
    /// Bytes that were printed while no client heard all of them.
    unheard: u64,
    /// Bytes of messages.
    said: u64,
    /// Whether the kernel spoke of this cell.
    began: bool,
    events: &'a dyn Listener,
}

impl Collecting<'_> {
    /// Takes a message in.
    fn hear(&mut self, message: FromKernel, cell: u64, probe: Option<&str>) -> Meaning {
        let ours = |id: &Value| id.as_u64() == Some(cell);
        match message {
            FromKernel::Start { id } if ours(&id) => self.began = true,
            FromKernel::Done { id, .. } if probe.is_some() && id.as_str() == probe => return Meaning::Probe,
            FromKernel::Display { id, data, metadata } if ours(&id) => {
                self.show(RichResult { data, metadata, main: false });
            }
            FromKernel::Result { id, data, metadata } if ours(&id) => {
                self.show(RichResult { data, metadata, main: true });
            }
            FromKernel::Error { id, name, value, traceback } if ours(&id) => {
                self.cell.error = Some(shortened(ProgramError { name, value, traceback }));
            }
            FromKernel::Done { id, status, execution_count } if ours(&id) => {
                self.cell.status = match status {
                    Ended::Ok => CellStatus::Ok,
                    Ended::Error => CellStatus::Error,
                    Ended::Interrupted => CellStatus::Interrupted,
                };
                self.cell.execution_count = execution_count;
                return Meaning::Done;
            }
            // Late words of an earlier cell, and beginnings, need no answer.
            _ => {}
        }
        Meaning::More
    }

    /// Keeps a value. Of one for which there is no room only that is kept.
    fn show(&mut self, mut shown: RichResult) {
        if self.cell.results.len() >= RESULTS {
            return;
        }
        let size = size_of(&shown);
        match self.result_room.checked_sub(size) {
            Some(left) => self.result_room = left,
            None => {
                shown.data.clear();
                shown.metadata = [("truncated".to_owned(), Value::Bool(true))].into();
            }
        }
        self.events.hear(ContextEvent::Display(shown.clone()));
        // The main one is the first, whenever it comes.
        let place = if shown.main { 0 } else { self.cell.results.len() };
        self.cell.results.insert(place, shown);
    }

    fn output(&mut self, stream: Stream, bytes: Bytes) {
        let length = bytes.len();
        let within = length.min(usize::try_from(self.room).unwrap_or(usize::MAX));
        self.room -= within as u64;
        let Cell { stdout, stderr, truncated, written, .. } = &mut self.cell;
        let (all, cut, written) = match stream {
            Stream::Stdout => (stdout, &mut truncated.stdout, &mut written.stdout),
            Stream::Stderr => (stderr, &mut truncated.stderr, &mut written.stderr),
        };
        *written += length as u64;
        let kept = within.min(self.head.saturating_sub(all.len()));
        // What follows a piece that was left out would stand in a wrong place.
        if !*cut {
            all.extend_from_slice(&bytes[..kept]);
        }
        *cut |= kept < length;
        if !self.events.hear(ContextEvent::Output { stream, bytes }) {
            self.unheard += length as u64;
        }
    }

    /// What came of it. No character is cut through where only the beginning is kept.
    fn finish(mut self) -> Cell {
        for (kept, cut) in [
            (&mut self.cell.stdout, self.cell.truncated.stdout),
            (&mut self.cell.stderr, self.cell.truncated.stderr),
        ] {
            if cut {
                trim(kept);
            }
        }
        self.cell
    }
}

/// Bytes that a value takes as JSON.
fn size_of(shown: &RichResult) -> u64 {
    struct Count(u64);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    let counted = serde_json::to_writer(&mut count, &(&shown.data, &shown.metadata));
    counted.map_or(u64::MAX, |()| count.0)
}

/// An exception as much of which is kept as a person reads.
fn shortened(mut error: ProgramError) -> ProgramError {
    for text in [&mut error.name, &mut error.value] {
        text.truncate(text.floor_char_boundary(TEXT));
    }
    let mut room = TRACEBACK;
    let fits = error.traceback.iter().take_while(|line| {
        let left = room.checked_sub(line.len() + 24);
        room = left.unwrap_or(0);
        left.is_some()
    });
    let fits = fits.count();
    if fits < error.traceback.len() {
        error.traceback.truncate(fits);
        error.traceback.push("(the rest is left out)".to_owned());
    }
    error
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn collecting() -> Collecting<'static> {
        Collecting {
            cell: Cell::empty(),
            room: 10,
            head: 4,
            result_room: 100,
            unheard: 0,
            said: 0,
            began: false,
            events: &None::<Told<'static>>,
        }
    }

    fn shown(length: usize) -> FromKernel {
        let data = [("text/plain".to_owned(), json!("x".repeat(length)))].into();
        FromKernel::Display { id: json!(1), data, metadata: Default::default() }
    }

    #[test]
    fn values_are_kept_within_bounds_and_what_is_left_out_is_told() {
        let mut cell = collecting();
        for length in [50, 90, 1] {
            cell.hear(shown(length), 1, None);
        }
        let cut: Vec<bool> =
            cell.cell.results.iter().map(|one| one.metadata.contains_key("truncated")).collect();
        assert_eq!(cut, [false, true, false]);
        for _ in 0..2 * RESULTS {
            cell.hear(shown(1), 1, None);
        }
        assert_eq!(cell.cell.results.len(), RESULTS);
    }

    #[test]
    fn only_the_beginning_of_output_is_kept_and_all_of_it_is_counted() {
        let mut cell = collecting();
        cell.output(Stream::Stdout, Bytes::from_static("abc\u{20ac}".as_bytes()));
        cell.output(Stream::Stdout, Bytes::from_static(b"d"));
        cell.output(Stream::Stderr, Bytes::from_static(b"few"));
        cell.output(Stream::Stderr, Bytes::from_static(b"!"));
        assert_eq!(cell.unheard, 11);
        let cell = cell.finish();
        assert_eq!((cell.stdout.as_slice(), cell.stderr.as_slice()), (&b"abc"[..], &b"few"[..]));
        assert!(cell.truncated.stdout && cell.truncated.stderr, "ten bytes are the limit of both together");
        assert_eq!((cell.written.stdout, cell.written.stderr), (7, 4));
    }

    #[test]
    fn an_exception_without_end_is_shortened() {
        let mut cell = collecting();
        let long = "\u{20ac}".repeat(TEXT);
        let error = FromKernel::Error {
            id: json!(1),
            name: long.clone(),
            value: long.clone(),
            traceback: vec![String::new(); 2 * TRACEBACK],
        };
        cell.hear(error, 1, None);
        let error = cell.cell.error.unwrap();
        assert!(error.name.len() <= TEXT && error.value.len() <= TEXT);
        assert!(error.traceback.len() * 24 <= TRACEBACK + 24);
        assert_eq!(error.traceback.last().unwrap(), "(the rest is left out)");
    }
}
