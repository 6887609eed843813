//! Output of programs, written by a thread of its own: a reader that does not read stops that thread and, through the
//! channel and the connection, the program, but neither signals nor clocks.

use std::io::{self, Write};

use bytes::Bytes;
use sandstorm_types::Stream;
use tokio::sync::{mpsc, oneshot};

#[derive(Debug)]
pub(super) struct Printer {
    pieces: mpsc::Sender<(Stream, Bytes)>,
    written: oneshot::Receiver<io::Result<()>>,
}

impl Printer {
    pub(super) fn start() -> Self {
        let (pieces, mut received) = mpsc::channel::<(Stream, Bytes)>(64);
        let (done, written) = oneshot::channel();
        std::thread::spawn(move || {
            let mut outcome = Ok(());
            while let Some((stream, bytes)) = received.blocking_recv() {
                outcome = write(stream, &bytes);
                if outcome.is_err() {
                    break;
                }
            }
            // Gone before the outcome is told, so that nobody waits for a reader that has stopped.
            drop(received);
            let _ = done.send(outcome);
        });
        Self { pieces, written }
    }

    /// Waits for room; `None` when nobody reads what we write.
    pub(super) async fn room(&self) -> Option<mpsc::Permit<'_, (Stream, Bytes)>> {
        self.pieces.reserve().await.ok()
    }

    /// Hands a piece over, waiting for room.
    pub(super) async fn print(&self, stream: Stream, bytes: Bytes) -> bool {
        match self.room().await {
            Some(permit) => {
                permit.send((stream, bytes));
                true
            }
            None => false,
        }
    }

    /// Waits until everything is written.
    pub(super) async fn finish(self) -> io::Result<()> {
        drop(self.pieces);
        self.written.await.unwrap_or(Ok(()))
    }
}

fn write(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Stdout => {
            let mut out = io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        Stream::Stderr => io::stderr().lock().write_all(bytes),
    }
}
