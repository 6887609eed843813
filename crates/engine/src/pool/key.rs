//! What makes two sandboxes interchangeable before anybody has used them.

use std::sync::Arc;

use sandstorm_jail::JailSpec;
use sandstorm_types::TenantId;

use super::stock::Kind;
use crate::plan::JailKind;

/// What an empty sandbox is thought to take until one was weighed, and one with an interpreter in it.
const EMPTY: u64 = 1 << 20;
const WITH_GUEST: u64 = 3 << 20;

/// A kind of sandbox: one of a kind serves whoever asks for that kind.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    tenant: TenantId,
    jail: Arc<JailKind>,
    /// The zygote whose fork waits in it.
    zygote: Option<String>,
}

impl Key {
    /// How a kind without an interpreter is called.
    pub(crate) const BARE: &'static str = "bare";

    pub(crate) fn new(tenant: TenantId, jail: Arc<JailKind>, zygote: Option<&str>) -> Self {
        Self { tenant, jail, zygote: zygote.map(str::to_owned) }
    }

    /// The same without an interpreter.
    pub(crate) fn bare(&self) -> Self {
        Self { tenant: self.tenant, jail: Arc::clone(&self.jail), zygote: None }
    }

    /// A jail of this kind.
    pub(crate) fn jail(&self, name: String) -> JailSpec {
        self.jail.jail(name)
    }

    pub(crate) fn zygote(&self) -> Option<&str> {
        self.zygote.as_deref()
    }

    /// As metrics call it: there are few of these, however many keys there are.
    pub(crate) fn label(&self) -> &str {
        self.zygote.as_deref().unwrap_or(Self::BARE)
    }
}

impl Kind for Key {
    fn tenant(&self) -> TenantId {
        self.tenant
    }

    fn memory(&self) -> u64 {
        if self.zygote.is_some() { WITH_GUEST } else { EMPTY }
    }
}

#[cfg(test)]
mod tests {
    use sandstorm_provider::CreateOptions;
    use sandstorm_types::{ByteSize, SandboxSpec};

    use super::*;
    use crate::plan::Planner;

    fn key(spec: &SandboxSpec, options: &CreateOptions, tenant: u128, zygote: Option<&str>) -> Key {
        let jail = Planner::new(Vec::new(), true, false).kind(spec, options);
        Key::new(TenantId::from_bits(tenant), jail, zygote)
    }

    #[test]
    fn what_is_said_at_the_end_tells_no_two_apart() {
        let spec = SandboxSpec::default();
        let run = CreateOptions { ephemeral: true, ..CreateOptions::default() };
        let long = SandboxSpec {
            lifetime: sandstorm_types::Lifetime { after: std::time::Duration::from_secs(9), ..spec.lifetime },
            ..spec.clone()
        };
        assert_eq!(key(&spec, &run, 1, None), key(&long, &CreateOptions::default(), 1, None));
    }

    #[test]
    fn whatever_matters_does() {
        let spec = SandboxSpec::default();
        let plain = CreateOptions::default();
        let one = key(&spec, &plain, 1, None);
        let mut larger = spec.clone();
        larger.limits.memory = ByteSize::gib(3);
        assert_ne!(one, key(&larger, &plain, 1, None));
        assert_ne!(one, key(&spec, &plain, 2, None));
        assert_ne!(one, key(&spec, &plain, 1, Some("python")));
        assert_eq!(one, key(&spec, &plain, 1, Some("python")).bare());
        let mounts = vec![sandstorm_provider::HostMount { source: "/opt/a".into(), target: "/opt/a".into() }];
        assert_ne!(one, key(&spec, &CreateOptions { mounts, ..plain.clone() }, 1, None));
        let on_disk = SandboxSpec { space: sandstorm_types::Space::Disk, ..spec.clone() };
        assert_ne!(one, key(&on_disk, &plain, 1, None));
        let open = SandboxSpec { network: sandstorm_types::NetworkPolicy::Open, ..spec.clone() };
        assert_ne!(one, key(&open, &plain, 1, None));
    }
}
