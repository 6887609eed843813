//! The machine as the bench sees it: how busy it is, what its processes hold, what it is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;

/// Counts processor time of the whole machine, whoever used it: servers, daemons and helpers that outlive a command are
/// in it, wherever they were started. What the bench itself uses is taken out.
#[derive(Debug)]
pub(super) struct Clock {
    source: Source,
    /// Share of one processor that the machine uses when nothing is measured.
    pub(super) background: f64,
}

#[derive(Debug)]
enum Source {
    /// `cpuacct.usage` of the root group: nanoseconds.
    Accounting(PathBuf),
    /// `cpu.stat` of the root group: microseconds.
    Unified(PathBuf),
    /// `/proc/stat`: hundredths of a second, good only over many runs.
    Ticks,
}

/// A moment between which processor time is counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    at: Instant,
    busy: Duration,
    own: Duration,
}

/// What a quiet machine may use of one processor.
const QUIET: f64 = 0.15;
const LOOK_EVERY: Duration = Duration::from_millis(4);
const LONGEST_SETTLING: Duration = Duration::from_millis(100);

impl Clock {
    pub(super) fn find() -> anyhow::Result<Self> {
        let mut clock = Self { source: Source::find(), background: 0.0 };
        let before = clock.read()?;
        std::thread::sleep(Duration::from_secs(1));
        let used = clock.since(before)?;
        clock.background = used.as_secs_f64() / before.at.elapsed().as_secs_f64();
        Ok(clock)
    }

    /// Whether figures from here can be believed.
    pub(super) fn is_quiet(&self) -> bool {
        self.background <= QUIET
    }

    pub(super) fn describe(&self) -> &'static str {
        match self.source {
            Source::Accounting(_) => "cpuacct.usage of the root control group",
            Source::Unified(_) => "cpu.stat of the root control group",
            Source::Ticks => "/proc/stat, in hundredths of a second",
        }
    }

    pub(super) fn read(&self) -> anyhow::Result<Reading> {
        let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let own = Duration::try_from(own).context("the processor time of the bench cannot be read")?;
        Ok(Reading { at: Instant::now(), busy: self.source.busy()?, own })
    }

    /// Processor time that others than the bench used since then, less what the machine uses anyway.
    pub(super) fn since(&self, earlier: Reading) -> anyhow::Result<Duration> {
        let now = self.read()?;
        let used = now.busy.saturating_sub(earlier.busy).saturating_sub(now.own.saturating_sub(earlier.own));
        // What a busy machine did a while ago says nothing of what it does now.
        let others = if self.is_quiet() { self.background } else { 0.0 };
        Ok(used.saturating_sub((now.at - earlier.at).mul_f64(others)))
    }

    /// Waits until what was started has come to rest, so that the next case does not pay for this one. Says whether it
    /// did in time.
    pub(super) fn settle(&self) -> anyhow::Result<bool> {
        let began = Instant::now();
        while began.elapsed() < LONGEST_SETTLING {
            let before = self.read()?;
            std::thread::sleep(LOOK_EVERY);
            if self.since(before)?.as_secs_f64() < before.at.elapsed().as_secs_f64() * QUIET {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Source {
    fn find() -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mut unified = None;
        for line in mounts.lines() {
            let mut words = line.split(' ').skip(1);
            let (Some(point), Some(kind), Some(options)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let accounting = Path::new(point).join("cpuacct.usage");
            if kind == "cgroup" && options.split(',').any(|option| option == "cpuacct") && accounting.exists()
            {
                return Self::Accounting(accounting);
            }
            let stat = Path::new(point).join("cpu.stat");
            if kind == "cgroup2" && stat.exists() {
                unified = Some(Self::Unified(stat));
            }
        }
        unified.unwrap_or(Self::Ticks)
    }

    fn busy(&self) -> anyhow::Result<Duration> {
        let wrong = "the machine's processor time cannot be read";
        Ok(match self {
            Self::Accounting(path) => Duration::from_nanos(read(path)?.trim().parse().context(wrong)?),
            Self::Unified(path) => {
                let text = read(path)?;
                let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec ")).context(wrong)?;
                Duration::from_micros(usage.trim().parse().context(wrong)?)
            }
            Self::Ticks => {
                let text = read(Path::new("/proc/stat"))?;
                let words = text.lines().next().context(wrong)?.split_whitespace().skip(1);
                let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
                // user, nice, system, idle, iowait, irq, softirq
                let busy = [0, 1, 2, 5, 6].iter().filter_map(|place| ticks.get(*place)).sum::<u64>();
                Duration::from_millis(busy * 10)
            }
        })
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))
}

/// Every process of the machine.
fn processes() -> BTreeSet<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The processes that the bench started and those that they did, without the bench itself. Daemons and shims give themselves
/// to another parent, but all of them were told of the bench's folder.
pub(super) fn family(folder: &Path) -> BTreeSet<i32> {
    let folder = folder.as_os_str().as_encoded_bytes();
    let told = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.windows(folder.len()).any(|window| window == folder)
    };
    let bench = i32::try_from(std::process::id()).unwrap_or_default();
    let mut found = descendants(processes().into_iter().filter(told).chain([bench]).collect());
    found.remove(&bench);
    found
}

/// Some processes and all that descend from them.
fn descendants(mut found: BTreeSet<i32>) -> BTreeSet<i32> {
    loop {
        let parents = processes().into_iter().filter_map(|pid| Some((pid, parent(pid)?)));
        let more: BTreeSet<i32> = parents
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, _)| pid)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything; what follows the last bracket is state, then parent.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// Memory of processes in bytes, pages that they share counted once: each has its part of them. One that ended meanwhile
/// has none.
pub(super) fn proportional_memory(pids: &BTreeSet<i32>) -> u64 {
    let of_one = |pid: &i32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        kilobytes(&text, "Pss:")
    };
    pids.iter().filter_map(of_one).sum::<u64>() * 1024
}

/// A figure of `/proc/meminfo`, in bytes.
pub(super) fn memory_figure(name: &str) -> anyhow::Result<u64> {
    let text = read(Path::new("/proc/meminfo"))?;
    Ok(kilobytes(&text, name).with_context(|| format!("/proc/meminfo has no {name}"))? * 1024)
}

/// Memory of one process that is in the machine's, in bytes, shared pages counted whole.
pub(super) fn resident_memory(pid: i32) -> anyhow::Result<u64> {
    let text = read(Path::new(&format!("/proc/{pid}/status")))?;
    Ok(kilobytes(&text, "VmRSS:").context("a process without memory")? * 1024)
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim_start_matches(':').trim().strip_suffix(" kB")?.parse().ok()
}

/// What one has to know of a machine to judge figures from it.
pub(super) fn facts() -> Vec<(String, String)> {
    let field = |path: &str, key: &str, separator: char| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find_map(|line| {
            line.strip_prefix(key)?.split_once(separator).map(|(_, value)| value.to_owned())
        });
        line.map_or_else(|| "unknown".to_owned(), |value| value.trim().trim_matches('"').to_owned())
    };
    let kinds = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounted = |kind: &str| kinds.lines().any(|line| line.split(' ').nth(2) == Some(kind));
    let groups = match (mounted("cgroup"), mounted("cgroup2")) {
        (true, true) => "hybrid",
        (true, false) => "v1",
        (false, true) => "v2",
        (false, false) => "none",
    };
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let facts = [
        ("system", field("/etc/os-release", "PRETTY_NAME", '=')),
        ("kernel", kernel.trim().to_owned()),
        ("processor", field("/proc/cpuinfo", "model name", ':')),
        ("cores", cores.to_string()),
        ("memory", field("/proc/meminfo", "MemTotal", ':')),
        ("control groups", groups.to_owned()),
        ("user", if rustix::process::geteuid().is_root() { "root" } else { "an ordinary one" }.to_owned()),
    ];
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// How many tasks wanted a processor over the last minute.
pub(super) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_others_is_seen_and_our_own_is_not() {
        let clock = Clock { source: Source::find(), background: 0.0 };
        let before = clock.read().unwrap();
        // As long as it takes to get that much of a busy machine.
        let began = Instant::now();
        let after = loop {
            let now = clock.read().unwrap();
            if now.own - before.own >= Duration::from_millis(100) {
                break now;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "the bench's own work is not known");
        };
        // The two are read one after the other, so a little may be missing.
        let seen = (after.busy - before.busy) + Duration::from_millis(25);
        assert!(seen >= after.own - before.own, "the machine's work holds ours");
    }

    #[test]
    fn a_process_is_its_own_family_and_has_memory() {
        let own = i32::try_from(std::process::id()).unwrap();
        let family = descendants(BTreeSet::from([own]));
        assert!(family.contains(&own));
        assert!(!family.contains(&1));
        let memory = proportional_memory(&BTreeSet::from([own]));
        assert!(memory > 100_000 && memory <= resident_memory(own).unwrap() + (1 << 20), "{memory}");
        assert_eq!(proportional_memory(&BTreeSet::from([i32::MAX])), 0);
    }

    #[test]
    fn figures_are_read_with_and_without_their_colon() {
        let text = "Rss:  12 kB\nPss:       34 kB\nMemAvailable:   56 kB\n";
        assert_eq!(kilobytes(text, "Pss:"), Some(34));
        assert_eq!(kilobytes(text, "MemAvailable"), Some(56));
        assert_eq!(kilobytes(text, "Absent"), None);
    }
}
