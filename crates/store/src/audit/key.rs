//! The key that signs checkpoints, and the node that it stands for.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use super::record::{Canonical, hex};
use crate::{Result, StoreError};

/// Signs checkpoints. Lives in a file of the state directory, never in the database.
#[derive(Clone)]
pub struct AuditKey([u8; 32]);

impl AuditKey {
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads the key, or makes one with mode 0600.
    pub fn load_or_create(path: &Path) -> Result<Self> {
        match fs::read(path) {
            Ok(bytes) => bytes.try_into().map(Self).map_err(|bytes: Vec<u8>| StoreError::Invalid {
                what: format!("{} must hold 32 bytes, not {}", path.display(), bytes.len()),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(path),
            Err(error) => Err(StoreError::file("read", path)(error)),
        }
    }

    fn create(path: &Path) -> Result<Self> {
        let key = Self(random());
        // Under another name first: who finds the file finds all of it. A link lets the first of two makers win.
        let fresh = path.with_extension(format!("{}.new", hex(&random::<8>())));
        let written =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).and_then(|mut file| {
                file.write_all(&key.0)?;
                file.sync_all()
            });
        let linked = written.and_then(|()| fs::hard_link(&fresh, path));
        let removed = fs::remove_file(&fresh);
        match linked {
            Ok(()) => removed.map(|()| key).map_err(StoreError::file("remove", &fresh)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::load_or_create(path),
            Err(error) => Err(StoreError::file("create", path)(error)),
        }
    }

    /// The name of the node: it follows from the key, so that nobody without the key can speak for the node.
    pub(crate) fn node(&self) -> String {
        let mut text = Canonical::new("sandstorm node v1");
        text.add(&self.0);
        format!("node_{}", hex(&digest(&SHA256, text.bytes()).as_ref()[..8]))
    }

    pub(super) fn sign(&self, text: &Canonical) -> String {
        hex(hmac::sign(&self.hmac(), text.bytes()).as_ref())
    }

    pub(super) fn signed(&self, text: &Canonical, mac: &str) -> bool {
        // The MAC is no secret of ours to whoever can ask this, but comparing it well costs nothing.
        super::record::from_hex(mac).is_some_and(|mac| hmac::verify(&self.hmac(), text.bytes(), &mac).is_ok())
    }

    fn hmac(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

/// A name that nobody else has.
pub(crate) fn random_name() -> String {
    hex(&random::<16>())
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("getrandom(2) cannot fail once the kernel's pool is seeded");
    bytes
}

impl fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditKey(…)")
    }
}
