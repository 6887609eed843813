//! What a provider can do, as plain data, and why it cannot hold a given sandbox.

use serde::{Deserialize, Serialize};

use crate::{
    ByteSize, Enforcement, Isolation, LimitName, LimitSet, Limits, NetworkPolicy, SandboxSpec, Space,
    Template, User,
};

/// What a provider can do. [`Default`] is nothing: a provider states each thing that it can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Capabilities {
    /// The boundary that its sandboxes have.
    pub isolation: Isolation,

    /// Starts from the host's own toolchains.
    pub template_host: bool,
    /// Starts from an OCI image.
    pub template_image: bool,
    /// Starts from a snapshot of its own.
    pub template_snapshot: bool,

    /// Runs programs.
    pub exec: bool,
    /// Feeds a program's standard input after it has started.
    pub exec_stdin: bool,
    /// Runs programs on a terminal and resizes it.
    pub exec_tty: bool,
    /// Runs programs on when nobody listens.
    pub exec_background: bool,
    /// Lets a second listener read a program's output from any offset.
    pub exec_attach: bool,
    /// Sends signals other than kill.
    pub exec_signals: bool,
    /// Gives a program a byte channel of its own besides its standard streams.
    pub exec_channel: bool,
    /// Runs programs as root of the sandbox.
    pub exec_root: bool,
    /// Takes a program as language and code, and finds what it needs by itself.
    pub exec_code: bool,

    /// Shows trees of this machine in its sandboxes: toolchains and layers, and so programs by their paths here.
    pub host_trees: bool,

    /// Reads, writes, lists, moves and removes files.
    pub files: bool,
    /// Packs a folder into a tar archive and unpacks one.
    pub files_archive: bool,
    /// Finds files by name.
    pub files_search: bool,
    /// Reports changes of files as they happen.
    pub files_watch: bool,
    /// Keeps metadata with files.
    pub files_metadata: bool,
    /// Works on files as root of the sandbox.
    pub files_root: bool,

    /// Connects to ports inside a sandbox.
    pub connect: bool,
    /// Reports what a sandbox uses.
    pub usage: bool,
    /// Pauses and resumes sandboxes.
    pub pause: bool,
    /// Pauses sandboxes with their files only: every program in them ends.
    pub pause_files: bool,
    /// Saves the files of a sandbox.
    pub snapshot_files: bool,
    /// Saves the memory of a sandbox.
    pub snapshot_memory: bool,
    /// Makes sandboxes that go on from where a living one is, with its files and the memory of its interpreters.
    pub live_fork: bool,
    /// Programs of some interpreters begin in one that is warm already.
    pub warm_start: bool,

    /// Keeps sandboxes off the network.
    pub network_none: bool,
    /// Lets sandboxes reach only listed hosts.
    pub network_allow: bool,
    /// Lets sandboxes reach the public network.
    pub network_open: bool,

    /// Changes what a living sandbox may reach.
    pub network_change: bool,

    /// Makes the whole file system writable.
    pub writable_root: bool,
    /// Puts the writable space on a disk, so that it takes no memory.
    pub disk_space: bool,
    /// Has packages of a language at hand from the start.
    pub requirements: bool,
    /// Ends or pauses sandboxes by itself when their lifetime is over.
    pub lifetime: bool,

    /// Limits that it enforces.
    pub limits: LimitSet,
    /// Most memory of one sandbox; `None` is no limit of its own.
    pub max_memory: Option<ByteSize>,
    /// Most thousandths of a CPU of one sandbox.
    pub max_milli_cpus: Option<u32>,
    /// Most disk of one sandbox.
    pub max_disk: Option<ByteSize>,
    /// Longest life of one sandbox in seconds.
    pub max_lifetime_seconds: Option<u64>,
}

/// One reason why a provider cannot hold a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmet {
    /// The field of [`Capabilities`], or the limit, that is lacking.
    pub feature: String,
    pub wanted: String,
    pub offered: String,
    pub why: String,
}

impl Unmet {
    /// The feature of a provider that is not reached yet: all else that it lacks may be there then.
    pub const CONNECTION: &str = "connection";

    pub fn new(
        feature: impl Into<String>,
        wanted: impl Into<String>,
        offered: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self { feature: feature.into(), wanted: wanted.into(), offered: offered.into(), why: why.into() }
    }
}

impl Capabilities {
    /// Whether it has what a field of this name says; `None`: there is no such field.
    pub fn has(&self, name: &str) -> Option<bool> {
        // The names are those of the fields, so a new field needs no list here.
        serde_json::to_value(self).ok()?.get(name)?.as_bool()
    }

    /// Everything that it has, by the names of the fields.
    pub fn names(&self) -> Vec<String> {
        let fields = serde_json::to_value(self).unwrap_or_default();
        let held = |(name, value): (&String, &serde_json::Value)| (value == true).then(|| name.clone());
        fields.as_object().into_iter().flatten().filter_map(held).collect()
    }

    /// Every reason why a sandbox of `spec` cannot be held, judged by this data alone.
    pub fn unmet(&self, spec: &SandboxSpec) -> Vec<Unmet> {
        let mut unmet = Vec::new();
        if spec.isolation > self.isolation {
            let (wanted, offered) =
                (format!("{:?} or more", spec.isolation), format!("{:?}", self.isolation));
            unmet.push(Unmet::new(
                "isolation",
                wanted,
                offered,
                "the boundary is weaker than the least one wanted",
            ));
        }
        let mut need = |wanted: bool, have: bool, feature: &str, what: &str| {
            if wanted && !have {
                unmet.push(Unmet::new(feature, "yes", "no", format!("this provider cannot {what}")));
            }
        };
        let (template, network) = (&spec.template, &spec.network);
        need(
            *template == Template::Host,
            self.template_host,
            "template_host",
            "start from the host's toolchains",
        );
        need(
            matches!(template, Template::Image(_)),
            self.template_image,
            "template_image",
            "start from an image",
        );
        need(
            matches!(template, Template::Snapshot(_)),
            self.template_snapshot,
            "template_snapshot",
            "start from a snapshot",
        );
        need(
            *network == NetworkPolicy::None,
            self.network_none,
            "network_none",
            "keep a sandbox off the network",
        );
        need(
            matches!(network, NetworkPolicy::Allow(_) | NetworkPolicy::Filter(_)),
            self.network_allow,
            "network_allow",
            "keep a sandbox to a list of hosts",
        );
        need(
            matches!(network, NetworkPolicy::Open | NetworkPolicy::Filter(_)),
            self.network_open,
            "network_open",
            "give a sandbox the public network",
        );
        need(spec.user == User::Root, self.exec_root, "exec_root", "run programs as root of the sandbox");
        need(spec.space == Space::Disk, self.disk_space, "disk_space", "put the writable space on a disk");
        need(spec.writable_root, self.writable_root, "writable_root", "make the whole file system writable");
        need(
            !spec.requirements.is_empty(),
            self.requirements,
            "requirements",
            "have packages at hand from the start",
        );
        if spec.enforcement == Enforcement::Strict {
            unmet.extend(self.unenforced(&spec.limits));
        }
        unmet.extend(self.beyond_size(spec));
        unmet
    }

    fn unenforced(&self, limits: &Limits) -> impl Iterator<Item = Unmet> {
        let (cpu_time, enforced) = (limits.cpu_time, self.limits);
        let asked = move |name: &LimitName| *name != LimitName::CpuTime || cpu_time.is_some();
        LimitName::ALL.into_iter().filter(asked).filter(move |name| !enforced.contains(*name)).map(|name| {
            Unmet::new(
                name.as_str(),
                "enforced",
                "not enforced",
                format!("this provider cannot limit {name}"),
            )
        })
    }

    fn beyond_size(&self, spec: &SandboxSpec) -> Vec<Unmet> {
        let why = "the sandbox is larger than this provider makes";
        let mut unmet = Vec::new();
        let mut at_most = |feature: &str, wanted: u64, most: Option<u64>, show: &dyn Fn(u64) -> String| {
            if let Some(most) = most.filter(|most| wanted > *most) {
                unmet.push(Unmet::new(feature, show(wanted), format!("at most {}", show(most)), why));
            }
        };
        let bytes = |bytes: u64| ByteSize::bytes(bytes).to_string();
        let limits = &spec.limits;
        at_most("max_memory", limits.memory.as_u64(), self.max_memory.map(ByteSize::as_u64), &bytes);
        at_most("max_disk", limits.disk.as_u64(), self.max_disk.map(ByteSize::as_u64), &bytes);
        let cpus = |milli: u64| format!("{milli}m");
        at_most("max_milli_cpus", limits.cpus.milli().into(), self.max_milli_cpus.map(u64::from), &cpus);
        let seconds = |seconds: u64| format!("{seconds}s");
        at_most("max_lifetime_seconds", spec.lifetime.after.as_secs(), self.max_lifetime_seconds, &seconds);
        unmet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MilliCpus;

    fn able() -> Capabilities {
        Capabilities {
            isolation: Isolation::Container,
            template_host: true,
            network_none: true,
            limits: LimitSet::all(),
            ..Capabilities::default()
        }
    }

    fn features(capabilities: &Capabilities, spec: &SandboxSpec) -> Vec<String> {
        capabilities.unmet(spec).into_iter().map(|unmet| unmet.feature).collect()
    }

    #[test]
    fn enough_is_enough() {
        assert_eq!(able().unmet(&SandboxSpec::default()), []);
    }

    #[test]
    fn every_reason_is_given() {
        let spec = SandboxSpec {
            isolation: Isolation::MicroVm,
            template: Template::Image("debian".into()),
            network: NetworkPolicy::Open,
            user: User::Root,
            writable_root: true,
            space: Space::Disk,
            ..SandboxSpec::default()
        };
        let wanted =
            ["isolation", "template_image", "network_open", "exec_root", "disk_space", "writable_root"];
        assert_eq!(features(&able(), &spec), wanted);
    }

    #[test]
    fn unenforced_limits_refuse_only_when_strict() {
        let weak = Capabilities { limits: LimitSet::EMPTY.with(LimitName::Wall), ..able() };
        let strict = SandboxSpec::default();
        assert_eq!(
            features(&weak, &strict),
            ["cpus", "memory", "processes", "open_files", "disk", "inodes", "output"]
        );
        let relaxed = SandboxSpec { enforcement: Enforcement::BestEffort, ..strict };
        assert_eq!(weak.unmet(&relaxed), []);
    }

    #[test]
    fn sizes_are_compared() {
        let small =
            Capabilities { max_memory: Some(ByteSize::mib(256)), max_milli_cpus: Some(500), ..able() };
        let unmet = small.unmet(&SandboxSpec::default());
        assert_eq!(unmet[0], Unmet::new("max_memory", "512MiB", "at most 256MiB", &unmet[0].why[..]));
        assert_eq!(unmet[1].feature, "max_milli_cpus");
        let mut spec = SandboxSpec::default();
        spec.limits.memory = ByteSize::mib(256);
        spec.limits.cpus = MilliCpus::new(500);
        assert_eq!(small.unmet(&spec), []);
    }
}
