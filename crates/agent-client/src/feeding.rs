//! The ways to a program: its standard input and its descriptor 3.

mod side;

use bytes::Bytes;
use sandstorm_agent::protocol::{CHUNK, InputStream, Tag, Task};
use sandstorm_provider::{ChannelInput, Delivery, ExecInput, InputFrame, Stdin, Tasks};
use tokio::sync::mpsc;

use self::side::Line;
use crate::{AgentClient, AgentError, TaskHandle, TaskInput};

/// What waits to be passed on to a program, until its task is there.
#[derive(Debug)]
pub struct Feeding {
    main: Main,
    messages: Option<Line>,
}

#[derive(Debug)]
enum Main {
    /// All of it.
    Given(Bytes),
    Stream(mpsc::Receiver<InputFrame>),
    /// The program has it, or an earlier host has dealt with it.
    Nothing,
}

/// The caller's ends for a new program.
pub fn of_request(stdin: Stdin, channel: bool) -> (ExecInput, Option<ChannelInput>, Feeding) {
    let (channel, messages) = channel.then(side::channel).unzip();
    let (input, main) = match stdin {
        Stdin::Empty => (ExecInput::none(), Main::Given(Bytes::new())),
        Stdin::Given(bytes) => (ExecInput::none(), Main::Given(bytes)),
        Stdin::Stream => {
            let (input, frames) = ExecInput::channel(16);
            (input, Main::Stream(frames))
        }
    };
    (input, channel, Feeding { main, messages })
}

/// The caller's ends for a program that was found. What was given to it at its start, it has.
pub fn of_found(input: bool, channel: bool) -> (ExecInput, Option<ChannelInput>, Feeding) {
    match input {
        true => of_request(Stdin::Stream, channel),
        false => {
            let (input, channel, feeding) = of_request(Stdin::Empty, channel);
            (input, channel, Feeding { main: Main::Nothing, ..feeding })
        }
    }
}

impl Feeding {
    /// Starts a task, together with its input if that is known and fits.
    pub fn start(&self, agent: &AgentClient, task: Task, tag: Option<Tag>) -> Result<TaskHandle, AgentError> {
        match &self.main {
            Main::Given(bytes) if bytes.len() <= CHUNK => agent.start_with(task, tag, bytes),
            _ => agent.start(task, tag),
        }
    }

    /// Whether there is nothing for the program, now or later.
    pub fn is_empty(&self) -> bool {
        matches!(&self.main, Main::Given(bytes) if bytes.is_empty()) && self.messages.is_none()
    }

    /// The task has begun, so it has what came with its start.
    pub fn started(&mut self) {
        if matches!(&self.main, Main::Given(bytes) if bytes.len() <= CHUNK) {
            self.main = Main::Nothing;
        }
    }

    /// Passes everything on from here on.
    pub fn feed(self, task: &TaskInput, tasks: &Tasks) {
        let main = task.clone();
        match self.main {
            Main::Given(bytes) => tasks.start("exec input", async move {
                // The program may end without reading all of it: that is its right.
                let _ = main.write(&bytes).await;
                let _ = main.close();
            }),
            Main::Stream(frames) => tasks.start("exec input", pass_on(main, frames)),
            Main::Nothing => {}
        }
        if let Some(messages) = self.messages {
            let side = TaskInput { to: InputStream::Side, ..task.clone() };
            messages.pass_on(side, tasks);
        }
    }
}

/// Passes input on until the program takes no more. It goes on behind the end of the input, for writers who did not hear
/// that what they wrote has arrived and ask again.
async fn pass_on(input: TaskInput, mut frames: mpsc::Receiver<InputFrame>) {
    let mut line = MainLine { input, sent: None };
    while let Some(frame) = frames.recv().await {
        let passed = match frame {
            InputFrame::Data(bytes) => line.write(&bytes).await,
            InputFrame::Deliver(delivery) => line.deliver(delivery).await,
            InputFrame::Close => line.input.close(),
        };
        if passed.is_err() {
            return;
        }
    }
}

/// The way to a program's standard input.
struct MainLine {
    input: TaskInput,
    /// Bytes that were sent since the program began. `None`: what an earlier host sent only the agent knows.
    sent: Option<u64>,
}

impl MainLine {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), AgentError> {
        self.input.write(bytes).await?;
        self.sent = self.sent.map(|sent| sent.saturating_add(bytes.len() as u64));
        Ok(())
    }

    /// Writes what the program has not had, and has the writer told when the agent has it. Others need not wait for that.
    async fn deliver(&mut self, mut delivery: Delivery) -> Result<(), AgentError> {
        if !self.input.is_counted().await? {
            return self.deliver_uncounted(delivery).await;
        }
        let sent = match self.sent {
            Some(sent) => sent,
            None => *self.sent.insert(self.input.taken().await?),
        };
        // No bytes without a place ask for the count alone.
        let end = match delivery.bytes.len() as u64 {
            0 => delivery.end().unwrap_or(0),
            length => delivery.end().unwrap_or(sent.saturating_add(length)),
        };
        if let Err(gap) = delivery.cut(sent) {
            delivery.receipt.give(Err(gap));
            return Ok(());
        }
        self.write(&delivery.bytes).await?;
        if delivery.close {
            self.input.close()?;
        }
        self.input.confirm(end, delivery.receipt)
    }

    /// An agent of an earlier version does not say what it has taken.
    async fn deliver_uncounted(&mut self, delivery: Delivery) -> Result<(), AgentError> {
        if let Err(error) = delivery.check_uncounted() {
            delivery.receipt.give(Err(error));
            return Ok(());
        }
        self.write(&delivery.bytes).await?;
        if delivery.close {
            self.input.close()?;
        }
        delivery.receipt.give(Ok(None));
        Ok(())
    }
}
