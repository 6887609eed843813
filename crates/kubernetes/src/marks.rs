//! What is written on a pod: whose it is, what it is called here, for whom it is, when it should be gone.
//!
//! The names lie in the domain that agent-sandbox lets users of its pools choose from.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use kube::api::ObjectMeta;
use sandstorm_types::{NetworkPolicy, SandboxId, SandboxSpec, TenantId};

use crate::config::Owner;

pub(crate) const OWNER: &str = "sandstorm.sandbox.users.io/owner";
pub(crate) const SANDBOX: &str = "sandstorm.sandbox.users.io/sandbox";
const TENANT: &str = "sandstorm.sandbox.users.io/tenant";
const EXPIRES: &str = "sandstorm.sandbox.users.io/expires";
pub(crate) const NETWORK: &str = "sandstorm.sandbox.users.io/network";
pub(crate) const MANAGED: (&str, &str) = ("app.kubernetes.io/managed-by", "sandstorm");
const SPEC: &str = "sandstorm.sandbox.users.io/spec";
const SYSTEM_CALLS: (&str, &str) = ("sandstorm.sandbox.users.io/system-calls", "strict");

/// The name of a sandbox's pod and claim.
pub(crate) fn name_of(id: SandboxId) -> String {
    format!("sbx-{}", id.bare())
}

/// What selects everything of an owner.
pub(crate) fn selector(owner: &Owner) -> String {
    format!("{OWNER}={owner}")
}

/// The value of the network label.
fn network(policy: &NetworkPolicy) -> &'static str {
    match policy {
        // A filter is refused before there is a pod; if one ever came here, its pod would be closed.
        NetworkPolicy::None | NetworkPolicy::Filter(_) => "none",
        NetworkPolicy::Open => "open",
        NetworkPolicy::Allow(_) => "allow",
    }
}

pub(crate) fn labels(
    owner: &Owner,
    id: SandboxId,
    tenant: TenantId,
    spec: &SandboxSpec,
    now: SystemTime,
) -> BTreeMap<String, String> {
    let expires =
        now.checked_add(spec.lifetime.after).and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    // Who the tenant is, is nobody's business there; that two sandboxes are of one is.
    let tenant = blake3::hash(&tenant.bits().to_be_bytes()).to_hex();
    [
        (OWNER, owner.as_str().to_owned()),
        (SANDBOX, id.bare()),
        (TENANT, tenant[..16].to_owned()),
        (EXPIRES, expires.map_or(0, |at| at.as_secs()).to_string()),
        (NETWORK, network(&spec.network).to_owned()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// What the sandbox was wanted to be, and which filter of system calls its programs get.
pub(crate) fn annotations(spec: &SandboxSpec, strict_filter: bool) -> BTreeMap<String, String> {
    let spec = serde_json::to_string(spec).unwrap_or_default();
    let filter = strict_filter.then(|| (SYSTEM_CALLS.0.to_owned(), SYSTEM_CALLS.1.to_owned()));
    [(SPEC.to_owned(), spec)].into_iter().chain(filter).collect()
}

/// Which sandbox of this owner it is.
pub(crate) fn id_of(owner: &Owner, meta: &ObjectMeta) -> Option<SandboxId> {
    let labels = meta.labels.as_ref()?;
    if labels.get(OWNER).map(String::as_str) != Some(owner.as_str()) {
        return None;
    }
    sandbox_of(meta)
}

/// Which sandbox it says that it is, whoever its owner is.
pub(crate) fn sandbox_of(meta: &ObjectMeta) -> Option<SandboxId> {
    SandboxId::from_bare(meta.labels.as_ref()?.get(SANDBOX)?).ok()
}

/// Whether a policy of its own goes with it.
pub(crate) fn has_list(meta: &ObjectMeta) -> bool {
    let label = meta.labels.as_ref().and_then(|labels| labels.get(NETWORK));
    label.is_some_and(|label| label == "allow")
}

/// What the sandbox was wanted to be. `None`: it says nothing that can be read.
pub(crate) fn spec_of(meta: &ObjectMeta) -> Option<SandboxSpec> {
    serde_json::from_str(meta.annotations.as_ref()?.get(SPEC)?).ok()
}

/// Whether programs of the pod get the strict filter. Its agent may outlive a change of the configuration, so the pod decides.
pub(crate) fn is_strict(meta: &ObjectMeta) -> bool {
    let (name, strict) = SYSTEM_CALLS;
    meta.annotations.as_ref().and_then(|all| all.get(name)).is_some_and(|word| word == strict)
}

pub(crate) fn expiry_of(meta: &ObjectMeta) -> Option<SystemTime> {
    let seconds = meta.labels.as_ref()?.get(EXPIRES)?.parse().ok().filter(|seconds| *seconds > 0)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(owner: &Owner, id: SandboxId) -> ObjectMeta {
        let (spec, now) = (SandboxSpec::default(), SystemTime::UNIX_EPOCH + Duration::from_secs(1000));
        ObjectMeta {
            labels: Some(labels(owner, id, TenantId::LOCAL, &spec, now)),
            annotations: Some(annotations(&spec, true)),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn what_is_written_can_be_read_by_its_owner_alone() {
        let (owner, id) = ("me".parse().unwrap(), SandboxId::random());
        let meta = meta(&owner, id);
        assert_eq!(id_of(&owner, &meta), Some(id));
        assert_eq!(id_of(&"another".parse().unwrap(), &meta), None);
        assert_eq!(spec_of(&meta), Some(SandboxSpec::default()));
        let standard = Some(annotations(&SandboxSpec::default(), false));
        assert!(is_strict(&meta) && !is_strict(&ObjectMeta { annotations: standard, ..meta.clone() }));
        assert_eq!(expiry_of(&meta), Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1300)));
    }

    #[test]
    fn labels_are_labels_of_kubernetes() {
        let meta = meta(&"m".repeat(32).parse().unwrap(), SandboxId::random());
        for (key, value) in meta.labels.unwrap() {
            let fine = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
            assert!(key.len() <= 63 && value.len() <= 63 && key.chars().all(fine), "{key}");
            assert!(value.chars().all(|c| fine(c) && c != '/'), "{value}");
        }
    }

    #[test]
    fn nonsense_is_nobodys_sandbox() {
        let owner: Owner = "me".parse().unwrap();
        let mut meta = meta(&owner, SandboxId::random());
        meta.labels.as_mut().unwrap().insert(SANDBOX.to_owned(), "nonsense".to_owned());
        meta.annotations = Some([(SPEC.to_owned(), "{".to_owned())].into());
        assert_eq!((id_of(&owner, &meta), spec_of(&meta)), (None, None));
    }
}
