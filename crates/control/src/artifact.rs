//! Archives between sandboxes: what a compiler made goes through a file, never through our memory as a whole.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use sandstorm_provider::{ByteStream, Error, FileOp, OpContext, Provider, Result};
use sandstorm_types::{ErrorKind, GuestPath, SandboxId};

/// How much is read at a time.
const PIECE: u64 = 256 << 10;

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

/// Writes an archive to a file, refused when there is more than `most`.
pub(crate) async fn spool(mut archive: ByteStream, file: &mut (impl Write + Send), most: u64) -> Result<()> {
    let mut length = 0;
    while let Some(piece) = archive.next().await {
        let piece = piece?;
        length += piece.len() as u64;
        if length > most {
            let message = "what the compiler made is larger than what is carried over";
            return Err(Error::new(ErrorKind::InvalidRequest, message).with("limit", most));
        }
        file.write_all(&piece).map_err(|e| unusable("what a compiler made cannot be kept", e))?;
    }
    Ok(())
}

/// A file that goes on among the temporary files when its own folder has no room for it.
#[derive(Debug)]
pub(crate) struct Refuge<'a> {
    file: &'a mut File,
    elsewhere: Option<(File, io::Error)>,
}

impl<'a> Refuge<'a> {
    pub(crate) fn new(file: &'a mut File) -> Self {
        Self { file, elsewhere: None }
    }

    /// The other file, if everything is there, and why.
    pub(crate) fn elsewhere(self) -> Option<(File, io::Error)> {
        self.elsewhere
    }

    fn leave(&mut self, why: io::Error) -> io::Result<&mut File> {
        let mut other = tempfile::tempfile()?;
        self.file.rewind()?;
        io::copy(self.file, &mut other)?;
        Ok(&mut self.elsewhere.insert((other, why)).0)
    }
}

impl Write for Refuge<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some((other, _)) = &mut self.elsewhere {
            return other.write(bytes);
        }
        match self.file.write(bytes) {
            Err(error)
                if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) =>
            {
                self.leave(error)?.write(bytes)
            }
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn unusable(what: &'static str, error: io::Error) -> Error {
    Error::new(ErrorKind::Internal, what).with_source(error)
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
        let mut file = tempfile::tempfile().unwrap();
        spool(pieces(), &mut file, 700 << 10).await.unwrap();
        let artifact = Artifact::of(file).unwrap();
        let read: Vec<Bytes> = artifact.content().map(Result::unwrap).collect().await;
        assert!(read.len() == 3 && read.iter().all(|piece| piece.len() as u64 <= PIECE));
        assert_eq!(read.concat(), pieces().collect(1 << 20).await.unwrap());
        let mut other = tempfile::tempfile().unwrap();
        let refused = spool(pieces(), &mut other, (700 << 10) - 1).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidRequest);
        let empty = Artifact::of(tempfile::tempfile().unwrap()).unwrap();
        assert_eq!(empty.content().collect(0).await.unwrap(), "");
    }
}
