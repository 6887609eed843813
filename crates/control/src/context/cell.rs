//! One piece of code in a context, from sending it to what came of it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use sandstorm_provider::{ExecEvent, ExecSignal, Result};
use sandstorm_types::{PerStream, ProgramError, RichResult, Stream};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::context::message::{Ended, FromKernel, ToKernel};
use crate::context::{Context, Interrupter, broken};

/// An interrupt that came just before a blocking call is missed by it, so it is sent again.
const AGAIN: Duration = Duration::from_millis(500);

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

impl Context {
    /// A handle for [`Context::execute`] that ends the cell from elsewhere and keeps the variables.
    pub fn interrupter() -> Interrupter {
        Interrupter(CancellationToken::new())
    }

    /// Runs a piece of code. An error means that the context is gone; what the code does wrong is in the cell.
    ///
    /// Dropping the future leaves the cell running; the next one waits for it inside the kernel.
    pub async fn execute(
        &mut self,
        code: &str,
        interrupter: &Interrupter,
        events: Option<&mpsc::Sender<ContextEvent>>,
    ) -> Result<Cell> {
        let id = self.next_cell;
        self.next_cell += 1;
        self.say(&ToKernel::Execute { id, code }).await?;
        let mut cell = Collecting { cell: Cell::empty(), room: self.output, events };
        let mut interrupting = false;
        loop {
            let nudge = async {
                if interrupting {
                    tokio::time::sleep(AGAIN).await;
                } else {
                    interrupter.0.cancelled().await;
                }
            };
            tokio::select! {
                message = self.wire.next::<FromKernel>() => {
                    let message = message.map_err(crate::context::broken_by)?;
                    if cell.hear(message, id).await {
                        break;
                    }
                }
                event = self.events.next() => match event {
                    Some(Ok(ExecEvent::Output { stream, bytes, .. })) => cell.output(stream, bytes).await,
                    Some(Ok(ExecEvent::Started)) => {}
                    Some(Ok(ExecEvent::Exited(_))) | None => return Err(broken("the interpreter ended")),
                    Some(Err(error)) => return Err(error),
                },
                () = nudge => {
                    interrupting = true;
                    self.signal(ExecSignal::Interrupt).await?;
                }
            }
        }
        // What the cell printed was written before it said that it was done, and has arrived before that.
        while let Some(Some(Ok(ExecEvent::Output { stream, bytes, .. }))) = self.events.next().now_or_never()
        {
            cell.output(stream, bytes).await;
        }
        Ok(cell.cell)
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
            execution_count: 0,
        }
    }
}

struct Collecting<'a> {
    cell: Cell,
    /// Bytes of output that may still be kept.
    room: u64,
    events: Option<&'a mpsc::Sender<ContextEvent>>,
}

impl Collecting<'_> {
    /// Takes a message in. `true`: the cell is done.
    async fn hear(&mut self, message: FromKernel, cell: u64) -> bool {
        let ours = |id: &Value| id.as_u64() == Some(cell);
        match message {
            FromKernel::Display { id, data, metadata } if ours(&id) => {
                let shown = RichResult { data, metadata, main: false };
                self.tell(ContextEvent::Display(shown.clone())).await;
                self.cell.results.push(shown);
            }
            FromKernel::Result { id, data, metadata } if ours(&id) => {
                let shown = RichResult { data, metadata, main: true };
                self.tell(ContextEvent::Display(shown.clone())).await;
                self.cell.results.insert(0, shown);
            }
            FromKernel::Error { id, name, value, traceback } if ours(&id) => {
                self.cell.error = Some(ProgramError { name, value, traceback });
            }
            FromKernel::Done { id, status, execution_count } if ours(&id) => {
                self.cell.status = match status {
                    Ended::Ok => CellStatus::Ok,
                    Ended::Error => CellStatus::Error,
                    Ended::Interrupted => CellStatus::Interrupted,
                };
                self.cell.execution_count = execution_count;
                return true;
            }
            // Late words of an earlier cell, and beginnings, need no answer.
            _ => {}
        }
        false
    }

    async fn output(&mut self, stream: Stream, bytes: Bytes) {
        let kept = bytes.len().min(usize::try_from(self.room).unwrap_or(usize::MAX));
        self.room -= kept as u64;
        let (all, cut) = match stream {
            Stream::Stdout => (&mut self.cell.stdout, &mut self.cell.truncated.stdout),
            Stream::Stderr => (&mut self.cell.stderr, &mut self.cell.truncated.stderr),
        };
        all.extend_from_slice(&bytes[..kept]);
        *cut |= kept < bytes.len();
        self.tell(ContextEvent::Output { stream, bytes }).await;
    }

    async fn tell(&self, event: ContextEvent) {
        if let Some(events) = self.events {
            let _ = events.send(event).await;
        }
    }
}
