//! File operations, done by the agent inside the sandbox and carried over its streams.

pub mod carry;

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use sandstorm_agent::frame::{self, Decoder};
use sandstorm_agent::protocol::{
    Change, ChangeKind, Described, Ending, Entry, EntryKind, FileError, FileTask, KEEPS_METADATA,
    MOST_METADATA, Stream, Task, ToAgent,
};
use sandstorm_provider::{
    ByteStream, Error, FileChange, FileEvent, FileInfo, FileKind, FileOp, FileReply, Metadata, ReadRange,
    Result, WatchOptions, WriteOptions,
};
use sandstorm_types::{ByteSize, ErrorKind, GuestPath, User};
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;

use crate::{AgentClient, AgentError, TaskEvent, TaskHandle, lost};

/// What one entry takes at most: two paths, what is kept with it, and room for its envelope.
const ENTRY: usize = 2 * 4096 + 4 * MOST_METADATA + 64;

/// The sandbox's user, inside.
const PAYLOAD_ID: u32 = 1000;

/// What an operation may say of why it failed: one message, and ours are a line.
const MOST_WORDS: usize = 64 << 10;

pub async fn read(agent: &AgentClient, user: User, path: &GuestPath, range: ReadRange) -> Result<ByteStream> {
    let task = FileTask::Read { path: bytes(path), offset: range.offset, length: range.length };
    content(start(agent, as_user(agent, user, task).await?)?, range.length).await
}

pub async fn write(
    agent: &AgentClient,
    user: User,
    path: &GuestPath,
    options: WriteOptions,
    body: ByteStream,
) -> Result<()> {
    let (path, mode) = (bytes(path), 0o644);
    let task = match options.metadata.is_empty() {
        true => FileTask::Write { path, mode },
        false => {
            require(agent).await?;
            let pair = |(name, text): (String, String)| (name.into_bytes().into(), text.into_bytes().into());
            FileTask::Put { path, mode, metadata: options.metadata.into_iter().map(pair).collect() }
        }
    };
    upload(agent, as_user(agent, user, task).await?, body).await
}

pub async fn operate(agent: &AgentClient, user: User, op: FileOp) -> Result<FileReply> {
    let task = match op {
        FileOp::Stat { path } => {
            let entries = described(agent, user, FileTask::Stat { path: bytes(&path) }, 1).await?;
            let entry = entries.first().ok_or_else(|| lost(AgentError::Protocol("no answer")))?;
            return Ok(FileReply::Info(info(&path, entry)));
        }
        FileOp::List { path, depth, limit } => {
            // One more than asked for tells whether there is more.
            let most = u32::try_from(limit.saturating_add(1)).unwrap_or(u32::MAX);
            let task = FileTask::List { path: bytes(&path), depth, limit: most };
            let mut entries = listed(&path, described(agent, user, task, most).await?);
            let more = entries.len() > limit;
            entries.truncate(limit);
            return Ok(FileReply::List { entries, more });
        }
        FileOp::Search { root, pattern, limit } => {
            let most = u32::try_from(limit.saturating_add(1)).unwrap_or(u32::MAX);
            let task = FileTask::Search { path: bytes(&root), pattern: ByteBuf::from(pattern), limit: most };
            let task = as_user(agent, user, task).await?;
            let found = listed(&root, plain(answers(start(agent, task)?, most).await?));
            let more = found.len() > limit;
            let paths = found.into_iter().take(limit).map(|found| found.path).collect();
            return Ok(FileReply::Found { paths, more });
        }
        FileOp::Pack { path } => {
            let task = FileTask::Pack { path: bytes(&path), exclude: Vec::new() };
            let task = as_user(agent, user, task).await?;
            return Ok(FileReply::Archive(content(start(agent, task)?, None).await?));
        }
        FileOp::Unpack { path, archive } => {
            let task = as_user(agent, user, FileTask::Unpack { path: bytes(&path) }).await?;
            upload(agent, task, archive).await?;
            return Ok(FileReply::Done);
        }
        FileOp::SetMode { mode, .. } if mode > 0o777 => {
            return Err(
                Error::new(ErrorKind::InvalidRequest, "only permission bits can be set").with("mode", mode)
            );
        }
        FileOp::SetMode { path, mode } => FileTask::SetMode { path: bytes(&path), mode },
        FileOp::MakeDir { path } => FileTask::MakeDirectory { path: bytes(&path), mode: 0o755 },
        FileOp::Move { from, to } => FileTask::Move { from: bytes(&from), to: bytes(&to) },
        FileOp::Remove { path, recursive } => FileTask::Remove { path: bytes(&path), recursive },
    };
    answers::<Entry>(start(agent, as_user(agent, user, task).await?)?, 0).await?;
    Ok(FileReply::Done)
}

/// The task as this user of the sandbox.
async fn as_user(agent: &AgentClient, user: User, task: FileTask) -> Result<FileTask> {
    match user {
        User::User => Ok(task),
        User::Root => {
            require(agent).await?;
            Ok(FileTask::AsRoot(Box::new(task)))
        }
    }
}

/// Fails where the agent is older than users and metadata of file operations.
async fn require(agent: &AgentClient) -> Result<()> {
    match agent.version().await.map_err(lost)? >= KEEPS_METADATA {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Conflict,
            "the sandbox was made by an earlier server: its agent keeps no metadata and does not work on files as root; make a new sandbox",
        )),
    }
}

/// Entries, with what is kept with them where the agent tells it.
async fn described(agent: &AgentClient, user: User, task: FileTask, most: u32) -> Result<Vec<Described>> {
    if agent.version().await.map_err(lost)? < KEEPS_METADATA {
        let task = as_user(agent, user, task).await?;
        return Ok(plain(answers(start(agent, task)?, most).await?));
    }
    let task = as_user(agent, user, FileTask::Describe(Box::new(task))).await?;
    answers(start(agent, task)?, most).await
}

fn plain(entries: Vec<Entry>) -> Vec<Described> {
    entries.into_iter().map(|entry| Described { entry, metadata: Vec::new() }).collect()
}

/// Changes below a path. Resolves when the watch is in place.
pub async fn watch(
    agent: &AgentClient,
    user: User,
    path: &GuestPath,
    options: WatchOptions,
) -> Result<BoxStream<'static, Result<FileEvent>>> {
    let task = FileTask::Watch { path: bytes(path), recursive: options.recursive };
    let handle = start(agent, as_user(agent, user, task).await?)?;
    let mut watching = Watching {
        handle,
        decoder: Decoder::default(),
        errors: Words::default(),
        top: path.clone(),
        from: None,
    };
    match watching.next().await {
        Some(Ok(None)) => {}
        Some(Ok(Some(_))) | None => return Err(lost(AgentError::Protocol("a watch that did not begin"))),
        Some(Err(error)) => return Err(error),
    }
    let events = stream::unfold(watching, |mut watching| async move {
        loop {
            match watching.next().await? {
                Ok(Some(event)) => return Some((Ok(event), watching)),
                Ok(None) => {}
                Err(error) => return Some((Err(error), watching)),
            }
        }
    });
    Ok(events.boxed())
}

fn start(agent: &AgentClient, task: FileTask) -> Result<TaskHandle> {
    agent.start(Task::File(task), None).map_err(lost)
}

fn bytes(path: &GuestPath) -> ByteBuf {
    ByteBuf::from(path.as_str().as_bytes())
}

/// What is said on an error stream: a little, whoever says it.
#[derive(Debug, Default)]
struct Words {
    decoder: Decoder,
    size: usize,
}

impl Words {
    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.size = self.size.saturating_add(bytes.len());
        if self.size > MOST_WORDS {
            return Err(lost(AgentError::Protocol("errors without end")));
        }
        self.decoder.push(bytes);
        Ok(())
    }

    fn take(&mut self) -> Option<Error> {
        self.decoder.take::<FileError>().ok().flatten().map(|error| file_error(&error))
    }
}

/// What a file task said on its error stream, and how it ended.
#[derive(Debug, Default)]
struct Verdict {
    errors: Words,
}

impl Verdict {
    /// `Some` when the task is over.
    fn hear(&mut self, event: TaskEvent) -> Option<Result<()>> {
        match event {
            TaskEvent::Output { stream: Stream::Error, bytes } => self.errors.push(&bytes).err().map(Err),
            TaskEvent::Failed(failure) => {
                let cause = std::io::Error::from_raw_os_error(failure.errno);
                Some(Err(Error::new(ErrorKind::Provider, "the file operation could not be started")
                    .with_source(cause)))
            }
            TaskEvent::Exited { ending: Ending::Code(0), .. } => Some(Ok(())),
            TaskEvent::Exited { .. } => {
                let unexplained = || Error::new(ErrorKind::FileSystem, "the file operation was ended");
                Some(Err(self.errors.take().unwrap_or_else(unexplained)))
            }
            TaskEvent::Started(_) | TaskEvent::Closed | TaskEvent::Output { .. } => None,
        }
    }
}

pub(crate) fn file_error(error: &FileError) -> Error {
    // The message comes from inside the sandbox and may say anything: bounded and on one line.
    let message: String =
        error.message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect();
    let cause = std::io::Error::from_raw_os_error(error.errno);
    let kind = match cause.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::FileSystem,
    };
    Error::new(kind, message).with_source(cause).with("errno", error.errno)
}

/// The output stream as bytes, of which `most` were asked for. Resolves when the first of them is there or the operation
/// failed; one that fails later ends the stream with its error.
async fn content(handle: TaskHandle, most: Option<u64>) -> Result<ByteStream> {
    let room = most.unwrap_or(u64::MAX);
    let mut content = Content { handle, verdict: Verdict::default(), room, over: false };
    let first = content.next().await;
    if let Some(Err(error)) = first {
        return Err(error);
    }
    let rest = stream::unfold(content, |mut content| async move {
        let piece = content.next().await?;
        Some((piece, content))
    });
    Ok(ByteStream::new(stream::iter(first).chain(rest)))
}

struct Content {
    handle: TaskHandle,
    verdict: Verdict,
    /// Bytes that may still come.
    room: u64,
    over: bool,
}

impl Content {
    async fn next(&mut self) -> Option<Result<Bytes>> {
        while !self.over {
            match self.handle.next().await {
                Some(TaskEvent::Output { stream: Stream::Output, bytes }) => {
                    let room = self.room.checked_sub(bytes.len() as u64);
                    self.over = room.is_none();
                    self.room = room.unwrap_or_default();
                    let too_much = || lost(AgentError::Protocol("more of a file than was asked for"));
                    return Some(room.map(|_| bytes).ok_or_else(too_much));
                }
                Some(event) => match self.verdict.hear(event) {
                    Some(Ok(())) => self.over = true,
                    Some(Err(error)) => {
                        self.over = true;
                        return Some(Err(error));
                    }
                    None => {}
                },
                None => {
                    self.over = true;
                    return Some(Err(lost(AgentError::Gone)));
                }
            }
        }
        None
    }
}

/// Sends a body and waits for the verdict. A body that fails midway ends the task before it changed anything.
///
/// Only so many uploads are under way in one sandbox; the others wait for their turn without having begun anything. A body
/// gets its turn when its first piece is there, so that a client who sends nothing holds up nobody.
async fn upload(agent: &AgentClient, task: FileTask, mut body: ByteStream) -> Result<()> {
    let mut next = body.next().await.transpose()?;
    let _turn = agent.upload_turn().await.map_err(lost)?;
    let mut handle = start(agent, task)?;
    let input = handle.input.clone();
    let sending = async {
        while let Some(piece) = next {
            // The task may have failed already; its verdict says why.
            if input.write(&piece).await.is_err() {
                break;
            }
            next = body.next().await.transpose()?;
        }
        let _ = input.close();
        Ok(())
    };
    let hearing = async {
        let mut verdict = Verdict::default();
        while let Some(event) = handle.next().await {
            if let Some(over) = verdict.hear(event) {
                return over;
            }
        }
        Err(lost(AgentError::Gone))
    };
    tokio::pin!(sending, hearing);
    let sent: Result<()> = tokio::select! {
        verdict = &mut hearing => return verdict,
        sent = &mut sending => sent,
    };
    match sent {
        Ok(()) => hearing.await,
        Err(error) => {
            let _ = input.say(ToAgent::Signal { id: input.id, signal: 9 });
            let _ = hearing.await;
            Err(error)
        }
    }
}

/// All entries that a task answered with, of which `most` were asked for.
async fn answers<T: DeserializeOwned>(mut handle: TaskHandle, most: u32) -> Result<Vec<T>> {
    let (mut decoder, mut verdict) = (Decoder::default(), Verdict::default());
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let (mut entries, mut room) = (Vec::new(), most.saturating_mul(ENTRY).saturating_add(frame::LIMIT));
    while let Some(event) = handle.next().await {
        if let TaskEvent::Output { stream: Stream::Output, bytes } = &event {
            let without_end = || lost(AgentError::Protocol("an answer without end"));
            room = room.checked_sub(bytes.len()).ok_or_else(without_end)?;
            decoder.push(bytes);
            while let Some(entry) =
                decoder.take().map_err(|_| lost(AgentError::Protocol("a malformed answer")))?
            {
                if entries.len() >= most {
                    return Err(without_end());
                }
                entries.push(entry);
            }
        }
        if let Some(over) = verdict.hear(event) {
            return over.map(|()| entries);
        }
    }
    Err(lost(AgentError::Gone))
}

/// Entries whose names can be written as guest paths, in the order of their paths.
fn listed(top: &GuestPath, entries: Vec<Described>) -> Vec<FileInfo> {
    let mut listed: Vec<FileInfo> = entries
        .iter()
        .filter_map(|entry| {
            let name = std::str::from_utf8(&entry.entry.name).ok()?;
            let path: GuestPath = format!("{}/{name}", top.as_str().trim_end_matches('/')).parse().ok()?;
            Some(info(&path, entry))
        })
        .collect();
    listed.sort_by(|a, b| a.path.as_str().cmp(b.path.as_str()));
    listed
}

fn info(path: &GuestPath, Described { entry, metadata }: &Described) -> FileInfo {
    FileInfo {
        path: path.clone(),
        kind: match entry.kind {
            EntryKind::File => FileKind::File,
            EntryKind::Directory => FileKind::Directory,
            EntryKind::Symlink => FileKind::Link,
            EntryKind::Other => FileKind::Other,
        },
        size: ByteSize::bytes(entry.size),
        mode: entry.mode & 0o777,
        modified: u64::try_from(entry.modified)
            .ok()
            .and_then(|nanos| SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(nanos)))
            .unwrap_or(SystemTime::UNIX_EPOCH),
        target: entry.target.as_ref().map(|target| String::from_utf8_lossy(target).into_owned()),
        owner: match entry.uid {
            0 => Some(User::Root),
            PAYLOAD_ID => Some(User::User),
            _ => None,
        },
        metadata: kept(metadata),
    }
}

/// What is kept with a file, as its agent tells it: as much as could have been put there, and no more.
fn kept(told: &[(String, String)]) -> Metadata {
    let mut room = MOST_METADATA;
    let fits = |pair: &&(String, String)| match room.checked_sub(pair.0.len() + pair.1.len()) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    told.iter().filter(fits).cloned().collect()
}

struct Watching {
    handle: TaskHandle,
    decoder: Decoder,
    errors: Words,
    top: GuestPath,
    /// The first half of a rename.
    from: Option<GuestPath>,
}

impl Watching {
    /// The next event; `Ok(None)` is one that is not told. The end of the stream is the end of the sandbox.
    async fn next(&mut self) -> Option<Result<Option<FileEvent>>> {
        loop {
            match self.decoder.take::<Change>() {
                Ok(Some(change)) => return Some(Ok(self.translate(&change))),
                Ok(None) => {}
                Err(_) => return Some(Err(lost(AgentError::Protocol("a malformed change")))),
            }
            match self.handle.next().await? {
                TaskEvent::Output { stream: Stream::Output, bytes } => self.decoder.push(&bytes),
                TaskEvent::Output { stream: Stream::Error, bytes } => {
                    if let Err(error) = self.errors.push(&bytes) {
                        return Some(Err(error));
                    }
                }
                TaskEvent::Exited { .. } | TaskEvent::Failed(_) => return self.errors.take().map(Err),
                _ => {}
            }
        }
    }

    fn translate(&mut self, change: &Change) -> Option<FileEvent> {
        let name = std::str::from_utf8(&change.name).ok()?;
        let path: GuestPath = format!("{}/{name}", self.top.as_str().trim_end_matches('/')).parse().ok()?;
        let change = match change.kind {
            ChangeKind::Watching => return None,
            ChangeKind::Created => FileChange::Created,
            ChangeKind::Modified => FileChange::Modified,
            ChangeKind::Attributes => FileChange::Attributes,
            ChangeKind::Removed => FileChange::Removed,
            ChangeKind::RenamedFrom => {
                self.from = Some(path);
                return None;
            }
            ChangeKind::RenamedTo => match self.from.take() {
                Some(from) => FileChange::MovedFrom(from),
                None => FileChange::Created,
            },
            ChangeKind::Overflow => FileChange::Lost,
        };
        Some(FileEvent { path, change })
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.handle.input.say(ToAgent::Signal { id: self.handle.id, signal: 9 });
    }
}
