//! What sandboxes are promised of this machine's disk, so that those of one tenant, or of all, do not fill it.
//!
//! An image grows as its sandbox writes. So a sandbox is promised all that it may write, and a creation is refused where the
//! promises to all of them would not leave what has to stay free.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandstorm_provider::{Error, Result};
use sandstorm_types::{ByteSize, ErrorKind, TenantId};

/// When to try again: others end.
const RETRY: Duration = Duration::from_secs(5);

/// How much of the disk sandboxes may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSpaceConfig {
    /// Where the launcher makes the images.
    pub folder: PathBuf,
    /// Of all sandboxes together.
    pub total: ByteSize,
    pub per_tenant: ByteSize,
    /// What has to stay free on that disk.
    pub keep_free: ByteSize,
}

/// What there is, and what is promised of it.
#[derive(Debug)]
pub(crate) struct DiskSpace {
    /// `None`: whoever asks may have what there is.
    config: Option<DiskSpaceConfig>,
    promised: Arc<Mutex<Promised>>,
}

#[derive(Debug, Default)]
struct Promised {
    all: u64,
    tenants: HashMap<TenantId, u64>,
}

/// Disk that is spoken for until this value is dropped.
#[derive(Debug)]
pub(crate) struct DiskPromise {
    bytes: u64,
    tenant: Option<TenantId>,
    to: Arc<Mutex<Promised>>,
}

impl DiskSpace {
    pub(crate) fn new(config: Option<DiskSpaceConfig>) -> Self {
        Self { config, promised: Arc::default() }
    }

    /// Promises so much, unless that is more than there is. `used`: what sandboxes have written of what they were promised.
    pub(crate) async fn promise(&self, tenant: TenantId, wanted: ByteSize, used: u64) -> Result<DiskPromise> {
        let free = match &self.config {
            Some(config) => {
                let folder = config.folder.clone();
                let free = tokio::task::spawn_blocking(move || free(&folder)).await;
                free.map_err(|_| unknown())?.map_err(|error| unknown().with_source(error))?
            }
            None => u64::MAX,
        };
        self.promise_of(free, tenant, wanted, used)
    }

    fn promise_of(&self, free: u64, tenant: TenantId, wanted: ByteSize, used: u64) -> Result<DiskPromise> {
        let bytes = wanted.as_u64();
        let mut promised = lock(&self.promised);
        if let Some(config) = &self.config {
            let of_tenant = promised.tenants.get(&tenant).copied().unwrap_or_default();
            if of_tenant.saturating_add(bytes) > config.per_tenant.as_u64() {
                let message = "the tenant's sandboxes with space on disk may have no more of it (disk_space.per_tenant); \
                               delete one, or ask for less with limits.disk";
                return Err(refusal(ErrorKind::Quota, message, wanted).with("allowed", config.per_tenant));
            }
            if promised.all.saturating_add(bytes) > config.total.as_u64() {
                let message = "all sandboxes with space on disk may have no more of it (disk_space.total); \
                               try again later, or ask for less with limits.disk";
                return Err(refusal(ErrorKind::Capacity, message, wanted).with("allowed", config.total));
            }
            let to_come = promised.all.saturating_sub(used).saturating_add(bytes);
            if free < to_come.saturating_add(config.keep_free.as_u64()) {
                let message = "this machine's disk has no room for the sandbox beside what others were promised and what has \
                               to stay free (disk_space.keep_free); try again later, or ask for less with limits.disk";
                return Err(refusal(ErrorKind::Capacity, message, wanted).with("free", ByteSize::bytes(free)));
            }
        }
        Ok(self.hold(&mut promised, Some(tenant), bytes))
    }

    /// For what lives already: counted even where it is more than may be promised now. `tenant`: if that is known.
    pub(crate) fn count(&self, tenant: Option<TenantId>, bytes: ByteSize) -> DiskPromise {
        self.hold(&mut lock(&self.promised), tenant, bytes.as_u64())
    }

    fn hold(&self, promised: &mut Promised, tenant: Option<TenantId>, bytes: u64) -> DiskPromise {
        promised.all = promised.all.saturating_add(bytes);
        if let Some(tenant) = tenant {
            let of_tenant = promised.tenants.entry(tenant).or_default();
            *of_tenant = of_tenant.saturating_add(bytes);
        }
        DiskPromise { bytes, tenant, to: Arc::clone(&self.promised) }
    }
}

impl DiskPromise {
    pub(crate) fn tenant(&self) -> Option<TenantId> {
        self.tenant
    }
}

impl Drop for DiskPromise {
    fn drop(&mut self) {
        let mut promised = lock(&self.to);
        promised.all = promised.all.saturating_sub(self.bytes);
        let Some(tenant) = self.tenant else { return };
        if let Some(of_tenant) = promised.tenants.get_mut(&tenant) {
            *of_tenant = of_tenant.saturating_sub(self.bytes);
            if *of_tenant == 0 {
                promised.tenants.remove(&tenant);
            }
        }
    }
}

fn lock(promised: &Mutex<Promised>) -> MutexGuard<'_, Promised> {
    promised.lock().unwrap_or_else(PoisonError::into_inner)
}

fn free(folder: &Path) -> std::io::Result<u64> {
    let found = rustix::fs::statvfs(folder)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Sandboxes with space in memory may do well here, and those of other tenants.
fn refusal(kind: ErrorKind, message: &'static str, wanted: ByteSize) -> Error {
    Error::new(kind, message).with_retry_after(RETRY).with_blameless_provider().with("wanted", wanted)
}

fn unknown() -> Error {
    Error::new(ErrorKind::Internal, "the disk does not tell how much of it is free")
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TenantId = TenantId::from_bits(1);
    const B: TenantId = TenantId::from_bits(2);

    fn space(total: u64, per_tenant: u64, keep_free: u64) -> DiskSpace {
        DiskSpace::new(Some(DiskSpaceConfig {
            folder: "/".into(),
            total: ByteSize::mib(total),
            per_tenant: ByteSize::mib(per_tenant),
            keep_free: ByteSize::mib(keep_free),
        }))
    }

    fn ask(space: &DiskSpace, free: u64, tenant: TenantId, wanted: u64, used: u64) -> Result<DiskPromise> {
        space.promise_of(free << 20, tenant, ByteSize::mib(wanted), used << 20)
    }

    fn kind(asked: Result<DiskPromise>) -> ErrorKind {
        let error = asked.unwrap_err();
        assert!(!error.blames_provider(), "others may do well here");
        error.kind()
    }

    #[test]
    fn one_tenant_and_all_together_have_no_more_than_they_may() {
        let space = space(100, 60, 0);
        let first = ask(&space, 1000, A, 40, 0).unwrap();
        assert_eq!(kind(ask(&space, 1000, A, 21, 0)), ErrorKind::Quota);
        let second = ask(&space, 1000, B, 50, 0).unwrap();
        assert_eq!(kind(ask(&space, 1000, A, 11, 0)), ErrorKind::Capacity);
        drop(second);
        let _third = ask(&space, 1000, A, 20, 0).unwrap();
        drop(first);
        ask(&space, 1000, A, 40, 0).unwrap();
    }

    #[test]
    fn what_others_may_still_write_and_what_stays_free_is_left_alone() {
        let space = space(1000, 1000, 10);
        let _first = ask(&space, 100, A, 50, 0).unwrap();
        assert_eq!(kind(ask(&space, 100, B, 41, 0)), ErrorKind::Capacity);
        // Of the fifty, thirty are written, and so much less is free.
        assert_eq!(kind(ask(&space, 70, B, 41, 30)), ErrorKind::Capacity);
        let _second = ask(&space, 70, B, 40, 30).unwrap();
        assert_eq!(kind(ask(&space, 70, B, 1, 30)), ErrorKind::Capacity);
    }

    #[test]
    fn what_an_earlier_server_made_counts() {
        let space = space(100, 60, 0);
        let _adopted = (space.count(Some(A), ByteSize::mib(50)), space.count(None, ByteSize::mib(30)));
        assert_eq!(kind(ask(&space, 1000, A, 11, 0)), ErrorKind::Quota);
        assert_eq!(kind(ask(&space, 1000, B, 21, 0)), ErrorKind::Capacity);
        ask(&space, 1000, B, 20, 0).unwrap();
    }

    #[tokio::test]
    async fn the_disk_is_asked() {
        let space = space(1 << 40, 1 << 40, 1 << 40);
        assert_eq!(kind(space.promise(A, ByteSize::mib(1), 0).await), ErrorKind::Capacity);
        assert!(DiskSpace::new(None).promise(A, ByteSize::gib(1 << 30), 0).await.is_ok());
    }
}
