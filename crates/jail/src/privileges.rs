//! What PID 1 keeps of root's rights in its own user namespace: enough to become the payload and to signal it.

use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use crate::step::{Failed, Step};

/// To take the payload's ids, and to signal processes that have them.
const KEPT: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::KILL);

/// Empties the bounding set, locks the rules by which root gains rights, and keeps the three capabilities. Nothing is
/// executed on the way to the agent, so none of them has to be inheritable.
pub(crate) fn reduce() -> Result<(), Failed> {
    sandstorm_sys::process::empty_bounding_set().step("bounding set")?;
    let bits = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(bits).step("secure bits")?;
    let sets = CapabilitySets { effective: KEPT, permitted: KEPT, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).step("capabilities")?;
    rustix::thread::set_no_new_privs(true).step("no new privileges")
}
