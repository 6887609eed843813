//! Meters of groups that are plain folders.

use std::fs;
use std::os::fd::AsFd;

use tempfile::TempDir;

use super::*;
use crate::cgroup::Hierarchies;

fn v1(root: &TempDir) -> Meter {
    let home = |name: &str| {
        let dir = root.path().join(name).join("groups_1");
        fs::create_dir_all(&dir).unwrap();
        Some(Home { dir, on_v1: true })
    };
    fs::create_dir_all(root.path().join("unified/jail")).unwrap();
    let meter = Meter {
        own: root.path().join("unified/jail/cgroup.events"),
        memory: home("memory"),
        processes: home("pids"),
        cpu_time: home("cpuacct"),
        used_before: Duration::from_nanos(400),
    };
    let write = |file: &str, text: &str| fs::write(root.path().join(file), text).unwrap();
    write("unified/jail/cgroup.events", "populated 1\nfrozen 0\n");
    write("memory/groups_1/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
    write("memory/groups_1/memory.max_usage_in_bytes", "8192\n");
    write("memory/groups_1/memory.usage_in_bytes", "4096\n");
    write("pids/groups_1/pids.events", "max 2\n");
    write("pids/groups_1/pids.current", "5\n");
    write("cpuacct/groups_1/cpuacct.usage", "1000\n");
    meter
}

fn read(meter: &Meter, extent: Extent) -> Option<Counters> {
    meter.read(&Gauges::default(), fs::File::open("/").unwrap().as_fd(), extent)
}

#[test]
fn what_is_asked_for_is_read_and_counts_from_where_the_jail_began() {
    let root = tempfile::tempdir().unwrap();
    let meter = v1(&root);
    let all = read(&meter, Extent::Everything).unwrap();
    assert_eq!(all.cpu_time, Some(Duration::from_nanos(600)));
    assert_eq!((all.memory_kills, all.process_refusals), (Some(3), Some(2)));
    assert_eq!((all.peak_memory_bytes, all.memory_bytes), (Some(8192), Some(4096)));
    assert_eq!(all.processes, Some(5));
    assert!(all.disk_used_bytes.is_some());
    let verdict = read(&meter, Extent::Verdict).unwrap();
    assert_eq!((verdict.memory_kills, verdict.peak_memory_bytes), (Some(3), Some(8192)));
    assert_eq!((verdict.memory_bytes, verdict.processes), (None, None));
}

#[test]
fn a_group_that_may_be_another_jails_is_not_read_for_this_one() {
    let root = tempfile::tempdir().unwrap();
    let meter = v1(&root);
    fs::remove_dir_all(root.path().join("unified/jail")).unwrap();
    fs::create_dir(root.path().join("unified/next")).unwrap();
    assert_eq!(read(&meter, Extent::Verdict), None);
}

#[test]
fn what_was_opened_ahead_is_read_anew_each_time() {
    let root = tempfile::tempdir().unwrap();
    let meter = v1(&root);
    let gauges = meter.open(Gauges::default());
    let read = || meter.read(&gauges, fs::File::open("/").unwrap().as_fd(), Extent::Verdict).unwrap();
    assert_eq!(read().peak_memory_bytes, Some(8192));
    fs::write(root.path().join("memory/groups_1/memory.max_usage_in_bytes"), "12288\n").unwrap();
    // By another way than its path, since that leads somewhere else by now.
    fs::rename(root.path().join("memory/groups_1"), root.path().join("memory/groups_2")).unwrap();
    assert_eq!(read().peak_memory_bytes, Some(12_288));
}

/// Only a real group forgets its files while somebody holds them.
#[test]
fn a_group_that_is_gone_cannot_be_read_through_what_was_opened() {
    let Some(mount) = Hierarchies::detect().unified else { return };
    let group = mount.join(format!("sandstorm-meter-{}", std::process::id()));
    if fs::create_dir(&group).is_err() {
        eprintln!("skipped: this user makes no groups");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let meter = Meter { own: group.join("cgroup.events"), ..v1(&root) };
    let gauges = meter.open(Gauges::default());
    let read = || meter.read(&gauges, fs::File::open("/").unwrap().as_fd(), Extent::Verdict);
    let lived = read();
    fs::remove_dir(&group).unwrap();
    assert!(lived.is_some() && read().is_none());
    fs::create_dir(&group).unwrap();
    let named_alike = read();
    fs::remove_dir(&group).unwrap();
    assert_eq!(named_alike, None);
}

#[test]
fn half_a_reading_is_none() {
    for missing in ["memory/groups_1/memory.oom_control", "pids/groups_1/pids.events"] {
        let root = tempfile::tempdir().unwrap();
        let meter = v1(&root);
        fs::remove_file(root.path().join(missing)).unwrap();
        assert_eq!(read(&meter, Extent::Verdict), None, "{missing}");
    }
    let root = tempfile::tempdir().unwrap();
    let meter = v1(&root);
    fs::write(root.path().join("cpuacct/groups_1/cpuacct.usage"), "much").unwrap();
    assert_eq!(read(&meter, Extent::Verdict), None);
    // Not every kernel keeps the peak.
    let meter = v1(&root);
    fs::remove_file(root.path().join("memory/groups_1/memory.max_usage_in_bytes")).unwrap();
    assert_eq!(read(&meter, Extent::Verdict).unwrap().peak_memory_bytes, None);
}
