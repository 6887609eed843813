//! How much of this machine's disk sandboxes may have.

use sandstorm_engine::DiskSpaceConfig;
use sandstorm_provider::{CreateOptions, Provider, Result};
use sandstorm_types::{ByteSize, Enforcement, ErrorKind, Limits, SandboxId, SandboxSpec, Space};

use crate::Case;
use crate::place::{Host, Place, kill, life};

pub(crate) const CASES: &[Case] = &[("disk_is_promised_within_bounds", disk_is_promised_within_bounds)];

async fn make(host: &Host, mib: u64) -> Result<SandboxId> {
    let limits = Limits { disk: ByteSize::mib(mib), inodes: 1000, ..Limits::default() };
    let spec = SandboxSpec {
        enforcement: Enforcement::BestEffort,
        space: Space::Disk,
        limits,
        ..SandboxSpec::default()
    };
    Ok(host.provider.create(&host.cx, &spec, CreateOptions::default()).await?.id)
}

fn disk_is_promised_within_bounds(place: &Place) {
    *place.disk_space.borrow_mut() = Some(DiskSpaceConfig {
        folder: "/var/tmp".into(),
        total: ByteSize::mib(100),
        per_tenant: ByteSize::mib(60),
        keep_free: ByteSize::mib(1),
    });
    let first = place.fork_host(life!(|host| {
        if !host.provider.capabilities().disk_space {
            return host.tell("sandbox", "none");
        }
        let sandbox = make(host, 40).await.unwrap();
        assert_eq!(make(host, 40).await.unwrap_err().kind(), ErrorKind::Quota);
        host.tell("sandbox", sandbox);
    }));
    let sandbox = place.note("sandbox");
    kill(first);
    if sandbox == "none" {
        assert!(std::env::var_os("SANDSTORM_REQUIRE_ALL").is_none(), "there is no space on disk here");
        return;
    }
    let next = place.fork_host(life!(|host| {
        let sandbox: SandboxId = host.told("sandbox").parse().unwrap();
        assert_eq!(host.provider.adopt().await.unwrap(), [sandbox]);
        let refused = make(host, 40).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Quota, "{refused}");
        host.provider.destroy(&host.cx, &sandbox).await.unwrap();
        make(host, 40).await.unwrap();
        host.tell("done", "");
    }));
    place.note("done");
    kill(next);
    *place.disk_space.borrow_mut() = Some(DiskSpaceConfig {
        folder: "/var/tmp".into(),
        total: ByteSize::gib(1 << 30),
        per_tenant: ByteSize::gib(1 << 30),
        keep_free: ByteSize::gib(1 << 20),
    });
    place.live(life!(|host| {
        let refused = make(host, 40).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Capacity, "{refused}");
        assert!(refused.retry_after().is_some());
    }));
}
