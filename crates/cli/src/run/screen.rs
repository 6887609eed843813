//! What a person sees of a run: its output as it comes, progress on the way, and why it ended.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use sandstorm_control::{Phase, RunEvent};
use sandstorm_types::{Limits, PerStream, RunResult, Status, Stream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::complaint::{note, refusal};
use crate::stopped;

/// Writes output from a thread of its own: a reader that does not read stops this thread and, through the channel, the
/// program, but not the clocks.
#[derive(Debug)]
pub(crate) struct Screen {
    /// Resolves when the writer has nothing left to write, with the bytes of each stream that it was given.
    written: oneshot::Receiver<PerStream<u64>>,
    shown: PerStream<u64>,
    stop: CancellationToken,
    limits: Limits,
}

impl Screen {
    /// Shows what comes. `stop` is cancelled when the reader of our output has gone.
    pub(crate) fn start(
        mut events: mpsc::Receiver<RunEvent>,
        stop: CancellationToken,
        limits: Limits,
    ) -> Self {
        let (done, written) = oneshot::channel();
        let stopping = stop.clone();
        std::thread::spawn(move || {
            let mut spinner = None;
            let mut shown: PerStream<u64> = PerStream::default();
            while let Some(event) = events.blocking_recv() {
                match event {
                    RunEvent::Phase(Phase::Installing(names)) => {
                        spinner = spin(format!("installing {names}"))
                    }
                    RunEvent::Phase(Phase::Compiling(language)) => {
                        spinner = spin(format!("compiling {language}"))
                    }
                    RunEvent::Phase(Phase::Running) => clear(&mut spinner),
                    RunEvent::Output { stream, bytes } => {
                        clear(&mut spinner);
                        match stream {
                            Stream::Stdout => shown.stdout += bytes.len() as u64,
                            Stream::Stderr => shown.stderr += bytes.len() as u64,
                        }
                        if write(stream, &bytes).is_err() {
                            stopping.cancel();
                        }
                    }
                }
            }
            clear(&mut spinner);
            let _ = done.send(shown);
        });
        Self { written, shown: PerStream::default(), stop, limits }
    }

    /// Waits until everything is written. The senders of events must be gone.
    pub(crate) async fn flush(&mut self) {
        self.shown = (&mut self.written).await.unwrap_or_default();
    }

    /// Says why a run ended when its output does not; whether some of the output is missing.
    pub(crate) fn conclude(&self, result: &RunResult) -> bool {
        let limits = &self.limits;
        if result.status == Status::CompileError {
            let _ = std::io::stderr().write_all(&result.stderr_bytes().unwrap_or_default());
        }
        let figure = |limit| limits.show(limit);
        let ended = match result.status {
            Status::CompileError => Some("the program does not compile".to_owned()),
            Status::Killed => Some("cancelled".to_owned()),
            status => stopped::ended(status, &figure, &stopped::flag_of_run),
        };
        if let Some(message) = ended {
            note(&message);
        }
        for hit in &result.limits_hit {
            note(&stopped::reached(*hit, &figure, &stopped::flag_of_run));
        }
        for denied in &result.denied {
            note(&refusal(denied, |rule| format!("run with --network {rule}")));
        }
        self.misses(result)
    }

    /// Whether the program wrote more than was shown. A caller who cancelled the run does not miss the rest.
    fn misses(&self, result: &RunResult) -> bool {
        let (wrote, shown) = (&result.metrics, self.shown);
        match result.status {
            _ if self.stop.is_cancelled() => false,
            // What the compiler said is in the result alone.
            Status::CompileError => result.truncated.stdout || result.truncated.stderr,
            _ => wrote.stdout_bytes > shown.stdout || wrote.stderr_bytes > shown.stderr,
        }
    }
}

fn write(stream: Stream, bytes: &[u8]) -> std::io::Result<()> {
    match stream {
        Stream::Stdout => {
            let mut out = std::io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        Stream::Stderr => std::io::stderr().lock().write_all(bytes),
    }
}

/// A spinner on a terminal, nothing in a pipe.
fn spin(message: String) -> Option<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}").ok()?;
    let spinner = ProgressBar::new_spinner().with_style(style).with_message(message);
    spinner.enable_steady_tick(Duration::from_millis(100));
    Some(spinner)
}

fn clear(spinner: &mut Option<ProgressBar>) {
    if let Some(spinner) = spinner.take() {
        spinner.finish_and_clear();
    }
}
