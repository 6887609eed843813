//! The programs that exist, and what they read from and write to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sandstorm_types::{GuestPath, SandboxId, Stream};
use tokio::sync::{Mutex, mpsc, watch};

use super::shell;
use super::world::World;
use crate::{Delivery, ExecLog, ExecStatus, InputFrame, TtySize};

const PIECE: usize = 16 * 1024;
const NAMES: [&str; 11] =
    ["cat", "chmod", "echo", "false", "printf", "pwd", "sh", "sleep", "stty", "test", "true"];

/// The program at a path, if there is one.
pub(super) fn name_of(path: &str) -> Option<&'static str> {
    let name = path.strip_prefix("/bin/").or_else(|| path.strip_prefix("/usr/bin/")).unwrap_or(path);
    NAMES.into_iter().find(|known| *known == name)
}

/// A program's surroundings. A clone is what a child inherits.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) world: World,
    pub(super) sandbox: SandboxId,
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: GuestPath,
    pub(super) stdin: Input,
    pub(super) stdout: Sink,
    pub(super) stderr: Sink,
    pub(super) channel: Option<Channel>,
    pub(super) terminal: watch::Receiver<Option<TtySize>>,
}

impl Program {
    pub(super) async fn run(&mut self, argv: &[String]) -> ExecStatus {
        let Some((name, args)) = argv.split_first() else {
            return ExecStatus::Code(127);
        };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        match name_of(name) {
            Some("cat") => self.cat(&args).await,
            Some("chmod") => self.chmod(&args).await,
            Some("echo") => self.print(format!("{}\n", args.join(" "))).await,
            Some("false") => ExecStatus::Code(1),
            Some("printf") => self.print(formatted(&args)).await,
            Some("pwd") => self.print(format!("{}\n", self.cwd)).await,
            Some("sh") => match args.as_slice() {
                // A shell in a shell has to be boxed: the two call each other.
                ["-c", script, ..] => Box::pin(shell::run(self, script)).await,
                _ => self.complain("sh: only `-c` is known here").await,
            },
            Some("sleep") => self.sleep(&args).await,
            Some("stty") => self.stty(&args).await,
            Some("test") => self.test(&args),
            Some("true") => ExecStatus::Code(0),
            _ => {
                self.complain(&format!("{name}: not found")).await;
                ExecStatus::Code(127)
            }
        }
    }

    async fn print(&mut self, text: String) -> ExecStatus {
        self.stdout.write(text.into()).await;
        ExecStatus::Code(0)
    }

    pub(super) async fn complain(&mut self, text: &str) -> ExecStatus {
        self.stderr.write(format!("{text}\n").into()).await;
        ExecStatus::Code(2)
    }

    pub(super) fn resolve(&self, path: &str) -> Option<GuestPath> {
        if path.starts_with('/') { path.parse().ok() } else { self.cwd.join(path).ok() }
    }

    async fn cat(&mut self, args: &[&str]) -> ExecStatus {
        if args.is_empty() {
            while let Some(piece) = self.stdin.read().await {
                self.stdout.write(piece).await;
            }
            return ExecStatus::Code(0);
        }
        let mut status = ExecStatus::Code(0);
        for name in args {
            let read =
                |path: GuestPath| self.world.read_tree(&self.sandbox, |tree| tree.read(&path)).ok()?.ok();
            let Some(mut rest) = self.resolve(name).and_then(read) else {
                self.complain(&format!("cat: {name}: No such file or directory")).await;
                status = ExecStatus::Code(1);
                continue;
            };
            while !rest.is_empty() {
                self.stdout.write(rest.split_to(rest.len().min(PIECE))).await;
                // Signals and limits are seen between two pieces.
                tokio::task::yield_now().await;
            }
        }
        status
    }

    async fn chmod(&mut self, args: &[&str]) -> ExecStatus {
        let [mode, name] = args else { return self.complain("chmod: which mode, which file?").await };
        let changed =
            u32::from_str_radix(mode, 8).ok().zip(self.resolve(name)).is_some_and(|(mode, path)| {
                self.world.change_tree(&self.sandbox, |tree| tree.set_mode(&path, mode)).is_ok()
            });
        match changed {
            true => ExecStatus::Code(0),
            false => {
                self.complain(&format!("chmod: {name}: cannot be changed")).await;
                ExecStatus::Code(1)
            }
        }
    }

    async fn sleep(&mut self, args: &[&str]) -> ExecStatus {
        match args.first().and_then(|text| sandstorm_types::duration::parse(text).ok()) {
            Some(span) => {
                tokio::time::sleep(span.min(Duration::from_secs(86_400))).await;
                ExecStatus::Code(0)
            }
            None => self.complain("sleep: how long?").await,
        }
    }

    async fn stty(&mut self, args: &[&str]) -> ExecStatus {
        let size = *self.terminal.borrow();
        match (args, size) {
            (["size"], Some(TtySize { rows, cols })) => self.print(format!("{rows} {cols}\n")).await,
            _ => self.complain("stty: standard input: not a terminal").await,
        }
    }

    fn test(&self, args: &[&str]) -> ExecStatus {
        let there = |path: &GuestPath| self.world.read_tree(&self.sandbox, |tree| tree.stat(path).is_ok());
        let holds = match args {
            ["-t", _] => self.terminal.borrow().is_some(),
            ["-e", path] => self.resolve(path).is_some_and(|path| there(&path).unwrap_or(false)),
            _ => return ExecStatus::Code(2),
        };
        ExecStatus::Code(if holds { 0 } else { 1 })
    }
}

/// `printf` with `%s`, `%%` and the common escapes.
fn formatted(args: &[&str]) -> String {
    let (format, mut values) = match args.split_first() {
        Some((format, values)) => (*format, values.iter()),
        None => return String::new(),
    };
    let mut text = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some(other) => text.push(other),
                None => text.push('\\'),
            },
            '%' => match letters.next() {
                Some('s') => text.push_str(values.next().unwrap_or(&"")),
                Some(other) => text.push(other),
                None => text.push('%'),
            },
            other => text.push(other),
        }
    }
    text
}

/// What a program reads. Clones read from the same place, as children do.
#[derive(Debug, Clone)]
pub(super) enum Input {
    Text(Arc<Mutex<Typed>>),
    Channel(Channel),
}

#[derive(Debug)]
pub(super) struct Typed {
    waiting: BytesMut,
    /// `None` once the end was said.
    frames: Option<mpsc::Receiver<InputFrame>>,
}

impl From<Bytes> for Input {
    fn from(bytes: Bytes) -> Self {
        Self::Text(Arc::new(Mutex::new(Typed { waiting: bytes.into(), frames: None })))
    }
}

impl From<mpsc::Receiver<InputFrame>> for Input {
    fn from(frames: mpsc::Receiver<InputFrame>) -> Self {
        Self::Text(Arc::new(Mutex::new(Typed { waiting: BytesMut::new(), frames: Some(frames) })))
    }
}

impl Input {
    /// Some bytes, or `None` at the end.
    async fn read(&self) -> Option<Bytes> {
        match self {
            Self::Channel(channel) => channel.read().await,
            Self::Text(typed) => {
                let mut typed = typed.lock().await;
                (!typed.waiting.is_empty() || typed.more().await).then(|| typed.waiting.split().freeze())
            }
        }
    }

    /// A line without its end; `None` when there is no line left.
    pub(super) async fn line(&self) -> Option<String> {
        let Self::Text(typed) = self else { return None };
        let mut typed = typed.lock().await;
        loop {
            if let Some(end) = typed.waiting.iter().position(|byte| *byte == b'\n') {
                let line = typed.waiting.split_to(end + 1);
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if !typed.more().await {
                return None;
            }
        }
    }
}

/// Takes input as the agent of a real sandbox does: what is here is the program's, whether it reads it now or later.
pub(super) async fn keep_input(mut frames: mpsc::Receiver<InputFrame>, to: mpsc::Sender<InputFrame>) {
    let mut had = 0;
    loop {
        let frame = tokio::select! {
            () = to.closed() => return,
            frame = frames.recv() => frame,
        };
        let (bytes, close, receipt) = match frame {
            Some(InputFrame::Data(bytes)) => (bytes, false, None),
            Some(InputFrame::Close) => (Bytes::new(), true, None),
            Some(InputFrame::Deliver(mut delivery)) => match delivery.cut(had) {
                Ok(()) => (delivery.bytes, delivery.close, Some(delivery.receipt)),
                Err(gap) => {
                    delivery.receipt.give(Err(gap));
                    continue;
                }
            },
            None => return,
        };
        had += bytes.len() as u64;
        if !bytes.is_empty() && to.send(InputFrame::Data(bytes)).await.is_err() {
            return;
        }
        if close && to.send(InputFrame::Close).await.is_err() {
            return;
        }
        if let Some(receipt) = receipt {
            receipt.give(Ok(Some(had)));
        }
    }
}

impl Typed {
    /// Waits for more; `false` at the end. The lock is held over the wait as one reader reads at a time.
    async fn more(&mut self) -> bool {
        let Some(frames) = &mut self.frames else { return false };
        match frames.recv().await {
            Some(InputFrame::Data(bytes) | InputFrame::Deliver(Delivery { bytes, .. })) => {
                self.waiting.extend_from_slice(&bytes);
                true
            }
            Some(InputFrame::Close) | None => {
                self.frames = None;
                false
            }
        }
    }
}

/// Where a program writes.
#[derive(Debug, Clone)]
pub(super) enum Sink {
    Log(ExecLog, Stream),
    Channel(Channel),
    /// A file that is written when the command is done.
    File(Arc<Mutex<BytesMut>>),
}

impl Sink {
    pub(super) fn stdout(log: &ExecLog) -> Self {
        Self::Log(log.clone(), Stream::Stdout)
    }

    pub(super) fn stderr(log: &ExecLog) -> Self {
        Self::Log(log.clone(), Stream::Stderr)
    }

    async fn write(&self, bytes: Bytes) {
        match self {
            Self::Log(log, stream) => {
                let _ = log.write(*stream, bytes);
                log.pace().await;
            }
            Self::Channel(channel) => channel.write(bytes).await,
            Self::File(content) => content.lock().await.extend_from_slice(&bytes),
        }
    }
}

/// Descriptor 3.
#[derive(Debug, Clone)]
pub(super) struct Channel {
    messages: Arc<Mutex<Typed>>,
    log: ExecLog,
}

impl Channel {
    pub(super) fn new(messages: mpsc::Receiver<InputFrame>, log: &ExecLog) -> Self {
        let typed = Typed { waiting: BytesMut::new(), frames: Some(messages) };
        Self { messages: Arc::new(Mutex::new(typed)), log: log.clone() }
    }

    async fn read(&self) -> Option<Bytes> {
        let mut typed = self.messages.lock().await;
        (!typed.waiting.is_empty() || typed.more().await).then(|| typed.waiting.split().freeze())
    }

    async fn write(&self, bytes: Bytes) {
        let _ = self.log.write_channel(bytes);
        self.log.pace().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_their_usual_paths() {
        for path in ["/bin/cat", "/usr/bin/cat", "cat"] {
            assert_eq!(name_of(path), Some("cat"));
        }
        for path in ["/opt/cat", "", "/bin/", "/bin/python3", "/bin/../bin/cat"] {
            assert_eq!(name_of(path), None);
        }
    }

    #[test]
    fn printf_formats() {
        assert_eq!(formatted(&["%s-%s\\n", "a", "b"]), "a-b\n");
        assert_eq!(formatted(&["100%%"]), "100%");
        assert_eq!(formatted(&[]), "");
    }
}
