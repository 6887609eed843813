//! What a person sees of a run: its output as it comes, progress on the way, and why it ended.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use sandstorm_control::{Phase, RunEvent};
use sandstorm_types::{Limits, RunResult, Status, Stream, duration};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::complaint::{note, refusal};

/// Writes output from a thread of its own: a reader that does not read stops this thread and, through the channel, the
/// program, but not the clocks.
#[derive(Debug)]
pub(crate) struct Screen {
    /// Resolves when the writer has nothing left to write.
    written: oneshot::Receiver<()>,
    limits: Limits,
}

impl Screen {
    /// `quiet` shows nothing. `stop` is cancelled when nobody reads our output any more.
    pub(crate) fn start(
        mut events: mpsc::Receiver<RunEvent>,
        quiet: bool,
        stop: CancellationToken,
        limits: Limits,
    ) -> Self {
        let (done, written) = oneshot::channel();
        std::thread::spawn(move || {
            let mut spinner = None;
            while let Some(event) = events.blocking_recv() {
                match event {
                    _ if quiet => {}
                    RunEvent::Phase(Phase::Installing(names)) => {
                        spinner = spin(format!("installing {names}"))
                    }
                    RunEvent::Phase(Phase::Compiling(language)) => {
                        spinner = spin(format!("compiling {language}"))
                    }
                    RunEvent::Phase(Phase::Running) => clear(&mut spinner),
                    RunEvent::Output { stream, bytes } => {
                        clear(&mut spinner);
                        if write(stream, &bytes).is_err() {
                            stop.cancel();
                        }
                    }
                }
            }
            clear(&mut spinner);
            let _ = done.send(());
        });
        Self { written, limits }
    }

    /// Waits until everything is written. The senders of events must be gone.
    pub(crate) async fn flush(&mut self) {
        let _ = (&mut self.written).await;
    }

    /// Says why a run ended when its output does not.
    pub(crate) fn conclude(&self, result: &RunResult) {
        let limits = &self.limits;
        if result.status == Status::CompileError {
            let _ = std::io::stderr().write_all(&result.stderr_bytes().unwrap_or_default());
        }
        let ended = match result.status {
            Status::Ok | Status::Error => None,
            Status::CompileError => Some("the program does not compile".to_owned()),
            Status::Timeout => {
                Some(format!("ended after its time limit of {}", duration::format(limits.wall)))
            }
            Status::Cpu => Some(format!(
                "ended after its processor time limit of {}",
                duration::format(limits.cpu_time.unwrap_or_default())
            )),
            Status::Memory => Some(format!("ended at its memory limit of {}", limits.memory)),
            Status::Output => {
                Some(format!("ended after writing far more than its output limit of {}", limits.output))
            }
            Status::Killed => Some("cancelled".to_owned()),
        };
        if let Some(message) = ended {
            note(&message);
        }
        if result.truncated.stdout || result.truncated.stderr {
            note(&format!("output was cut at {}", limits.output));
        }
        for hit in &result.limits_hit {
            note(&format!("the {hit} limit was reached"));
        }
        for denied in &result.denied {
            note(&refusal(denied, |rule| format!("run with --network {rule}")));
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
