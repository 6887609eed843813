//! The connection: one task that reads the socket, one that writes it.

use sandstorm_provider::Tasks;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use bytes::Bytes;
use sandstorm_agent::frame::Decoder;
use sandstorm_agent::protocol::{FromAgent, Held, InputStream, Tag, Task, TaskId, ToAgent, VERSION};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::agent::link::{Link, LinkState, MOST_HELD, Slot};
use crate::agent::{AgentError, TaskEvent, TaskHandle, TaskInput};

/// Speaks with one agent.
#[derive(Debug, Clone)]
pub(crate) struct AgentClient {
    link: Arc<Link>,
    next: Arc<AtomicU32>,
    stop: CancellationToken,
}

impl AgentClient {
    /// Takes the socket over. The agent's greeting is waited for by [`AgentClient::ready`].
    pub(crate) fn new(socket: OwnedFd, tasks: &Tasks) -> io::Result<Self> {
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        let (reading, writing) = UnixStream::from_std(socket)?.into_split();
        let (outbound, messages) = mpsc::unbounded_channel();
        let unsent = Arc::new(AtomicUsize::new(0));
        let link = Arc::new(Link::new(outbound, Arc::clone(&unsent)));
        let reader = Arc::clone(&link);
        let stop = CancellationToken::new();
        let (stop_reading, stop_writing) = (stop.clone(), stop.clone());
        tasks.start("agent reader", async move {
            let error = match stop_reading.run_until_cancelled(read(reading, &reader)).await {
                Some(Ok(())) | None => AgentError::Gone,
                Some(Err(error)) => {
                    tracing::warn!(%error, "an agent's connection is given up");
                    error
                }
            };
            reader.lose(error);
        });
        tasks.start("agent writer", async move {
            stop_writing.run_until_cancelled(write(writing, messages, &unsent)).await;
        });
        Ok(Self { link, next: Arc::new(AtomicU32::new(1)), stop })
    }

    /// Waits until the agent is up and has told what it held.
    pub(crate) async fn ready(&self) -> Result<(), AgentError> {
        let mut state = self.link.state.subscribe();
        let reached = state
            .wait_for(|state| matches!(state, LinkState::Ready | LinkState::Lost(_)))
            .await
            .map_err(|_| AgentError::Gone)?;
        match &*reached {
            LinkState::Lost(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Closes the connection. An agent that waits for no other host ends with it.
    pub(crate) fn close(&self) {
        self.stop.cancel();
    }

    /// Waits until the connection is over.
    pub(crate) async fn lost(&self) {
        let mut state = self.link.state.subscribe();
        let _ = state.wait_for(|state| matches!(state, LinkState::Lost(_))).await;
    }

    /// The tasks that an earlier host left, once the agent is ready.
    pub(crate) fn take_held(&self) -> Vec<(Held, TaskHandle)> {
        let held = self.link.take_held();
        let highest = held.iter().map(|(held, _)| held.id).max().unwrap_or(0);
        self.next.fetch_max(highest.saturating_add(1), Ordering::Relaxed);
        held
    }

    /// Starts a task. The first event tells whether it began. One with a tag outlives this connection.
    pub(crate) fn start(&self, task: Task, lasting: Option<Tag>) -> Result<TaskHandle, AgentError> {
        let id: TaskId = self.next.fetch_add(1, Ordering::Relaxed);
        let handle = open(&self.link, id, [0; 2], lasting.is_some()).ok_or(AgentError::Gone)?;
        match &*self.link.state.borrow() {
            LinkState::Lost(error) => Err(error.clone()),
            _ => handle.input.say(ToAgent::Start { id, lasting, task }).map(|()| handle),
        }
    }
}

/// A place for a task's events. `None`: there is one of that number.
fn open(link: &Arc<Link>, id: TaskId, pending: [u32; 2], lasting: bool) -> Option<TaskHandle> {
    let (events, receiver) = mpsc::unbounded_channel();
    let input = TaskInput { link: Arc::clone(link), id, to: InputStream::Main };
    link.insert(id, Slot::new(events, pending)).then(|| TaskHandle::new(input, receiver, lasting))
}

async fn read(mut socket: OwnedReadHalf, link: &Arc<Link>) -> Result<(), AgentError> {
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
            dispatch(message, link)?;
        }
    }
}

fn dispatch(message: FromAgent, link: &Arc<Link>) -> Result<(), AgentError> {
    let (id, event) = match message {
        FromAgent::Ready { version, held } => return greeted(link, version, held),
        FromAgent::Held(held) => return told(link, held),
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
            (id, TaskEvent::Output { stream, bytes: Bytes::from(bytes.into_vec()) })
        }
        FromAgent::Closed { id, .. } => (id, TaskEvent::Closed),
        FromAgent::Exited { id, ending, usage } => (id, TaskEvent::Exited { ending, usage }),
    };
    link.deliver(id, event)
}

fn greeted(link: &Link, version: u16, held: u32) -> Result<(), AgentError> {
    if version != VERSION {
        return Err(AgentError::Protocol("another version"));
    }
    if *link.state.borrow() != LinkState::Starting || held > MOST_HELD {
        return Err(AgentError::Protocol("a greeting that is none"));
    }
    link.state.send_replace(if held == 0 { LinkState::Ready } else { LinkState::Telling(held) });
    Ok(())
}

fn told(link: &Arc<Link>, held: Held) -> Result<(), AgentError> {
    let LinkState::Telling(left) = *link.state.borrow() else {
        return Err(AgentError::Protocol("a task that nobody asked for"));
    };
    let handle =
        open(link, held.id, held.pending, true).ok_or(AgentError::Protocol("a task that is told twice"))?;
    link.hold(held, handle);
    link.state.send_replace(if left <= 1 { LinkState::Ready } else { LinkState::Telling(left - 1) });
    Ok(())
}

async fn write(
    mut socket: OwnedWriteHalf,
    mut frames: mpsc::UnboundedReceiver<Vec<u8>>,
    unsent: &AtomicUsize,
) {
    while let Some(mut buffer) = frames.recv().await {
        while buffer.len() < 64 * 1024
            && let Ok(frame) = frames.try_recv()
        {
            buffer.extend(frame);
        }
        if socket.write_all(&buffer).await.is_err() {
            return;
        }
        unsent.fetch_sub(buffer.len(), Ordering::Relaxed);
    }
}
