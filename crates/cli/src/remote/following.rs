//! Following an exec to its end: output as it comes, input as it is typed, Ctrl-C to the program.

use std::future::Future;
use std::pin::pin;
use std::process::ExitCode;

use bytes::Bytes;
use sandstorm_client::{Client, Error, ExecEvents, Signal};
use sandstorm_types::{Chunk, End, Event, EventBody, ExecId, PerStream, RunResult, SandboxId, Stream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::interrupts::{Asked, Interrupts};
use super::printer::Printer;
use super::raw_mode;

/// Ended by Ctrl-C before it could end by itself.
const CANCELLED: u8 = 137;

/// What Ctrl-C means to what is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnInterrupt {
    /// The first goes to the program, the second kills it, the third leaves it alone and ends us.
    Pass,
    /// Ends the following, not the program.
    Leave,
}

/// An exec and how it is followed.
#[derive(Debug)]
pub(super) struct Following<'a> {
    pub(super) client: &'a Client,
    pub(super) sandbox: SandboxId,
    pub(super) on_interrupt: OnInterrupt,
    /// What is typed, for a program that reads it.
    pub(super) input: Option<mpsc::Receiver<Bytes>>,
    /// Whether the program has a terminal, which follows the size of ours.
    pub(super) tty: bool,
    /// Whether its output is written.
    pub(super) shown: bool,
    /// Where it goes instead.
    pub(super) collected: Option<&'a mut Collected>,
}

/// Output for a result that is shown as a whole.
#[derive(Debug, Default)]
pub(super) struct Collected {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    cut: PerStream<bool>,
}

/// Bytes of each stream that a result is shown with: it has to fit into memory here, and with whoever reads it.
const MOST: usize = 256 << 20;

impl Collected {
    fn add(&mut self, stream: Stream, bytes: &[u8]) {
        let (all, cut) = match stream {
            Stream::Stdout => (&mut self.stdout, &mut self.cut.stdout),
            Stream::Stderr => (&mut self.stderr, &mut self.cut.stderr),
        };
        let kept = bytes.len().min(MOST.saturating_sub(all.len()));
        all.extend_from_slice(&bytes[..kept]);
        *cut |= kept < bytes.len();
    }

    /// Puts it into the result, of which the server keeps only the beginning, and notes in both what is missing.
    pub(super) fn complete(self, result: &mut RunResult, end: &mut End) {
        end.truncated.stdout |= self.cut.stdout;
        end.truncated.stderr |= self.cut.stderr;
        result.set_output(self.stdout, self.stderr);
        result.truncated = end.truncated;
    }
}

/// How following ended.
#[derive(Debug)]
pub(super) enum Followed {
    Ended(Box<End>),
    /// We were asked to end first.
    Left(ExitCode),
}

impl Following<'_> {
    /// Follows `events` to the end; what is no output goes to `others`.
    pub(super) async fn follow(
        mut self,
        events: &mut ExecEvents,
        mut others: impl FnMut(EventBody) -> Option<(Stream, Bytes)>,
    ) -> anyhow::Result<Followed> {
        let mut interrupts = Interrupts::catch()?;
        let printer = Printer::start();
        let (tell_id, id) = watch::channel(events.exec());
        let mut feeding = pin!(feed(self.client, self.sandbox, id.clone(), self.input.take()));
        let mut sizing = pin!(resize(self.client, self.sandbox, id, self.tty));
        let (mut fed, mut sized) = (false, false);
        let mut asked = 0;
        let mut held: Option<(Stream, Bytes)> = None;
        let end = loop {
            tokio::select! {
                room = printer.room(), if held.is_some() => match (room, held.take()) {
                    (Some(room), Some(piece)) => room.send(piece),
                    // Nobody reads us any more: the end of the printer says why.
                    _ => break None,
                },
                event = events.next(), if held.is_none() => match event {
                    None => break None,
                    Some(event) => match body(event?) {
                        EventBody::Start { exec } => { tell_id.send_replace(Some(exec)); }
                        EventBody::End(end) => break Some(end),
                        EventBody::Stdout(chunk) if self.shown => {
                            held = Some((Stream::Stdout, Bytes::copy_from_slice(chunk.data.as_bytes())));
                        }
                        EventBody::Stderr(chunk) if self.shown => {
                            held = Some((Stream::Stderr, Bytes::copy_from_slice(chunk.data.as_bytes())));
                        }
                        EventBody::Stdout(chunk) => self.keep(Stream::Stdout, &chunk),
                        EventBody::Stderr(chunk) => self.keep(Stream::Stderr, &chunk),
                        other => held = others(other),
                    },
                },
                what = interrupts.next() => {
                    asked += 1;
                    match (self.on_interrupt, what, events.exec()) {
                        (OnInterrupt::Pass, Asked::Interrupt, Some(exec)) if asked == 1 => {
                            self.client.signal(self.sandbox, exec, Signal::Interrupt).await?;
                        }
                        (OnInterrupt::Pass, Asked::Interrupt, Some(exec)) if asked == 2 => {
                            self.client.kill(self.sandbox, exec).await?;
                        }
                        (OnInterrupt::Pass, ..) => return Ok(Followed::Left(ExitCode::from(CANCELLED))),
                        (OnInterrupt::Leave, ..) => return Ok(Followed::Left(ExitCode::SUCCESS)),
                    }
                },
                outcome = &mut feeding, if !fed => { fed = true; outcome?; }
                outcome = &mut sizing, if !sized => { sized = true; outcome?; }
            }
        };
        printer.finish().await?;
        match end {
            Some(end) => Ok(Followed::Ended(end)),
            None => Err(Error::Broken { server: self.client.server(), source: None }.into()),
        }
    }
}

impl Following<'_> {
    fn keep(&mut self, stream: Stream, chunk: &Chunk) {
        if let Some(collected) = &mut self.collected {
            collected.add(stream, chunk.data.as_bytes());
        }
    }
}

fn body(event: Event) -> EventBody {
    event.body
}

/// Waits until the exec has told its id.
async fn known(id: &mut watch::Receiver<Option<ExecId>>) -> Option<ExecId> {
    id.wait_for(Option::is_some).await.ok().and_then(|id| *id)
}

/// Sends what is typed, then the end of it.
async fn feed(
    client: &Client,
    sandbox: SandboxId,
    mut id: watch::Receiver<Option<ExecId>>,
    input: Option<mpsc::Receiver<Bytes>>,
) -> anyhow::Result<()> {
    let (Some(mut input), Some(exec)) = (input, known(&mut id).await) else { return Ok(()) };
    while let Some(bytes) = input.recv().await {
        if !taken(client.write_stdin(sandbox, exec, bytes)).await? {
            return Ok(());
        }
    }
    taken(client.close_stdin(sandbox, exec)).await.map(drop)
}

/// Whether a program still takes what is sent to it. One that has ended, or closed its input, is no failure of ours.
async fn taken(sending: impl Future<Output = Result<(), Error>>) -> anyhow::Result<bool> {
    match sending.await {
        Ok(()) => Ok(true),
        Err(Error::Refused(refusal)) if matches!(refusal.status, 404 | 409 | 410) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Tells the program's terminal the size of ours whenever it changes.
async fn resize(
    client: &Client,
    sandbox: SandboxId,
    mut id: watch::Receiver<Option<ExecId>>,
    tty: bool,
) -> anyhow::Result<()> {
    if !tty {
        return Ok(());
    }
    let mut changes = signal(SignalKind::window_change())?;
    let Some(exec) = known(&mut id).await else { return Ok(()) };
    while changes.recv().await.is_some() {
        if !taken(client.signal(sandbox, exec, Signal::Resize(raw_mode::size()))).await? {
            break;
        }
    }
    Ok(())
}
