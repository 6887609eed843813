//! The connection: one task that reads the socket, one that writes it.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use sandstorm_agent::frame::Decoder;
use sandstorm_agent::protocol::{FromAgent, InputStream, Stream, Task, TaskId, ToAgent, VERSION};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use crate::agent::input::Gate;
use crate::agent::link::{Link, LinkState, QUEUE, Slot};
use crate::agent::{AgentError, TaskEvent, TaskHandle, TaskInput};
use crate::tasks::Tasks;

/// Speaks with one agent.
#[derive(Debug, Clone)]
pub(crate) struct AgentClient {
    link: Arc<Link>,
    next: Arc<AtomicU32>,
}

impl AgentClient {
    /// Takes the socket over. The agent's greeting is waited for by [`AgentClient::ready`].
    pub(crate) fn new(socket: OwnedFd, tasks: &Tasks) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        let (reading, writing) = UnixStream::from_std(socket)?.into_split();
        let (outbound, messages) = mpsc::unbounded_channel();
        let link = Arc::new(Link::new(outbound));
        let reader = Arc::clone(&link);
        tasks.start("agent reader", async move {
            let error = match read(reading, &reader).await {
                Ok(()) => AgentError::Gone,
                Err(error) => {
                    tracing::warn!(%error, "an agent's connection is given up");
                    error
                }
            };
            reader.lose(error);
        });
        tasks.start("agent writer", write(writing, messages));
        Ok(Self { link, next: Arc::new(AtomicU32::new(1)) })
    }

    /// Waits until the agent is up.
    pub(crate) async fn ready(&self) -> Result<(), AgentError> {
        let mut state = self.link.state.subscribe();
        let reached =
            state.wait_for(|state| *state != LinkState::Starting).await.map_err(|_| AgentError::Gone)?;
        match &*reached {
            LinkState::Lost(error) => Err(error.clone()),
            LinkState::Starting | LinkState::Ready => Ok(()),
        }
    }

    /// Waits until the connection is over.
    pub(crate) async fn lost(&self) {
        let mut state = self.link.state.subscribe();
        let _ = state.wait_for(|state| matches!(state, LinkState::Lost(_))).await;
    }

    /// Starts a task. The first event tells whether it began.
    pub(crate) fn start(&self, task: Task) -> Result<TaskHandle, AgentError> {
        let id: TaskId = self.next.fetch_add(1, Ordering::Relaxed);
        let (events, receiver) = mpsc::channel(QUEUE);
        let gates = [InputStream::Main, InputStream::Side].map(|to| (to, Arc::new(Gate::new())));
        let slot = Slot { events, unacknowledged: HashMap::new(), gates: HashMap::from(gates) };
        self.link.insert(id, slot);
        let input = TaskInput { link: Arc::clone(&self.link), id, to: InputStream::Main };
        let handle = TaskHandle {
            id,
            input,
            link: Arc::clone(&self.link),
            events: receiver,
            owed: [(Stream::Output, 0), (Stream::Error, 0), (Stream::Side, 0)],
        };
        match &*self.link.state.borrow() {
            LinkState::Lost(error) => Err(error.clone()),
            _ => handle.input.say(ToAgent::Start { id, task }).map(|()| handle),
        }
    }
}

async fn read(mut socket: OwnedReadHalf, link: &Link) -> Result<(), AgentError> {
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match socket.read(&mut buffer).await {
            Ok(0) | Err(_) => return Ok(()),
            Ok(n) => decoder.push(&buffer[..n]),
        }
        while let Some(message) =
            decoder.take::<FromAgent>().map_err(|_| AgentError::Protocol("a frame that is no message"))?
        {
            dispatch(message, link).await?;
        }
    }
}

async fn dispatch(message: FromAgent, link: &Link) -> Result<(), AgentError> {
    let (id, event) = match message {
        FromAgent::Ready { version } if version == VERSION => {
            link.state.send_replace(LinkState::Ready);
            return Ok(());
        }
        FromAgent::Ready { .. } => return Err(AgentError::Protocol("another version")),
        FromAgent::Credit { id, to, bytes } => {
            if let Some(gate) = link.gate(id, to) {
                gate.credit(bytes);
            }
            return Ok(());
        }
        FromAgent::Started { id, walls } => (id, TaskEvent::Started(walls)),
        FromAgent::Failed { id, mut failure } => {
            // Ours are short; a hostile agent's is cut.
            failure.step = failure.step.chars().take(100).collect();
            (id, TaskEvent::Failed(failure))
        }
        FromAgent::Output { id, stream, bytes } => {
            link.arrived(id, stream, bytes.len())?;
            (id, TaskEvent::Output { stream, bytes: Bytes::from(bytes.into_vec()) })
        }
        FromAgent::Closed { id, .. } => (id, TaskEvent::Closed),
        FromAgent::Exited { id, ending, usage } => (id, TaskEvent::Exited { ending, usage }),
    };
    // A task that nobody listens to any more is not an error: its handle was dropped.
    if let Some(events) = link.events_of(id) {
        let _ = events.send(event).await;
    }
    Ok(())
}

async fn write(mut socket: OwnedWriteHalf, mut frames: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(mut buffer) = frames.recv().await {
        while buffer.len() < 64 * 1024
            && let Ok(frame) = frames.try_recv()
        {
            buffer.extend(frame);
        }
        if socket.write_all(&buffer).await.is_err() {
            return;
        }
    }
}
