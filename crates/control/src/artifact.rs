//! Archives between sandboxes: what a compiler made goes through a file, never through our memory as a whole.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sandstorm_provider::{ByteStream, Error, FileOp, OpContext, Provider, Result};
use sandstorm_types::{ErrorKind, GuestPath, SandboxId};
use tempfile::NamedTempFile;

use crate::spool::{Spools, is_full};

/// How much is read at a time.
const PIECE: u64 = 256 << 10;

/// When a caller may ask again after the disk was full.
const FULL: Duration = Duration::from_secs(5);

/// An archive in a file that does not change any more.
#[derive(Debug, Clone)]
pub(crate) struct Artifact {
    file: Arc<File>,
    length: u64,
}

impl Artifact {
    pub(crate) fn of(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), length })
    }

    /// Its content. Pieces are read as somebody wants them.
    pub(crate) fn content(&self) -> ByteStream {
        let this = self.clone();
        ByteStream::new(stream::try_unfold(0, move |from| this.clone().piece(from)))
    }

    async fn piece(self, from: u64) -> Result<Option<(Bytes, u64)>> {
        let length = PIECE.min(self.length - from);
        if length == 0 {
            return Ok(None);
        }
        let read = move || {
            let mut piece = vec![0; usize::try_from(length).unwrap_or(0)];
            self.file.read_exact_at(&mut piece, from).map(|()| piece)
        };
        // A small one is read at once: to hand it to another thread takes longer than to read it.
        let piece = match from == 0 && length < PIECE {
            true => read(),
            false => tokio::task::spawn_blocking(read).await.map_err(io::Error::other).flatten(),
        };
        let piece = piece.map_err(|e| unusable("what a compiler made cannot be read", e))?;
        Ok(Some((Bytes::from(piece), from + length)))
    }
}

/// Writes an archive to a file and gives the file back. An archive larger than `most` is refused.
pub(crate) async fn spool<W>(mut archive: ByteStream, mut file: W, most: u64) -> Result<W>
where
    W: Write + Send + 'static,
{
    let mut length = 0;
    while let Some(piece) = archive.next().await {
        let piece = piece?;
        length += piece.len() as u64;
        if length > most {
            let message = "what the compiler made is larger than what is carried over";
            return Err(Error::new(ErrorKind::InvalidRequest, message).with("limit", most));
        }
        let written = write(file, piece).await;
        file = written.map_err(|e| unusable("what a compiler made cannot be kept", e))?;
    }
    Ok(file)
}

/// Writes a piece in a thread that may wait for the disk.
async fn write<W>(mut file: W, piece: Bytes) -> io::Result<W>
where
    W: Write + Send + 'static,
{
    let write = move || file.write_all(&piece).map(|()| file);
    tokio::task::spawn_blocking(write).await.map_err(io::Error::other).flatten()
}

/// A file that goes on in another place when its own folder has no room for it.
#[derive(Debug)]
pub(crate) struct Refuge {
    file: NamedTempFile,
    spools: Spools,
    elsewhere: Option<(File, io::Error)>,
}

impl Refuge {
    pub(crate) fn new(file: NamedTempFile, spools: Spools) -> Self {
        Self { file, spools, elsewhere: None }
    }

    /// The file, or the one in the other place with everything in it, and why.
    pub(crate) fn finish(self) -> Result<NamedTempFile, (File, io::Error)> {
        self.elsewhere.map_or(Ok(self.file), Err)
    }

    fn leave(&mut self, why: io::Error) -> io::Result<&mut File> {
        let mut other = self.spools.file()?;
        let file = self.file.as_file_mut();
        file.rewind()?;
        io::copy(file, &mut other)?;
        Ok(&mut self.elsewhere.insert((other, why)).0)
    }
}

impl Write for Refuge {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some((other, _)) = &mut self.elsewhere {
            return other.write(bytes);
        }
        match self.file.as_file_mut().write(bytes) {
            Err(error) if is_full(&error) => self.leave(error)?.write(bytes),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_file_mut().flush()
    }
}

/// Why a file of an artifact cannot be used. A full disk passes.
pub(crate) fn unusable(what: &'static str, error: io::Error) -> Error {
    match is_full(&error) {
        true => Error::new(ErrorKind::Capacity, what).with_source(error).with_retry_after(FULL),
        false => Error::new(ErrorKind::Internal, what).with_source(error),
    }
}

/// Unpacks an archive into a folder of the sandbox.
pub(crate) async fn unpack(
    provider: &dyn Provider,
    cx: &OpContext,
    sandbox: &SandboxId,
    path: GuestPath,
    archive: ByteStream,
) -> Result<()> {
    provider.files(cx, sandbox, FileOp::Unpack { path, archive }).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_goes_through_a_file_comes_out_in_pieces_and_is_bounded() {
        let pieces =
            || ByteStream::new(stream::iter((0..700_u32).map(|n| Ok(Bytes::from(vec![n as u8; 1024])))));
        let file = tempfile::tempfile().unwrap();
        let file = spool(pieces(), file, 700 << 10).await.unwrap();
        let artifact = Artifact::of(file).unwrap();
        let read: Vec<Bytes> = artifact.content().map(Result::unwrap).collect().await;
        assert!(read.len() == 3 && read.iter().all(|piece| piece.len() as u64 <= PIECE));
        assert_eq!(read.concat(), pieces().collect(1 << 20).await.unwrap());
        let other = tempfile::tempfile().unwrap();
        let refused = spool(pieces(), other, (700 << 10) - 1).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidRequest);
        let empty = Artifact::of(tempfile::tempfile().unwrap()).unwrap();
        assert_eq!(empty.content().collect(0).await.unwrap(), "");
    }

    #[test]
    fn what_has_no_room_goes_on_where_output_is_spooled() {
        use std::io::Read;
        use std::os::fd::AsRawFd;
        let dir = tempfile::tempdir().unwrap();
        let spools = Spools::in_dir(dir.path().to_owned());
        let mut refuge = Refuge::new(NamedTempFile::new().unwrap(), spools);
        refuge.write_all(b"before").unwrap();
        refuge.leave(io::ErrorKind::StorageFull.into()).unwrap();
        refuge.write_all(b" and after").unwrap();
        let (mut file, why) = refuge.finish().unwrap_err();
        assert!(is_full(&why));
        let place = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        assert!(place.starts_with(dir.path().canonicalize().unwrap()), "{}", place.display());
        let mut content = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "before and after");
        let kept = Refuge::new(NamedTempFile::new().unwrap(), Spools::Memory);
        kept.finish().unwrap();
    }

    #[tokio::test]
    async fn a_full_disk_is_said_to_pass() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let archive = ByteStream::new(stream::iter([Ok(Bytes::from_static(b"some"))]));
        let refused = spool(archive, full, 100).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Capacity);
        assert!(refused.retry_after().is_some());
    }
}
