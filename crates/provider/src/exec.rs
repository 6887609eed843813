//! Running a program in a sandbox: what is asked for, what comes back, how it is steered.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use sandstorm_types::{
    ByteSize, Denied, EnvMap, ErrorKind, ExecId, GuestPath, LanguageName, LimitName, LimitSet, PerStream,
    Stream, User,
};
use tokio::sync::{mpsc, oneshot};

use crate::{Error, Result, Usage};

/// A program that writes more than this many times its output limit is ended; below that the surplus is
/// counted and dropped.
pub const OUTPUT_HARD_FACTOR: u64 = 8;

/// A program to run.
#[derive(Debug, Clone)]
pub struct ExecRequest {
    /// The id to give, chosen by the caller so that it can be stored before the program starts.
    pub id: ExecId,
    pub command: Command,
    /// Over the variables of the sandbox.
    pub env: EnvMap,
    /// The workspace unless given.
    pub cwd: Option<GuestPath>,
    /// The sandbox's user unless given.
    pub user: Option<User>,
    /// A terminal of this size; all output then comes as standard output.
    pub tty: Option<TtySize>,
    pub stdin: Stdin,
    /// Whether it runs on when nobody listens. Otherwise dropping the stream of events ends it.
    pub background: bool,
    /// Whether it outlives the host's connection to the sandbox: after a crash of the host, whoever takes the sandbox
    /// over finds it as it was. Other programs end with the connection.
    pub lasting: bool,
    /// Whether the program gets a byte channel of its own as descriptor 3, apart from its streams.
    pub channel: bool,
    /// Time by the clock; the sandbox's limit unless given.
    pub timeout: Option<Duration>,
    /// Files to lay out before it starts, as its user; folders above them are made.
    pub files: Vec<(GuestPath, Bytes)>,
    /// Bytes of output that are kept; the sandbox's limit unless given.
    pub output: Option<ByteSize>,
    /// Whether everything else in the sandbox ends with it: for the one program of a run.
    pub last: bool,
    /// Whether output is kept for those who attach later. Otherwise it has no limit and is gone once the listener has
    /// it (if `lasting`: once it is forgotten by [`ExecSignal::Forget`]): for programs that live long and write much.
    pub replay: bool,
    /// Whether whoever starts it hears all of its output, however long; others hear what is kept. For a program in the
    /// foreground, which waits for its listener and ends with it. A provider that cannot do it tells that listener no more
    /// than others.
    pub streamed: bool,
    /// Whether its events are taken without a pause until their end. A provider may then follow the program in the task of
    /// whoever takes them, so that nobody has to be woken; clocks and limits count only while that one does take them.
    pub attended: bool,
    /// The same program for a place without this machine's trees, where `command`, `env` and `files` mean nothing. A
    /// provider that takes programs by language and code goes by it alone.
    pub portable: Option<Box<Portable>>,
}

/// A program without a path of this machine in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Portable {
    pub language: LanguageName,
    pub code: String,
    pub args: Vec<String>,
    /// The caller's own variables.
    pub env: EnvMap,
    /// The caller's own files, beside the code.
    pub files: Vec<(GuestPath, Bytes)>,
    /// How it is started where nobody knows languages: with programs by their bare names. Absent for what has to be
    /// compiled first.
    pub program: Option<PortableProgram>,
}

/// A program by a bare name, with everything that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortableProgram {
    pub argv: Vec<String>,
    pub env: EnvMap,
    /// The caller's files and the code.
    pub files: Vec<(GuestPath, Bytes)>,
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A program and its arguments, started without a shell.
    Program(Vec<String>),
    /// A line for the sandbox's `/bin/sh`.
    Shell(String),
}

/// Where a program's standard input comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Stdin {
    /// There is none: the program reads the end at once.
    #[default]
    Empty,
    /// All of it is known.
    Given(Bytes),
    /// It is written to [`Exec::input`] as it comes.
    Stream,
}

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TtySize {
    pub rows: u16,
    pub cols: u16,
}

/// A program that was started or attached to.
pub struct Exec {
    pub id: ExecId,
    /// Number of the first event in `events`. Numbers count from 0, which is `Started`, and never change: event `n` is
    /// the same event with the same bytes on every attach by [`AttachFrom::Seq`]. One by [`AttachFrom::Offset`] leaves
    /// out what is known, so that there the events after the first have no numbers.
    pub first: u64,
    /// `Started`, output in the order in which it came, then one `Exited` and the end. An error instead means
    /// that the provider lost sight of the program.
    pub events: BoxStream<'static, Result<ExecEvent>>,
    pub input: ExecInput,
    /// The way to descriptor 3, when it was asked for. What comes from there is among the events.
    pub channel: Option<ChannelInput>,
}

/// What happened to a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
    Started,
    Output {
        stream: Stream,
        /// Place of the first byte in its stream.
        offset: u64,
        bytes: Bytes,
    },
    /// Bytes that the program wrote to descriptor 3. They come behind all output that was written before them.
    Channel {
        /// Place of the first byte among those of the channel.
        offset: u64,
        bytes: Bytes,
    },
    Exited(ExecEnd),
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecEnd {
    pub status: ExecStatus,
    pub cause: EndCause,
    /// Limits that were touched without ending it.
    pub limits_hit: LimitSet,
    /// What programs of its sandbox wanted to reach on the network while it ran and did not, where the provider can tell.
    pub denied: Vec<Denied>,
    /// Bytes that the program wrote, kept or not.
    pub written: PerStream<u64>,
    /// Which streams were longer than what was kept.
    pub truncated: PerStream<bool>,
    pub usage: Usage,
}

/// What the kernel said at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecStatus {
    Code(i32),
    Signal(i32),
}

/// Who ended a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndCause {
    /// The program, or another one in its sandbox.
    Program,
    Limit(LimitName),
    /// A caller: by a signal that the program did not survive, by cancelling or by going away.
    Caller,
    /// The end of its sandbox.
    Sandbox,
    /// Its compiler, which did not take it: it never began, and what it wrote is what the compiler said.
    Compiler,
}

/// A message to a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecSignal {
    Kill,
    Interrupt,
    Terminate,
    /// A signal by its Linux number.
    Number(i32),
    Resize(TtySize),
    CloseStdin,
    /// Not to the program but to its log: events before this number are not needed any more.
    Forget {
        before: u64,
    },
}

impl ExecSignal {
    /// The Linux signal, if it is one.
    pub fn number(self) -> Option<i32> {
        match self {
            Self::Interrupt => Some(2),
            Self::Kill => Some(9),
            Self::Terminate => Some(15),
            Self::Number(number) => Some(number),
            Self::Resize(_) | Self::CloseStdin | Self::Forget { .. } => None,
        }
    }
}

/// How many bytes of each stream a listener has already.
pub type Offset = PerStream<u64>;

/// Where a listener begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachFrom {
    /// Behind the bytes that it has already.
    Offset(Offset),
    /// At the event of this number, or at the first that is still kept.
    Seq(u64),
    /// At its end, of which alone it hears. Such a listener sets no pace, and a program that waits for one waits on.
    End,
}

impl AttachFrom {
    /// Everything that is kept.
    pub const START: Self = Self::Seq(0);
}

impl ExecRequest {
    /// Whether its listener hears what is past the limit, too.
    pub fn is_streamed(&self) -> bool {
        self.streamed && self.replay && !self.background && !self.lasting
    }

    /// A program with arguments and nothing else asked for.
    pub fn program(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::new(Command::Program(argv.into_iter().map(Into::into).collect()))
    }

    /// A shell line with nothing else asked for.
    pub fn shell(line: impl Into<String>) -> Self {
        Self::new(Command::Shell(line.into()))
    }

    pub fn new(command: Command) -> Self {
        Self {
            id: ExecId::random(),
            command,
            env: EnvMap::new(),
            cwd: None,
            user: None,
            tty: None,
            stdin: Stdin::Empty,
            background: false,
            lasting: false,
            channel: false,
            timeout: None,
            files: Vec::new(),
            output: None,
            last: false,
            streamed: false,
            replay: true,
            attended: false,
            portable: None,
        }
    }

    /// The argument vector, with the shell spelled out.
    pub fn argv(&self) -> Vec<String> {
        match &self.command {
            Command::Program(argv) => argv.clone(),
            Command::Shell(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()],
        }
    }
}

/// The way to a program's standard input. Writing waits while the program does not read. Dropping it
/// closes nothing: another listener may hold it too, so the end of input is said with [`ExecInput::close`].
#[derive(Debug, Clone)]
pub struct ExecInput(Option<mpsc::Sender<InputFrame>>);

/// What travels to a program's standard input.
#[derive(Debug)]
pub enum InputFrame {
    Data(Bytes),
    /// Bytes whose writer waits until the sandbox has them. Never to descriptor 3.
    Deliver(Delivery),
    Close,
}

/// Input whose writer hears when the sandbox has it.
#[derive(Debug)]
pub struct Delivery {
    pub bytes: Bytes,
    /// Place of the first byte in the program's input. Behind what came before unless given.
    pub at: Option<u64>,
    /// Whether the input ends with these bytes.
    pub close: bool,
    pub receipt: Receipt,
}

/// Tells a writer what became of its input. Dropped untold: the program takes no more of it.
#[derive(Debug)]
pub struct Receipt {
    to: oneshot::Sender<Result<Option<u64>>>,
    counts: bool,
}

impl Delivery {
    /// Where the program's input ends with these bytes, if they have a place.
    pub fn end(&self) -> Option<u64> {
        self.at.map(|at| at.saturating_add(self.bytes.len() as u64))
    }

    /// Leaves out what is among the `had` bytes that were passed on before. Bytes behind a gap are refused.
    pub fn cut(&mut self, had: u64) -> Result<()> {
        let Some(at) = self.at else { return Ok(()) };
        if at > had {
            let what = "the input has a gap before this offset: go on where it ends";
            return Err(Error::new(ErrorKind::Conflict, what).with("offset", at).with("ends_at", had));
        }
        let known = usize::try_from(had - at).unwrap_or(usize::MAX).min(self.bytes.len());
        drop(self.bytes.split_to(known));
        Ok(())
    }

    /// Refuses a place, for those who do not count a program's input.
    pub fn check_uncounted(&self) -> Result<()> {
        match self.at {
            None => Ok(()),
            Some(_) => {
                let what = "the input of this program is not counted, so that it has no offsets";
                Err(Error::new(ErrorKind::InvalidRequest, what))
            }
        }
    }
}

impl Receipt {
    /// The sandbox has the bytes for good, or why it has not. `Some`: how many bytes the program's input has had in all.
    pub fn give(self, told: Result<Option<u64>>) {
        let counts = self.counts;
        // A writer that left does not want to know.
        let _ = self.to.send(told.map(|count| count.filter(|_| counts)));
    }

    /// The same for a writer whose bytes travel in another form: what is counted below is not what it wrote.
    pub fn without_count(self) -> Self {
        Self { counts: false, ..self }
    }
}

impl ExecInput {
    /// The input of a program that takes none.
    pub fn none() -> Self {
        Self(None)
    }

    /// An input and the end that a backend reads from.
    pub fn channel(capacity: usize) -> (Self, mpsc::Receiver<InputFrame>) {
        let (sender, receiver) = mpsc::channel(capacity);
        (Self(Some(sender)), receiver)
    }

    pub async fn write(&self, bytes: impl Into<Bytes>) -> Result<()> {
        self.send(InputFrame::Data(bytes.into())).await
    }

    /// Writes bytes and waits until the sandbox has them for good: the program gets them, also if this process ends now.
    /// Gives how many bytes its input has had in all, where the provider counts them.
    ///
    /// With a place `at`, what the program's input has had already is left out and a gap is a [`ErrorKind::Conflict`], so
    /// that whoever does not know what became of bytes can send them again. After any other error, or if the future is
    /// dropped, the sandbox has a prefix of them.
    pub async fn deliver(&self, bytes: impl Into<Bytes>, at: Option<u64>) -> Result<Option<u64>> {
        self.send_delivery(bytes.into(), at, false).await
    }

    /// Ends the input, and waits until the sandbox knows. A program that has ended has no input left, which is as good.
    pub async fn close(&self) -> Result<()> {
        match self.send_delivery(Bytes::new(), None, true).await {
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
            other => other.map(drop),
        }
    }

    /// Hands over the first of the frames. Dropping the future leaves it where it is.
    pub async fn hand_over(&self, frames: &mut VecDeque<InputFrame>) -> Result<()> {
        let room = self.sender()?.reserve().await.map_err(|_| takes_no_more())?;
        if let Some(frame) = frames.pop_front() {
            room.send(frame);
        }
        Ok(())
    }

    async fn send_delivery(&self, bytes: Bytes, at: Option<u64>, close: bool) -> Result<Option<u64>> {
        let (to, told) = oneshot::channel();
        let receipt = Receipt { to, counts: true };
        self.send(InputFrame::Deliver(Delivery { bytes, at, close, receipt })).await?;
        told.await.map_err(|_| takes_no_more())?
    }

    async fn send(&self, frame: InputFrame) -> Result<()> {
        self.sender()?.send(frame).await.map_err(|_| takes_no_more())
    }

    fn sender(&self) -> Result<&mpsc::Sender<InputFrame>> {
        let none = || Error::new(ErrorKind::InvalidRequest, "the program was started without input");
        self.0.as_ref().ok_or_else(none)
    }
}

fn takes_no_more() -> Error {
    Error::new(ErrorKind::Conflict, "the program takes no more input")
}

/// Longest message to a program's descriptor 3.
pub const CHANNEL_MESSAGE: usize = 4 << 20;

/// The way to a program's descriptor 3. Clones write to the same place.
#[derive(Debug, Clone)]
pub struct ChannelInput(Arc<dyn Messages>);

/// Where a backend takes messages to a program: each whole, in the order in which they were sent. Both fail only when
/// the program takes no more, and dropping a future leaves a message sent or not, never half of it.
#[async_trait]
pub trait Messages: fmt::Debug + Send + Sync {
    async fn send(&self, message: Bytes) -> Result<(), NoMore>;
    async fn close(&self) -> Result<(), NoMore>;
}

/// The program takes no more messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMore;

#[async_trait]
impl Messages for mpsc::Sender<InputFrame> {
    async fn send(&self, message: Bytes) -> Result<(), NoMore> {
        self.send(InputFrame::Data(message)).await.map_err(|_| NoMore)
    }

    async fn close(&self) -> Result<(), NoMore> {
        self.send(InputFrame::Close).await.map_err(|_| NoMore)
    }
}

impl ChannelInput {
    pub fn new(messages: impl Messages + 'static) -> Self {
        Self(Arc::new(messages))
    }

    /// An input and the end that a backend reads from. Each `Data` there is one message.
    pub fn channel(capacity: usize) -> (Self, mpsc::Receiver<InputFrame>) {
        let (sender, receiver) = mpsc::channel(capacity);
        (Self::new(sender), receiver)
    }

    /// Sends one message of at most [`CHANNEL_MESSAGE`] bytes: all of it reaches the program or nothing, even if this
    /// process ends midway. Waits while the program does not read.
    pub async fn send(&self, message: impl Into<Bytes>) -> Result<()> {
        let message = message.into();
        if message.len() > CHANNEL_MESSAGE {
            return Err(Error::new(ErrorKind::InvalidRequest, "the message to the program is too long")
                .with("limit", CHANNEL_MESSAGE));
        }
        let gone = || Error::new(ErrorKind::Conflict, "the program takes no more messages");
        self.0.send(message).await.map_err(|NoMore| gone())
    }

    /// Lets the program see the end of the channel. A program that has ended has none left, which is as good.
    pub async fn close(&self) {
        let _ = self.0.close().await;
    }
}

impl fmt::Debug for Exec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exec").field("id", &self.id).field("input", &self.input).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn input_says_why_it_cannot_be_written() {
        assert_eq!(ExecInput::none().write("x").await.unwrap_err().kind(), ErrorKind::InvalidRequest);
        let (input, reader) = ExecInput::channel(1);
        input.write("x").await.unwrap();
        drop(reader);
        assert_eq!(input.write("y").await.unwrap_err().kind(), ErrorKind::Conflict);
        input.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_delivery_waits_for_its_receipt_and_a_place_cuts_what_is_known() {
        let (input, mut reader) = ExecInput::channel(1);
        let backend = async {
            let mut had = 4;
            let mut passed = Vec::new();
            while let Some(InputFrame::Deliver(mut delivery)) = reader.recv().await {
                match delivery.cut(had) {
                    Ok(()) => {
                        had += delivery.bytes.len() as u64;
                        passed.push(delivery.bytes.clone());
                        delivery.receipt.give(Ok(Some(had)));
                    }
                    Err(gap) => delivery.receipt.give(Err(gap)),
                }
                if delivery.close {
                    break;
                }
            }
            passed
        };
        let writer = async {
            assert_eq!(input.deliver("efg", None).await.unwrap(), Some(7));
            assert_eq!(input.deliver("efghi", Some(4)).await.unwrap(), Some(9));
            assert_eq!(input.deliver("abcd", Some(0)).await.unwrap(), Some(9));
            let gap = input.deliver("k", Some(10)).await.unwrap_err();
            assert_eq!(gap.kind(), ErrorKind::Conflict);
            input.close().await.unwrap();
        };
        let (passed, ()) = futures_util::future::join(backend, writer).await;
        assert_eq!(passed, ["efg", "hi", "", ""]);
        drop(reader);
        assert_eq!(input.deliver("late", None).await.unwrap_err().kind(), ErrorKind::Conflict);
    }

    #[tokio::test]
    async fn messages_have_a_longest() {
        let (channel, mut messages) = ChannelInput::channel(2);
        let longest = Bytes::from(vec![0; CHANNEL_MESSAGE]);
        channel.send(longest.clone()).await.unwrap();
        assert!(matches!(messages.recv().await, Some(InputFrame::Data(came)) if came == longest));
        let longer = channel.send(vec![0; CHANNEL_MESSAGE + 1]).await.unwrap_err();
        assert_eq!(longer.kind(), ErrorKind::InvalidRequest);
        drop(messages);
        assert_eq!(channel.send("x").await.unwrap_err().kind(), ErrorKind::Conflict);
    }

    #[test]
    fn a_shell_line_is_a_program_too() {
        assert_eq!(ExecRequest::shell("exit 3").argv(), ["/bin/sh", "-c", "exit 3"]);
    }
}
