//! What a program wrote, on its way to whoever asked for all of it.
//!
//! Most programs write little, and that stays in memory. Of one that writes more only the beginning does, and all of it goes
//! to a file without a name: however slowly somebody reads an answer, what is held for him is a file. Such a file has no
//! place in a directory, so nothing of it is left when it is let go of, or when this process is killed.

mod saved;
mod text;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sandstorm_types::{ByteSize, PerStream, Stream};
use tokio_util::sync::CancellationToken;

pub use saved::{Saved, Whole};
use text::TextCheck;
pub(crate) use text::trim;

/// Bytes of each stream that stay in memory.
pub(crate) const HEAD: usize = 256 << 10;

/// How often is looked whether there is space again.
pub(crate) const AGAIN: Duration = Duration::from_millis(200);

/// Where output goes that is more than a little.
#[derive(Debug, Clone, Default)]
pub(crate) enum Spools {
    /// Nowhere: all of it stays in memory, for a process that has one caller.
    #[default]
    Memory,
    /// Nowhere: a listener hears all of it. The beginning is kept, at most so many bytes of both streams together.
    Heads(ByteSize),
    /// To files in this directory.
    Files(Arc<Path>),
}

impl Spools {
    pub(crate) fn in_dir(dir: PathBuf) -> Self {
        Self::Files(dir.into())
    }

    pub(crate) fn dir(&self) -> Option<&Path> {
        match self {
            Self::Memory | Self::Heads(_) => None,
            Self::Files(dir) => Some(dir),
        }
    }

    /// An empty file without a name: in the directory, or among the temporary files where there is none.
    pub(crate) fn file(&self) -> io::Result<File> {
        self.dir().map_or_else(tempfile::tempfile, tempfile::tempfile_in)
    }
}

/// Takes the output of one program.
#[derive(Debug)]
pub(crate) struct Collector {
    spools: Spools,
    stdout: Part,
    stderr: Part,
}

/// What was collected.
#[derive(Debug)]
pub(crate) struct Collected {
    /// All that was written, or the beginning of it.
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// Which of them are only the beginning.
    pub(crate) cut: PerStream<bool>,
    /// Everything, where that is more than the beginnings.
    pub(crate) whole: Option<Whole>,
}

#[derive(Debug, Default)]
struct Part {
    head: Vec<u8>,
    came: u64,
    file: Option<File>,
    text: TextCheck,
    /// Some of it is nowhere.
    lost: bool,
}

impl Collector {
    pub(crate) fn new(spools: Spools) -> Self {
        Self { spools, stdout: Part::default(), stderr: Part::default() }
    }

    /// Takes the next piece. Where there is no space for it, this waits until there is or until nobody wants it any more.
    pub(crate) async fn add(&mut self, stream: Stream, bytes: &[u8], unwanted: &CancellationToken) {
        let kept = (self.stdout.head.len() + self.stderr.head.len()) as u64;
        let part = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let at = part.came;
        part.came += bytes.len() as u64;
        let room = HEAD.saturating_sub(part.head.len());
        let room = match self.spools {
            Spools::Memory => usize::MAX,
            Spools::Heads(limit) => {
                room.min(usize::try_from(limit.as_u64().saturating_sub(kept)).unwrap_or(usize::MAX))
            }
            Spools::Files(_) => room,
        };
        if part.file.is_none() && bytes.len() <= room {
            part.head.extend_from_slice(bytes);
            return;
        }
        let beyond = part.head.len() as u64;
        let fits = bytes.len().min(room);
        part.head.extend_from_slice(&bytes[..fits]);
        let Spools::Files(dir) = &self.spools else {
            part.lost = true;
            return;
        };
        if part.lost {
            return;
        }
        let mut told = false;
        while let Err(error) = part.write(dir, at, bytes, beyond) {
            if !is_full(&error) {
                tracing::error!(%error, "output cannot be kept");
                part.lost = true;
                return;
            }
            if !std::mem::replace(&mut told, true) {
                tracing::warn!(%error, "a program waits until what it writes can be kept");
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = unwanted.cancelled() => {
                    part.lost = true;
                    return;
                }
            }
        }
        part.text.add(bytes);
    }

    /// Bytes that came, kept or not.
    pub(crate) fn came(&self) -> PerStream<u64> {
        PerStream { stdout: self.stdout.came, stderr: self.stderr.came }
    }

    /// `truncated`: which streams were longer than what came here.
    pub(crate) fn finish(self, truncated: PerStream<bool>) -> Collected {
        let Self { mut stdout, mut stderr, .. } = self;
        let cut = PerStream { stdout: stdout.is_cut(), stderr: stderr.is_cut() };
        let truncated =
            PerStream { stdout: truncated.stdout || stdout.lost, stderr: truncated.stderr || stderr.lost };
        let whole = (stdout.file.is_some() || stderr.file.is_some()).then(|| Whole {
            stdout: stdout.save(),
            stderr: stderr.save(),
            truncated,
        });
        Collected { stdout: stdout.head, stderr: stderr.head, cut, whole }
    }
}

impl Part {
    /// Writes a piece to its place in the file, which is begun with what is in memory. `head`: how much of that came before.
    fn write(&mut self, dir: &Path, at: u64, bytes: &[u8], head: u64) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file,
            None => {
                let file = tempfile::tempfile_in(dir)?;
                let before = &self.head[..usize::try_from(head).unwrap_or(usize::MAX).min(self.head.len())];
                file.write_all_at(before, 0)?;
                self.text.add(before);
                self.file.insert(file)
            }
        };
        file.write_all_at(bytes, at)
    }

    fn is_cut(&self) -> bool {
        self.file.is_some() || self.lost
    }

    /// What is in the file, or in memory where there is none.
    fn save(&mut self) -> Saved {
        // Less than a whole piece may be in the file when its end was given up.
        let kept = |file: File| {
            let length = if self.lost { file.metadata().map_or(0, |found| found.len()) } else { self.came };
            Saved::File { file, length, text: !self.lost && self.text.is_text() }
        };
        let saved = self.file.take().map(kept);
        if saved.is_some() {
            trim(&mut self.head);
        }
        saved.unwrap_or_else(|| Saved::Memory(self.head.clone()))
    }
}

/// Whether an error says that there is no space, which may pass.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests;
