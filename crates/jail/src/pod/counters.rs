//! What the kernel counted for the container that this process is in, as the container sees it.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Where a container finds its own group: the unified tree, or one folder for each controller.
const GROUPS: &str = "/sys/fs/cgroup";

/// One line for each number that can be had.
pub(super) fn tell(scratch: &Path, out: &mut impl Write) -> io::Result<()> {
    let groups = Path::new(GROUPS);
    let read = if groups.join("memory.events").exists() { unified(groups) } else { separate(groups) };
    for (name, number) in read.into_iter().chain(usage(scratch)) {
        if let Some(number) = number {
            writeln!(out, "{name} {number}")?;
        }
    }
    out.flush()
}

type Reading = (&'static str, Option<u64>);

fn unified(groups: &Path) -> Vec<Reading> {
    vec![
        ("memory_kills", field(&groups.join("memory.events"), "oom_kill")),
        ("memory", number(&groups.join("memory.current"))),
        ("peak_memory", number(&groups.join("memory.peak"))),
        ("processes", number(&groups.join("pids.current"))),
        ("cpu_microseconds", field(&groups.join("cpu.stat"), "usage_usec")),
    ]
}

fn separate(groups: &Path) -> Vec<Reading> {
    let memory = groups.join("memory");
    let cpu =
        ["cpuacct", "cpu,cpuacct"].iter().find_map(|dir| number(&groups.join(dir).join("cpuacct.usage")));
    vec![
        ("memory_kills", field(&memory.join("memory.oom_control"), "oom_kill")),
        ("memory", number(&memory.join("memory.usage_in_bytes"))),
        ("peak_memory", number(&memory.join("memory.max_usage_in_bytes"))),
        ("processes", number(&groups.join("pids/pids.current"))),
        ("cpu_microseconds", cpu.map(|nanoseconds| nanoseconds / 1000)),
    ]
}

fn usage(scratch: &Path) -> Vec<Reading> {
    let Ok(stat) = rustix::fs::statvfs(scratch) else { return Vec::new() };
    let used = stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize);
    vec![("disk", Some(used)), ("inodes", Some(stat.f_files.saturating_sub(stat.f_ffree)))]
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number behind a word at the beginning of a line.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines()
        .find_map(|line| line.split_once(' ').filter(|(word, _)| *word == name)?.1.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_groups_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("memory.events", "low 0\noom 3\noom_kill 2\n");
        write("cpu.stat", "usage_usec 17\n");
        write("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
        write("cpu,cpuacct/cpuacct.usage", "9000\n");
        let of = |read: Vec<Reading>, name| read.into_iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!(of(unified(dir.path()), "memory_kills"), Some(2));
        assert_eq!(of(unified(dir.path()), "cpu_microseconds"), Some(17));
        assert_eq!(of(unified(dir.path()), "memory"), None);
        assert_eq!(of(separate(dir.path()), "memory_kills"), Some(5));
        assert_eq!(of(separate(dir.path()), "cpu_microseconds"), Some(9));
    }
}
