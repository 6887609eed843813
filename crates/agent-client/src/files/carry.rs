//! All files of one sandbox into another, from agent to agent by way of this process, which reads none of it.

use sandstorm_agent::frame::Decoder;
use sandstorm_agent::protocol::{Ending, FileError, FileTask, Stream};
use sandstorm_provider::{Error, Result};
use serde_bytes::ByteBuf;

use super::{Verdict, file_error, start};
use crate::{AgentClient, AgentError, TaskEvent, TaskHandle, lost};

/// The places of a sandbox that can be written. They are one file system.
const WRITABLE: [&str; 4] = ["/workspace", "/home/user", "/tmp", "/dev/shm"];

/// The files of a sandbox on their way out.
#[derive(Debug)]
pub struct Files(TaskHandle);

/// Begins to send all files of a sandbox.
pub fn export(from: &AgentClient) -> Result<Files> {
    let paths = WRITABLE.iter().map(|path| ByteBuf::from(path.as_bytes())).collect();
    start(from, FileTask::Export { paths }).map(Files)
}

/// Makes the files in another sandbox. Gives what could not be copied: its name, and why.
pub async fn import(files: Files, to: &AgentClient) -> Result<Vec<Error>> {
    let mut out = End::new(files.0);
    let mut into = End::new(start(to, FileTask::Import)?);
    let input = into.handle.input.clone();
    let copied = {
        let sending = async {
            let mut wanted = true;
            while let Some(bytes) = out.next().await? {
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
    copied.map(|()| out.left.into_iter().chain(into.left).collect())
}

/// One end of a copy.
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
    async fn next(&mut self) -> Result<Option<bytes::Bytes>> {
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
