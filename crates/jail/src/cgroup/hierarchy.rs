//! Which control group hierarchies this host has, and where.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What a jail needs controlled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Controller {
    Memory,
    Processes,
    Cpu,
    CpuAccounting,
    Freezer,
}

impl Controller {
    pub const ALL: [Self; 5] = [Self::Memory, Self::Processes, Self::Cpu, Self::CpuAccounting, Self::Freezer];

    /// The kernel's name on v1.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "pids",
            Self::Cpu => "cpu",
            Self::CpuAccounting => "cpuacct",
            Self::Freezer => "freezer",
        }
    }

    /// The kernel's name on v2, where accounting and freezing need no controller.
    fn unified_name(self) -> Option<&'static str> {
        match self {
            Self::Memory => Some("memory"),
            Self::Processes => Some("pids"),
            Self::Cpu => Some("cpu"),
            Self::CpuAccounting | Self::Freezer => None,
        }
    }
}

/// Which kind of hierarchy a host uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    None,
    V1,
    V2,
    Hybrid,
}

/// The mounted hierarchies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hierarchies {
    /// The unified tree, with or without controllers.
    pub unified: Option<PathBuf>,
    /// Controllers that the unified tree has.
    pub on_unified: Vec<Controller>,
    /// Controllers with a v1 mount. Several may share one mount.
    pub on_v1: BTreeMap<Controller, PathBuf>,
}

impl Hierarchies {
    /// Reads them from this process's mounts.
    pub fn detect() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Self::from_mountinfo(&mounts, |unified| {
            fs::read_to_string(unified.join("cgroup.controllers")).unwrap_or_default()
        })
    }

    fn from_mountinfo(mountinfo: &str, controllers_of: impl Fn(&Path) -> String) -> Self {
        let mut found = Self::default();
        for line in mountinfo.lines() {
            // `… mount-point options - type source super-options`; spaces in paths are octal escapes.
            let Some((front, back)) = line.split_once(" - ") else { continue };
            let (Some(point), Some(kind)) = (front.split(' ').nth(4), back.split(' ').next()) else {
                continue;
            };
            let options = back.split(' ').nth(2).unwrap_or_default();
            match kind {
                "cgroup2" if found.unified.is_none() => found.unified = Some(PathBuf::from(point)),
                "cgroup" => {
                    for controller in Controller::ALL {
                        if options.split(',').any(|option| option == controller.name()) {
                            found.on_v1.entry(controller).or_insert_with(|| PathBuf::from(point));
                        }
                    }
                }
                _ => {}
            }
        }
        if let Some(unified) = &found.unified {
            let names = controllers_of(unified);
            found.on_unified = Controller::ALL
                .into_iter()
                .filter(|c| c.unified_name().is_some_and(|name| names.split_whitespace().any(|n| n == name)))
                .collect();
        }
        found
    }

    pub fn version(&self) -> Version {
        match (self.unified.is_some(), self.on_v1.is_empty()) {
            (false, true) => Version::None,
            (false, false) => Version::V1,
            (true, true) => Version::V2,
            (true, false) => Version::Hybrid,
        }
    }

    /// Whether this user can make groups below `parent` anywhere.
    pub fn is_writable(&self, parent: &Path) -> bool {
        let writable = |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
        self.unified
            .iter()
            .chain(self.on_v1.values())
            .any(|mount| writable(&mount.join(parent)) || writable(mount))
    }

    /// Names to enable for children on the unified tree.
    pub(crate) fn to_enable(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.on_unified.iter().filter_map(|c| c.unified_name())
    }

    /// Whether a controller lives anywhere here.
    pub fn has(&self, controller: Controller) -> bool {
        let implied =
            matches!(controller, Controller::CpuAccounting | Controller::Freezer) && self.unified.is_some();
        self.on_v1.contains_key(&controller) || self.on_unified.contains(&controller) || implied
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "30 25 0:26 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n\
                      31 25 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      32 25 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      33 25 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n";
    const V2: &str = "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn a_v1_host_is_recognised_with_shared_mounts() {
        let found = Hierarchies::from_mountinfo(V1, |_| unreachable!("there is no unified tree"));
        assert_eq!(found.version(), Version::V1);
        assert_eq!(found.on_v1[&Controller::Cpu], found.on_v1[&Controller::CpuAccounting]);
        assert!(found.has(Controller::Processes) && !found.has(Controller::Freezer));
    }

    #[test]
    fn a_v2_host_is_recognised_by_its_controllers() {
        let found = Hierarchies::from_mountinfo(V2, |_| "cpuset cpu io memory pids".to_owned());
        assert_eq!(found.version(), Version::V2);
        assert!(Controller::ALL.into_iter().all(|c| found.has(c)));
        assert_eq!(found.to_enable().collect::<Vec<_>>(), ["memory", "pids", "cpu"]);
    }

    #[test]
    fn a_hybrid_host_keeps_controllers_on_v1() {
        let both = format!("{V1}40 25 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
        let found = Hierarchies::from_mountinfo(&both, |_| String::new());
        assert_eq!(found.version(), Version::Hybrid);
        assert!(
            found.on_unified.is_empty() && found.has(Controller::Memory) && found.has(Controller::Freezer)
        );
    }

    #[test]
    fn a_host_without_any_is_recognised() {
        assert_eq!(Hierarchies::from_mountinfo("", |_| String::new()).version(), Version::None);
    }
}
