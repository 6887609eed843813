//! What the next host has to know of a sandbox. The launcher keeps it without reading it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, SystemTime};

use rustix::fs::{MemfdFlags, SealFlags};
use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, SandboxId, SandboxSpec, TenantId, Walls};
use serde::{Deserialize, Serialize};

/// Longest cookie: a spec has at most half a mebibyte of variables.
const LONGEST: u64 = 8 << 20;

/// A sandbox as its maker wanted it and found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cookie {
    /// Whose jail it is. The jail's own name may be older than the sandbox.
    pub(crate) id: SandboxId,
    /// Whose interpreters may be put into it, if any may.
    pub(crate) owner: Option<String>,
    /// Whose disk it has, if it has any.
    pub(crate) tenant: Option<TenantId>,
    /// With the network policy of now.
    pub(crate) spec: SandboxSpec,
    pub(crate) created_at: SystemTime,
    /// `None`: its maker died before it had measured them.
    pub(crate) walls: Option<Walls>,
}

/// The cookie as text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    id: SandboxId,
    owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<TenantId>,
    spec: SandboxSpec,
    /// Since 1970.
    created_at: Duration,
    walls: Option<Walls>,
}

const VERSION: u32 = 2;

impl Cookie {
    /// As a memory file that nobody changes any more.
    pub(crate) fn write(&self) -> Result<OwnedFd> {
        let created_at = self.created_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let text = Text {
            version: VERSION,
            id: self.id,
            owner: self.owner.clone(),
            tenant: self.tenant,
            spec: self.spec.clone(),
            created_at,
            walls: self.walls.clone(),
        };
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Internal, "the sandbox's description cannot be written").with_source(error)
        };
        let bytes = serde_json::to_vec(&text).map_err(|e| failed(e.into()))?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("sandstorm-cookie", flags).map_err(|e| failed(e.into()))?;
        let mut file = File::from(file);
        file.write_all(&bytes).map_err(failed)?;
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(|e| failed(e.into()))?;
        Ok(file.into())
    }

    pub(crate) fn read(file: OwnedFd) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Internal, "the sandbox's description cannot be read").with_source(error)
        };
        let mut bytes = Vec::new();
        // Where it was left off is shared with everybody who holds it.
        let mut reader = FromStart { file: File::from(file), at: 0 }.take(LONGEST);
        reader.read_to_end(&mut bytes).map_err(failed)?;
        let text: Text = serde_json::from_slice(&bytes).map_err(|e| failed(e.into()))?;
        if text.version != VERSION {
            return Err(Error::new(ErrorKind::Internal, "the sandbox's description is of another version"));
        }
        let created_at =
            SystemTime::UNIX_EPOCH.checked_add(text.created_at).unwrap_or(SystemTime::UNIX_EPOCH);
        let Text { id, owner, tenant, spec, walls, .. } = text;
        Ok(Self { id, owner, tenant, spec, created_at, walls })
    }
}

struct FromStart {
    file: File,
    at: u64,
}

impl Read for FromStart {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.file.read_at(buffer, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_described_whole() {
        let mut spec = SandboxSpec::default();
        for name in ["A", "B", "C", "D"] {
            spec.env.insert(name.parse().unwrap(), "x".repeat(100_000)).unwrap();
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let cookie = Cookie {
            id: SandboxId::random(),
            owner: Some("ten".to_owned()),
            tenant: Some(TenantId::from_bits(10)),
            spec,
            created_at: now,
            walls: Some(Walls::default()),
        };
        let file = cookie.write().unwrap();
        // The launcher hands out the same file again and again.
        for _ in 0..2 {
            assert_eq!(Cookie::read(file.try_clone().unwrap()).unwrap(), cookie);
        }
        assert!(File::from(file).write_all(b"x").is_err());
    }

    #[test]
    fn what_is_no_description_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"{\"version\": 2}").unwrap();
        assert_eq!(Cookie::read(file.into()).unwrap_err().kind(), ErrorKind::Internal);
    }
}
