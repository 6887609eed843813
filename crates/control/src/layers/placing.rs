//! A layer's files on their way into a sandbox that lives.
//!
//! They are read where they were unpacked, on this machine, and are placed by the agent of that sandbox, behind its walls:
//! whatever a path in there leads to, it leads nowhere else.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use sandstorm_language::Places;
use sandstorm_provider::{ByteStream, Error, FileOp, OpContext, Provider, Result};
use sandstorm_types::{ErrorKind, SandboxId};
use tokio::sync::mpsc;

use super::{Extract, Layer, Layers};
use crate::artifact::unpack;
use crate::compile::guest_path;

/// Bytes of an archive that are passed on at a time, and how many such pieces wait.
const PIECE: usize = 256 << 10;
const PIECES: usize = 4;

impl Layers {
    /// Places a layer's files into a sandbox. What was there under the same names is replaced. A failure leaves what was
    /// placed until then.
    pub(crate) async fn place(
        &self,
        provider: &dyn Provider,
        cx: &OpContext,
        sandbox: &SandboxId,
        layer: &Layer,
        places: &Places,
    ) -> Result<()> {
        let source = &layer.mount.source;
        let mut parts =
            vec![(source.clone(), places.programs.as_ref().map(|own| own.from.clone()), &places.place)];
        if let Some(programs) = &places.programs {
            let folder = source.join(&programs.from);
            // A link would lead the packer elsewhere on this machine.
            if std::fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir()) {
                parts.push((folder, None, &programs.to));
            }
        }
        for (folder, without, to) in parts {
            let to = guest_path(to)?;
            provider.files(cx, sandbox, FileOp::MakeDir { path: to.clone() }).await?;
            unpack(provider, cx, sandbox, to, packed(Arc::clone(&self.extract), folder, without)).await?;
        }
        Ok(())
    }
}

/// The content of a folder as an archive, made as fast as it is taken.
fn packed(archives: Arc<dyn Extract>, folder: PathBuf, without: Option<String>) -> ByteStream {
    let (pieces, coming) = mpsc::channel::<Result<Bytes>>(PIECES);
    let writing = move || {
        let mut writer = BufWriter::with_capacity(PIECE, Pieces(pieces.clone()));
        let packed = archives.pack(&folder, without.as_deref(), &mut writer).and_then(|()| writer.flush());
        if let Err(error) = packed {
            let error =
                Error::new(ErrorKind::Internal, "a dependency layer cannot be read").with_source(error);
            // Whoever took the pieces may be gone, and then nobody wants to know.
            let _ = pieces.blocking_send(Err(error));
        }
    };
    // Once nobody takes the pieces any more the next one ends it.
    drop(tokio::task::spawn_blocking(writing));
    ByteStream::new(stream::unfold(coming, async |mut coming| {
        coming.recv().await.map(|piece| (piece, coming))
    }))
}

/// Passes on what is written.
struct Pieces(mpsc::Sender<Result<Bytes>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes))).map_err(gone)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use sandstorm_language::Programs;
    use sandstorm_provider::memory::MemoryProvider;
    use sandstorm_provider::{CreateOptions, HostMount, ProviderExt};
    use sandstorm_types::{SandboxSpec, TenantId};

    use super::super::LayersConfig;
    use super::*;

    /// The archives of `tar`, without the checks that a hostile one needs.
    #[derive(Debug)]
    struct Plain;

    impl Extract for Plain {
        fn extract(&self, _: &mut dyn io::Read, _: &Path, _: u64) -> io::Result<u64> {
            Ok(0)
        }

        fn pack(&self, folder: &Path, without: Option<&str>, into: &mut dyn Write) -> io::Result<()> {
            let mut builder = tar::Builder::new(into);
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                let name = entry.file_name();
                if without.is_some_and(|without| name == without) {
                    continue;
                }
                match entry.file_type()?.is_dir() {
                    true => builder.append_dir_all(&name, entry.path())?,
                    false => builder.append_path_with_name(entry.path(), &name)?,
                }
            }
            builder.finish()
        }
    }

    #[tokio::test]
    async fn files_and_programs_go_to_their_places() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("layer");
        fs::create_dir_all(source.join("bin")).unwrap();
        fs::create_dir_all(source.join("pkg")).unwrap();
        fs::write(source.join("bin/tool"), "program").unwrap();
        fs::write(source.join("pkg/__init__.py"), vec![b'x'; 3 * PIECE]).unwrap();
        let layers = Layers::new(LayersConfig {
            dir: dir.path().join("layers"),
            max_bytes: u64::MAX,
            indexes: BTreeMap::new(),
            extract: Arc::new(Plain),
        });
        let mount = HostMount { source: source.clone(), target: "/nowhere".into() };
        let in_use = fs::File::open(&source).unwrap();
        let layer = Layer { key: "k".to_owned(), mount, _in_use: in_use };
        let (provider, cx) = (MemoryProvider::default(), OpContext::new(TenantId::LOCAL));
        let made = provider.create(&cx, &SandboxSpec::default(), CreateOptions::default()).await.unwrap();
        let programs = Programs { from: "bin".to_owned(), to: "/home/user/.local/bin".to_owned() };
        let places = Places { place: "/home/user/lib".to_owned(), programs: Some(programs) };
        let read =
            async |path: &str| provider.read_bytes(&cx, &made.id, &path.parse().unwrap(), 1 << 20).await;
        for _ in 0..2 {
            layers.place(&provider, &cx, &made.id, &layer, &places).await.unwrap();
            assert_eq!(read("/home/user/lib/pkg/__init__.py").await.unwrap().len(), 3 * PIECE);
            assert_eq!(read("/home/user/.local/bin/tool").await.unwrap(), "program");
            assert!(read("/home/user/lib/bin/tool").await.is_err(), "programs are not twice there");
        }
        fs::remove_dir_all(&source).unwrap();
        let gone = layers.place(&provider, &cx, &made.id, &layer, &places).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::Internal, "{gone}");
    }
}
