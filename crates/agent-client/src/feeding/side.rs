//! The way to a program's descriptor 3.
//!
//! Whoever has a message sends it itself, as long as nothing waits before it and there is room: most often both are so,
//! and nobody has to be woken. What has to wait, waits in line for a task.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use sandstorm_provider::{ChannelInput, Delivery, InputFrame, Messages, NoMore, Tasks};
use tokio::sync::mpsc;

use crate::TaskInput;

#[derive(Debug)]
struct Side {
    line: mpsc::Sender<InputFrame>,
    state: Arc<State>,
}

/// Shared with the task that sends what is in line.
#[derive(Debug, Default)]
struct State(Mutex<Now>);

#[derive(Debug, Default)]
struct Now {
    /// `None`: its program has not begun.
    to: Option<TaskInput>,
    /// What is in line or being sent from there.
    waiting: usize,
}

/// The end of the line, until its program is there.
#[derive(Debug)]
pub(super) struct Line {
    frames: mpsc::Receiver<InputFrame>,
    state: Arc<State>,
}

pub(super) fn channel() -> (ChannelInput, Line) {
    let (line, frames) = mpsc::channel(1);
    let state = Arc::<State>::default();
    (ChannelInput::new(Side { line, state: Arc::clone(&state) }), Line { frames, state })
}

impl State {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One place in line; ends the count when it is dropped.
#[derive(Debug)]
struct InLine<'a>(&'a State);

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.now().waiting -= 1;
    }
}

impl Side {
    async fn wait_in_line(&self, frame: InputFrame) -> Result<(), NoMore> {
        self.state.now().waiting += 1;
        // Whoever leaves before it is in line has sent nothing.
        let place = InLine(&self.state);
        let sent = self.line.send(frame).await;
        if sent.is_ok() {
            // The task ends the count.
            std::mem::forget(place);
        }
        sent.map_err(|_| NoMore)
    }
}

#[async_trait]
impl Messages for Side {
    async fn send(&self, message: Bytes) -> Result<(), NoMore> {
        {
            let now = self.state.now();
            if now.waiting == 0 && now.to.as_ref().is_some_and(|to| to.try_send(&message)) {
                return Ok(());
            }
        }
        self.wait_in_line(InputFrame::Data(message)).await
    }

    async fn close(&self) -> Result<(), NoMore> {
        self.wait_in_line(InputFrame::Close).await
    }
}

impl Line {
    /// Its program is there: what is in line goes to it, and what comes goes at once.
    pub(super) fn pass_on(self, to: TaskInput, tasks: &Tasks) {
        let Self { mut frames, state } = self;
        state.now().to = Some(to.clone());
        tasks.start("side channel", async move {
            while let Some(frame) = frames.recv().await {
                let _place = InLine(&state);
                let passed = match frame {
                    InputFrame::Data(message) | InputFrame::Deliver(Delivery { bytes: message, .. }) => {
                        to.send(&message).await
                    }
                    InputFrame::Close => {
                        let _ = to.close();
                        return;
                    }
                };
                if passed.is_err() {
                    return;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use sandstorm_agent::frame::Decoder;
    use sandstorm_agent::protocol::{CHUNK, InputStream, Task, ToAgent};

    use super::*;
    use crate::AgentClient;

    /// Messages that reach an agent, one after the other.
    fn whole_messages(mut socket: UnixStream, count: usize) -> Vec<Vec<u8>> {
        let (mut decoder, mut staged, mut whole) = (Decoder::default(), Vec::new(), Vec::new());
        let mut buffer = vec![0; 1 << 16];
        while whole.len() < count {
            let n = socket.read(&mut buffer).unwrap();
            decoder.push(&buffer[..n]);
            while let Some(message) = decoder.take::<ToAgent>().unwrap() {
                match message {
                    ToAgent::Input { bytes, .. } => staged.extend_from_slice(&bytes),
                    ToAgent::Commit { .. } => whole.push(std::mem::take(&mut staged)),
                    ToAgent::Start { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        whole
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_message_overtakes_another_however_it_goes() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let tasks = Tasks::default();
        let agent = AgentClient::new(theirs.into(), &tasks).unwrap();
        let handle = agent.start(Task::Connect { port: 1 }, None).unwrap();
        let (channel, line) = channel();
        // Short and long ones in turns; the first waits for its program.
        let sizes = [3, CHUNK + 1, 1, CHUNK, 7, CHUNK / 2, 2];
        let sent: Vec<Vec<u8>> = (0u8..).zip(sizes).map(|(number, size)| vec![number; size]).collect();
        channel.send(sent[0].clone()).await.unwrap();
        line.pass_on(TaskInput { to: InputStream::Side, ..handle.input.clone() }, &tasks);
        let reader = tokio::task::spawn_blocking(move || whole_messages(ours, sizes.len()));
        for message in &sent[1..] {
            channel.send(message.clone()).await.unwrap();
        }
        let heard = reader.await.unwrap();
        assert!(heard == sent, "{:?}", heard.iter().map(Vec::len).collect::<Vec<_>>());
    }
}
