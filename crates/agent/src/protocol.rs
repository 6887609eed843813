//! What host and agent say to each other.
//!
//! Every operation is a *task*: a child of the agent with an input stream, an output stream and an error stream. For a
//! program these are its stdin, stdout and stderr. For a file operation the content travels on input or output, and the
//! error stream carries one encoded [`FileError`] when it failed.
//!
//! Flow control is by credit. Each stream starts with [`WINDOW`] bytes; whoever sends may not have more than that
//! unacknowledged, and the reader gives credit back as it consumes. A reader that stops reading therefore stops the
//! process at the other end of the pipe, and no buffer grows. A piece of output costs its length and [`PIECE_COST`], so
//! that many small ones are bounded like few large ones.
//!
//! A *lasting* task outlives the connection. What the host has not acknowledged of its output is kept here, and its end
//! until the host says [`ToAgent::Forget`]. A new connection comes through the door ([`crate::DOOR_DESCRIPTOR`]) and
//! begins with [`FromAgent::Ready`], one [`FromAgent::Held`] for each such task and all that was kept, in its order.
//! Every other task ends with the connection that started it.
//!
//! What the agent has taken of a main input is the program's, whoever is the host: a host that has to know how far that is
//! asks with [`ToAgent::AskTaken`]. Agents before version 4 do not know the question. Those before version 5 do not know the
//! last three kinds of [`FileTask`].
//!
//! A *guest* is an interpreter that the launcher put into the sandbox and that waits there for one program. The host is
//! told of it by [`FromAgent::GuestReady`] and may give it the program of a task instead of having a process started
//! ([`Program::guest`]). Guests that wait end with the connection, too.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Version of this protocol; the first thing that both sides compare.
pub const VERSION: u16 = 5;

/// The oldest version whose agents a host still takes over. It speaks to them as they understand.
pub const OLDEST: u16 = 3;

/// The first version that answers [`ToAgent::AskTaken`].
pub const COUNTS_INPUT: u16 = 4;

/// The first version that knows [`ToAgent::EndAll`].
pub const ENDS_ALL: u16 = 5;
/// The first version that knows [`FileTask::Put`], [`FileTask::Describe`] and [`FileTask::AsRoot`].
pub const KEEPS_METADATA: u16 = 5;

/// Where metadata of a file is kept: extended attributes whose names begin so. E2B's own agent keeps it in the same place,
/// so programs find it there.
pub const METADATA: &[u8] = b"user.e2b.";

/// Most bytes of the names and texts of one file's metadata together.
pub const MOST_METADATA: usize = 4096;

/// Bytes that may be in flight on one stream.
pub const WINDOW: u32 = 256 * 1024;

/// What a piece of output costs beside its bytes.
pub const PIECE_COST: u32 = 64;

/// What a piece of output of this length uses of its stream's window.
pub fn cost(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(PIECE_COST)
}

/// Longest message on a side channel.
pub const MESSAGE: usize = 4 << 20;

/// Largest piece of a stream in one message.
pub const CHUNK: usize = 64 * 1024;

/// What a [`Task::Connect`] says on its error stream when it is connected. No frame begins with it: it would be one of
/// that many bytes past the limit.
pub const CONNECTED: u8 = 0xff;

/// Names a task for its lifetime. Chosen by the host, never reused within a sandbox.
pub type TaskId = u32;

/// From the host to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// The first message, written by the launcher before anybody else has the socket.
    Init(Init),
    /// Starts a task. A lasting one has a tag by which the next host knows it.
    Start { id: TaskId, lasting: Option<Tag>, task: Task },
    /// Bytes for one of the task's input streams. Those of a side channel are kept back until [`ToAgent::Commit`].
    Input { id: TaskId, to: InputStream, bytes: ByteBuf },
    /// Nothing more will come on that input stream.
    CloseInput { id: TaskId, to: InputStream },
    /// What came on the side channel since the last one is a whole message: the program may have it. Half a message is
    /// forgotten when the connection is lost.
    Commit { id: TaskId },
    /// The host is done with pieces of a stream that cost this much.
    Credit { id: TaskId, stream: Stream, bytes: u32 },
    /// Sends a signal to the task's process group.
    Signal { id: TaskId, signal: i32 },
    /// Changes the size of the task's terminal.
    Resize { id: TaskId, size: TerminalSize },
    /// The host knows how a lasting task ended, or does not want to hear of a task any more: nothing of it has to be kept,
    /// and nothing that it still writes is passed on.
    Forget { id: TaskId },
    /// A guest that waits is not wanted any more.
    Dismiss { guest: u32 },
    /// How much of an input stream the agent has taken, with all that was sent before this. Answered once by
    /// [`FromAgent::Taken`], also of a task that is gone.
    AskTaken { id: TaskId, to: InputStream },
    /// Ends every process in the sandbox but the agent: all tasks, and whatever they left running.
    EndAll,
}

/// From the agent to the host. The host treats every one of these as hostile once user code has run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAgent {
    /// The agent is up and has read [`Init`]. That many [`FromAgent::Held`] follow.
    Ready { version: u16, held: u32 },
    /// A lasting task that an earlier host started.
    Held(Held),
    /// The task's program was executed behind these walls.
    Started { id: TaskId, walls: PayloadWalls },
    /// The task could not be started.
    Failed { id: TaskId, failure: StartFailure },
    /// Bytes of a stream, in order.
    Output { id: TaskId, stream: Stream, bytes: ByteBuf },
    /// A stream ended.
    Closed { id: TaskId, stream: Stream },
    /// The agent passed on that many bytes of an input stream.
    Credit { id: TaskId, to: InputStream, bytes: u32 },
    /// The task's process ended. Sent after the output that it left behind.
    Exited { id: TaskId, ending: Ending, usage: TaskUsage },
    /// A guest interpreter waits for a program behind these walls. If nothing but [`FromAgent::Ready`] and
    /// [`FromAgent::Held`] was said before, the ends from which its output and its errors are read come beside the message.
    GuestReady { guest: u32, walls: PayloadWalls },
    /// A guest will not run a program: it never came to wait, or it waits no more.
    GuestFailed { guest: u32, failure: StartFailure },
    /// Bytes of an input stream that were written to the program, or will be whoever is the host, since the task began. What
    /// came when the program took no more does not count.
    Taken { id: TaskId, to: InputStream, bytes: u64 },
}

/// What a host gave a lasting task to be known by.
pub type Tag = [u8; 16];

/// A lasting task, as a new host finds it. What is kept of its output follows, then its end if it has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub id: TaskId,
    pub tag: Tag,
    /// Its walls, once it was executed.
    pub walls: Option<PayloadWalls>,
    /// Place of the first kept byte of each stream, in the order of [`Stream::ALL`].
    pub first: [u64; 3],
    /// Bytes of each input stream for which the earlier host has no credit back, in the order of [`InputStream::ALL`].
    pub pending: [u32; 2],
}

/// What the launcher decided for everything that will run in this sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Init {
    pub version: u16,
    /// Who the payload is, inside.
    pub uid: u32,
    pub gid: u32,
    /// The payload's seccomp filter: its instructions as the kernel reads them from memory, eight bytes each.
    #[serde(with = "serde_bytes")]
    pub filter: Vec<u8>,
    /// `(resource, soft, hard)` as `setrlimit` takes them.
    pub rlimits: Vec<(Rlimit, u64, u64)>,
}

impl Init {
    /// Whether control groups count for the sandbox. Without them each process by itself has a limit on its memory.
    pub(crate) fn is_grouped(&self) -> bool {
        self.rlimits.iter().all(|(limit, ..)| *limit != Rlimit::Data)
    }
}

/// Limits of a process that a sandbox sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rlimit {
    AddressSpace,
    Core,
    CpuSeconds,
    Data,
    FileSize,
    LockedMemory,
    MessageQueues,
    Nice,
    OpenFiles,
    PendingSignals,
    Processes,
    RealTimePriority,
    RealTimeTime,
    Stack,
}

/// What a task does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    Program(Program),
    File(FileTask),
    /// Relays the streams to a TCP port on the sandbox's loopback.
    Connect {
        port: u16,
    },
}

/// A program to execute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The program and its arguments. A first word without `/` is looked up in `PATH` of `env`.
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Working directory, resolved inside the sandbox as the payload's user.
    pub cwd: String,
    /// As whom: the payload's user, or uid 0 of the namespace (without capabilities).
    pub root: bool,
    /// With a terminal: stdin, stdout and stderr are one, and output comes on [`Stream::Output`] alone.
    pub terminal: Option<TerminalSize>,
    /// A socket at descriptor 3 of the program, for contexts: what it writes there comes as [`Stream::Side`], what it
    /// reads there was sent to [`InputStream::Side`]. User output cannot be mistaken for it.
    pub side_channel: bool,
    /// Everything else in the sandbox is ended before the end of this one is told.
    pub last: bool,
    /// Small files that the child writes, as the program's user, before it becomes the program.
    pub files: Vec<(ByteBuf, ByteBuf)>,
    /// The guest that runs it, instead of a process that is started for it.
    pub guest: Option<Guest>,
}

/// A guest interpreter, by its number, and what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Guest {
    /// It waits and is given the program. One that does not wait is a failure at [`INTERPRETER`], and nothing was begun.
    Run(u32),
    /// It runs already, as a copy of another: its streams belong to this task from now on.
    Transplanted(u32),
    /// It has the program from the host, which has listened for a moment and taken nothing: it runs, or has ended by now.
    /// What of a program is the guest's business is not said again.
    Handed(u32),
}

/// The step at which a task fails whose guest does not wait: it can be started in another way.
pub const INTERPRETER: &str = "interpreter";

/// A file operation. Paths are absolute inside the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileTask {
    /// Content to the output stream.
    Read {
        path: ByteBuf,
        offset: u64,
        length: Option<u64>,
    },
    /// Content from the input stream; directories above are made, and the file is replaced in one step when the stream
    /// is closed.
    Write {
        path: ByteBuf,
        mode: u32,
    },
    /// One [`Entry`].
    Stat {
        path: ByteBuf,
    },
    /// An [`Entry`] for each name, depth-first, at most `limit`.
    List {
        path: ByteBuf,
        depth: u32,
        limit: u32,
    },
    Remove {
        path: ByteBuf,
        recursive: bool,
    },
    /// Renames; directories above the target are made.
    Move {
        from: ByteBuf,
        to: ByteBuf,
    },
    /// Makes a directory and those above it.
    MakeDirectory {
        path: ByteBuf,
        mode: u32,
    },
    SetMode {
        path: ByteBuf,
        mode: u32,
    },
    /// An [`Entry`] for each name below `path` that fits a pattern of `*` and `?`, at most `limit`.
    Search {
        path: ByteBuf,
        pattern: ByteBuf,
        limit: u32,
    },
    /// A [`Change`] for each change, until the task is ended.
    Watch {
        path: ByteBuf,
        recursive: bool,
    },
    /// A tar archive of a directory's content to the output stream, without what is named in `exclude`.
    Pack {
        path: ByteBuf,
        exclude: Vec<ByteBuf>,
    },
    /// Unpacks a tar archive from the input stream into a directory.
    Unpack {
        path: ByteBuf,
    },
    /// Everything below these directories to the output stream, as it is, for [`FileTask::Import`] in another sandbox. What
    /// cannot be copied is named on the error stream, one [`FileError`] each, and the task succeeds all the same.
    Export {
        paths: Vec<ByteBuf>,
    },
    /// Makes what an export sent, from the input stream. What cannot be made is named as an export does.
    Import,
    /// As [`FileTask::Write`], and these names and texts are kept with the file instead of all that was kept there.
    Put {
        path: ByteBuf,
        mode: u32,
        metadata: Vec<(ByteBuf, ByteBuf)>,
    },
    /// [`FileTask::Stat`] or [`FileTask::List`] with [`Described`] as answers.
    Describe(Box<FileTask>),
    /// Any of the others as uid 0 of the namespace (without capabilities). In places that are closed to uid 0 it is done as
    /// the payload's user.
    AsRoot(Box<FileTask>),
}

/// A name in a directory with what is kept with it, as far as that is text and within [`MOST_METADATA`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    pub entry: Entry,
    pub metadata: Vec<(String, String)>,
}

/// One name in a directory. Encoded one after the other on the output stream, each behind its length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Relative to the listed directory; empty for `Stat`.
    pub name: ByteBuf,
    pub kind: EntryKind,
    pub size: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Nanoseconds since 1970.
    pub modified: i64,
    /// Where a symbolic link points.
    pub target: Option<ByteBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    File,
    Directory,
    Symlink,
    Other,
}

/// One change below a watched directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub kind: ChangeKind,
    /// Relative to the watched directory.
    pub name: ByteBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeKind {
    /// The watch is in place: changes from now on are seen.
    Watching,
    Created,
    Modified,
    Removed,
    RenamedFrom,
    RenamedTo,
    Attributes,
    /// More happened than could be kept; list again.
    Overflow,
}

/// Why a file operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileError {
    pub errno: i32,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stream {
    Output,
    Error,
    Side,
}

impl Stream {
    pub const ALL: [Self; 3] = [Self::Output, Self::Error, Self::Side];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum InputStream {
    Main,
    Side,
}

impl InputStream {
    pub const ALL: [Self; 2] = [Self::Main, Self::Side];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

/// What the child measured of itself in its last moment before it became the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PayloadWalls {
    pub uid: u32,
    pub gid: u32,
    /// Effective, permitted and inheritable capabilities together: 0 is the only good value.
    pub capabilities: u64,
    pub no_new_privs: bool,
    /// 2 is "filter".
    pub seccomp_mode: u32,
}

/// Which step of becoming the payload failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFailure {
    pub step: String,
    pub errno: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    Code(i32),
    Signal(i32),
}

/// What the task's process used, as the kernel told its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskUsage {
    pub user_microseconds: u64,
    pub system_microseconds: u64,
    pub peak_memory_bytes: u64,
}
