//! All files of one sandbox into another, at once or later, by way of this process, which reads none of it.

use bytes::Bytes;
use sandstorm_agent::frame::Decoder;
use sandstorm_agent::protocol::{Ending, FileError, FileTask, Stream};
use sandstorm_provider::{Error, Result};
use serde_bytes::ByteBuf;
use tokio::sync::mpsc;

use super::{Verdict, file_error, start};
use crate::{AgentClient, AgentError, TaskEvent, TaskHandle, lost};

/// The places of a sandbox that can be written. They are one file system.
const WRITABLE: [&str; 4] = ["/workspace", "/home/user", "/tmp", "/dev/shm"];

/// Those that are files to whoever saves them. The one that is left out is memory that programs share while they run.
const SAVED: [&str; 3] = ["/workspace", "/home/user", "/tmp"];

/// The files of a sandbox on their way.
#[derive(Debug)]
pub struct Files(Source);

#[derive(Debug)]
enum Source {
    Agent(Box<End>),
    /// What an agent sent before, to its end.
    Kept(mpsc::Receiver<Result<Bytes>>),
}

impl Files {
    /// Files that were saved.
    pub fn kept(pieces: mpsc::Receiver<Result<Bytes>>) -> Self {
        Self(Source::Kept(pieces))
    }

    /// The next bytes; `None` when all went well to the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        match &mut self.0 {
            Source::Agent(end) => end.next().await,
            Source::Kept(pieces) => pieces.recv().await.transpose(),
        }
    }

    /// What could not be sent so far: its name, and why.
    pub fn left(&mut self) -> Vec<Error> {
        match &mut self.0 {
            Source::Agent(end) => std::mem::take(&mut end.left),
            Source::Kept(_) => Vec::new(),
        }
    }
}

/// Begins to send all files of a sandbox, for another one that goes on from here.
pub fn export(from: &AgentClient) -> Result<Files> {
    send(from, &WRITABLE)
}

/// Begins to send those that are to be kept.
pub fn save(from: &AgentClient) -> Result<Files> {
    send(from, &SAVED)
}

fn send(from: &AgentClient, places: &[&str]) -> Result<Files> {
    let paths = places.iter().map(|path| ByteBuf::from(path.as_bytes())).collect();
    let task = start(from, FileTask::Export { paths })?;
    Ok(Files(Source::Agent(Box::new(End::new(task)))))
}

/// Makes the files in another sandbox. Gives what could not be copied: its name, and why.
pub async fn import(mut files: Files, to: &AgentClient) -> Result<Vec<Error>> {
    let mut into = End::new(start(to, FileTask::Import)?);
    let input = into.handle.input.clone();
    let copied = {
        let sending = async {
            let mut wanted = true;
            while let Some(bytes) = files.next().await? {
                // The other end may be over already; its verdict says why, and what this end names is wanted still.
                wanted = wanted && input.write(&bytes).await.is_ok();
            }
            let _ = input.close();
            Ok::<_, Error>(())
        };
        let hearing = async {
            while into.next().await?.is_some() {}
            Ok::<_, Error>(())
        };
        // Half a copy is none: whichever end fails first ends both. The receiving one is over when it has heard that all
        // was sent.
        tokio::try_join!(sending, hearing).map(drop)
    };
    copied.map(|()| files.left().into_iter().chain(into.left).collect())
}

/// One end of a copy.
#[derive(Debug)]
struct End {
    handle: TaskHandle,
    verdict: Verdict,
    names: Decoder,
    /// What this end could not copy.
    left: Vec<Error>,
}

/// What an agent may name at one end; ours name fewer.
const MOST_NAMED: usize = 100;

impl End {
    fn new(handle: TaskHandle) -> Self {
        Self { handle, verdict: Verdict::default(), names: Decoder::default(), left: Vec::new() }
    }

    /// The next bytes; `None` when all went well to the end.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let event = self.handle.next().await.ok_or_else(|| lost(AgentError::Gone))?;
            match event {
                TaskEvent::Output { stream: Stream::Output, bytes } => return Ok(Some(bytes)),
                TaskEvent::Output { stream: Stream::Error, bytes } => {
                    self.names.push(&bytes);
                    self.hear_names()?;
                }
                // The last name is why it failed.
                TaskEvent::Exited { ending, .. } if ending != Ending::Code(0) && !self.left.is_empty() => {
                    return Err(self.left.remove(self.left.len() - 1));
                }
                event => {
                    if let Some(over) = self.verdict.hear(event) {
                        return over.map(|()| None);
                    }
                }
            }
        }
    }

    fn hear_names(&mut self) -> Result<()> {
        let nonsense = |_| lost(AgentError::Protocol("a malformed answer"));
        while let Some(name) = self.names.take::<FileError>().map_err(nonsense)? {
            if self.left.len() >= MOST_NAMED {
                return Err(lost(AgentError::Protocol("an answer without end")));
            }
            self.left.push(file_error(&name));
        }
        Ok(())
    }
}
