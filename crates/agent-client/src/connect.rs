//! Connections to ports inside a sandbox.

use sandstorm_agent::frame::Decoder;
use sandstorm_agent::protocol::{CONNECTED, FileError, Stream, Task};
use sandstorm_provider::{Duplex, Result, Tasks};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{AgentClient, AgentError, TaskEvent, files, lost};

/// Pieces that may come before the word that a connection is made.
const MOST_EARLY: usize = 64;

/// A connection to a port inside, relayed by the agent. Resolves when it is made.
pub async fn connect(agent: &AgentClient, port: u16, tasks: &Tasks) -> Result<Duplex> {
    agent.ready().await.map_err(lost)?;
    let mut handle = agent.start(Task::Connect { port }, None).map_err(lost)?;
    // The two streams are read apart, so what a quick server says may come before the word that it is there.
    let mut early = Vec::new();
    loop {
        match handle.next().await {
            Some(TaskEvent::Started(_)) => {}
            Some(TaskEvent::Output { stream: Stream::Output, bytes }) if early.len() < MOST_EARLY => {
                early.push(bytes);
            }
            Some(TaskEvent::Closed) => {}
            Some(TaskEvent::Output { stream: Stream::Error, bytes }) if bytes.first() == Some(&CONNECTED) => {
                break;
            }
            Some(TaskEvent::Output { stream: Stream::Error, bytes }) => {
                let mut decoder = Decoder::default();
                decoder.push(&bytes);
                return Err(match decoder.take::<FileError>() {
                    Ok(Some(error)) => files::file_error(&error).with("port", port),
                    _ => lost(AgentError::Protocol("a malformed refusal")),
                });
            }
            _ => return Err(lost(AgentError::Gone)),
        }
    }
    let (theirs, ours) = tokio::io::duplex(64 * 1024);
    let (mut reading, mut writing) = tokio::io::split(ours);
    let input = handle.input.clone();
    tasks.start("connection in", async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = reading.read(&mut buffer).await {
            if input.write(&buffer[..n]).await.is_err() {
                return;
            }
        }
        let _ = input.close();
    });
    tasks.start("connection out", async move {
        for bytes in early {
            if writing.write_all(&bytes).await.is_err() {
                return;
            }
        }
        while let Some(event) = handle.next().await {
            match event {
                TaskEvent::Output { stream: Stream::Output, bytes }
                    if writing.write_all(&bytes).await.is_err() =>
                {
                    break;
                }
                TaskEvent::Exited { .. } | TaskEvent::Failed(_) => break,
                _ => {}
            }
        }
        let _ = writing.shutdown().await;
    });
    Ok(Duplex::new(theirs))
}
