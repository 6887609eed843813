//! Bytes between an async task and a thread that reads or writes in the ordinary, blocking way.

use std::io;

use bytes::Bytes;
use tokio::sync::mpsc;

/// Pieces on their way; a slow side slows the other.
const PIECES: usize = 16;

/// What a task sends, to be read by a thread. The end of the channel is the end of the input.
pub(crate) fn to_thread() -> (mpsc::Sender<Bytes>, PipeReader) {
    let (sender, receiver) = mpsc::channel(PIECES);
    (sender, PipeReader { receiver, piece: Bytes::new() })
}

/// What a thread writes, to be received by a task.
pub(crate) fn from_thread() -> (PipeWriter, mpsc::Receiver<io::Result<Bytes>>) {
    let (sender, receiver) = mpsc::channel(PIECES);
    (PipeWriter { sender }, receiver)
}

pub(crate) struct PipeReader {
    receiver: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl io::Read for PipeReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let n = self.piece.len().min(buffer.len());
        buffer[..n].copy_from_slice(&self.piece.split_to(n));
        Ok(n)
    }
}

pub(crate) struct PipeWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
}

impl PipeWriter {
    /// Makes the receiver fail instead of taking what came so far for everything.
    pub(crate) fn fail(self, error: io::Error) {
        // A receiver that is gone has its own error to tell.
        let _ = self.sender.blocking_send(Err(error));
    }
}

impl io::Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(bytes);
        self.sender.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads our standard input in a thread of its own, since a read cannot be taken back. It ends with the process.
pub(crate) fn stdin() -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(4);
    std::thread::spawn(move || {
        use std::io::Read;
        let mut buffer = vec![0; 64 * 1024];
        let mut stdin = io::stdin().lock();
        while let Ok(n @ 1..) = stdin.read(&mut buffer) {
            if sender.blocking_send(Bytes::copy_from_slice(&buffer[..n])).is_err() {
                return;
            }
        }
    });
    receiver
}
