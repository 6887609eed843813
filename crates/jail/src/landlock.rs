//! Landlock as the second wall: independent of mounts, it still says no where a mount mistake would expose a tree.
//!
//! The domain is entered once, by PID 1, so that everything in the sandbox shares it: processes of different execs may
//! signal and see each other, and nobody outside. A guest interpreter cannot inherit it: it enters one of its own, made
//! from the same rules.

use std::os::fd::OwnedFd;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope,
};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::spec::{ROOT_HOME, RootSpec, WRITABLE};
use crate::step::{Failed, Step};

/// The newest rights that this code knows; an older kernel gives what it has.
const KNOWN: ABI = ABI::V6;

/// Enters the domain. What comes back are its rules, for others that are to be under them; `None`: this kernel has no
/// Landlock.
///
/// `shared`: there will be several domains in the jail, whose processes must be able to signal each other. Signals and
/// abstract sockets do not leave the pid and network namespaces; the scopes would only bound them a second time.
pub(crate) fn enter(spec: &RootSpec, shared: bool) -> Result<Option<OwnedFd>, Failed> {
    let all = AccessFs::from_all(KNOWN);
    let read = AccessFs::from_read(KNOWN);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(|r| if shared { Ok(r) } else { r.scope(Scope::from_all(KNOWN)) })
        .and_then(Ruleset::create)
        .map_err(|_| Errno::NOSYS)
        .step("landlock rules")?;
    for path in readable(spec) {
        ruleset = allow(ruleset, path, read)?;
    }
    // Names of directories may be read everywhere; what is in them may not.
    ruleset = allow(ruleset, "/".as_ref(), AccessFs::ReadDir.into())?;
    // A program that writes below /proc could lower its oom_score_adj, so that the kernel ends others first. What the links in
    // /proc/self/fd lead to has the rights of its own place.
    ruleset = allow(ruleset, "/proc".as_ref(), read)?;
    // Programs write to terminals and to the null device.
    let devices = read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    ruleset = allow(ruleset, "/dev".as_ref(), devices)?;
    for path in WRITABLE.map(|(path, _, _)| path).into_iter().chain([ROOT_HOME]) {
        ruleset = allow(ruleset, path.as_ref(), all & !(AccessFs::MakeChar | AccessFs::MakeBlock))?;
    }
    let rules = ruleset.try_clone().step("landlock rules")?;
    let status = ruleset.restrict_self().map_err(|_| Errno::PERM).step("landlock domain")?;
    let rules = Option::<OwnedFd>::from(rules);
    if status.ruleset == RulesetStatus::NotEnforced {
        return Ok(None);
    }
    // A domain whose rules cannot be passed on is one that a guest could not be put under.
    rules.ok_or(Errno::BADF).map(Some).step("landlock rules")
}

/// What may be read. A rule holds for everything below, whatever is mounted there.
fn readable(spec: &RootSpec) -> Vec<&Path> {
    let mut all: Vec<&Path> = spec.trees.iter().map(|tree| tree.target.as_path()).collect();
    all.push(Path::new("/etc"));
    // Paths sort by their parts: what is below another comes behind it.
    all.sort_unstable();
    all.dedup_by(|path, before| path.starts_with(before));
    all
}

fn allow(
    ruleset: landlock::RulesetCreated,
    path: &Path,
    access: landlock::BitFlags<AccessFs>,
) -> Result<landlock::RulesetCreated, Failed> {
    let step = || format!("landlock rule for {}", path.display());
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).step_with(step)?;
    // Rights on directories do not apply to a file that is mounted by itself.
    let found = rustix::fs::fstat(&opened).step_with(step)?;
    let is_file = FileType::from_raw_mode(found.st_mode) != FileType::Directory;
    let access = if is_file { access & AccessFs::from_file(KNOWN) } else { access };
    ruleset.add_rule(PathBeneath::new(opened, access)).map_err(|_| Errno::INVAL).step_with(step)
}

/// The Landlock version of the running kernel; 0 is none.
pub fn kernel_abi() -> u32 {
    sandstorm_sys::process::landlock_abi().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Tree;
    use crate::template::{self, Additions};

    #[test]
    fn what_lies_below_another_needs_no_rule() {
        let mut spec = template::host(1 << 20, 100, Additions::default());
        spec.trees = ["/usr", "/etc/ssl/certs", "/usrx", "/usr/local/go", "/opt/layer"]
            .map(|target| Tree { source: "/usr/share".into(), target: target.into() })
            .into();
        let wanted = ["/etc", "/opt/layer", "/usr", "/usrx"];
        assert_eq!(readable(&spec), wanted.map(Path::new));
    }
}
