//! What dependency layers are made with: where packages come from, and how archives are taken apart.

mod operator;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rustix::fs::{Mode, OFlags};
use sandstorm_agent::archive::{Bounds, pack, unpack};
use sandstorm_config::{Environment, Loaded, Manager};
use sandstorm_control::{Extract, IndexSource, Layers, LayersConfig};

const MANAGERS: [(&str, Manager); 6] = [
    ("pip", Manager::Pip),
    ("npm", Manager::Npm),
    ("cargo", Manager::Cargo),
    ("go", Manager::Go),
    ("maven", Manager::Maven),
    ("gem", Manager::Gem),
];

/// Layers below the state directory.
pub(crate) fn layers(loaded: &Loaded, state_dir: &Path) -> anyhow::Result<Layers> {
    let environment = Environment::of_process();
    let mut indexes = BTreeMap::new();
    for (name, manager) in MANAGERS {
        indexes.insert(name.to_owned(), index(loaded, manager, &environment)?);
    }
    Ok(Layers::new(LayersConfig {
        dir: state_dir.join("layers"),
        max_bytes: loaded.config.cache.max_bytes.as_u64(),
        indexes,
        extract: Arc::new(Archives),
    }))
}

/// Our configuration first, then what the operator told the package manager itself.
fn index(loaded: &Loaded, manager: Manager, environment: &Environment) -> anyhow::Result<IndexSource> {
    let configured = loaded.config.packages.of(manager);
    let mut source = match &configured.index {
        Some(index) => IndexSource { address: Some(index.as_str().to_owned()), ..IndexSource::default() },
        None => operator::index(manager, environment).map(operator::split).unwrap_or_default(),
    };
    source.hosts = configured.hosts.rules().to_vec();
    if let Some(reference) = &configured.credentials {
        let secret = reference.resolve(environment).with_context(|| format!("credentials of {manager:?}"))?;
        source.credentials = Some(secret.expose_secret().to_owned());
    }
    Ok(source)
}

/// The extractor that also brings a program's files back: names cannot climb, links cannot leave, nothing is special.
#[derive(Debug)]
struct Archives;

impl Extract for Archives {
    fn extract(&self, archive: &mut dyn Read, into: &Path, most_bytes: u64) -> io::Result<u64> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = rustix::fs::open(into, flags, Mode::empty())?;
        let bounds = Bounds { bytes: most_bytes, ..Bounds::SANDBOX };
        unpack(archive, target.as_fd(), bounds).map(|unpacked| unpacked.bytes).map_err(io::Error::other)
    }

    fn pack(&self, folder: &Path, without: Option<&str>, into: &mut dyn Write) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        let without: Vec<&[u8]> = without.map(str::as_bytes).into_iter().collect();
        pack(folder.as_fd(), &without, into).map_err(io::Error::other)
    }
}
