//! Leaves on made-up hierarchies: plain folders take the same writes and give the same reads, so that what a host of
//! the other kind would be told can be checked on any.

use tempfile::TempDir;

use super::*;

const SPACE: u64 = 16 << 20;

fn limits() -> JailLimits {
    JailLimits {
        memory_bytes: 64 << 20,
        processes: 32,
        cpu_milli: 1500,
        cpu_time: Some(Duration::from_secs(1)),
        open_files: 100,
    }
}

fn unified(root: &TempDir) -> Hierarchies {
    Hierarchies {
        unified: Some(root.path().to_owned()),
        on_unified: vec![Controller::Memory, Controller::Processes, Controller::Cpu],
        ..Hierarchies::default()
    }
}

fn v1(root: &TempDir) -> Hierarchies {
    let mounts = [Controller::Memory, Controller::Processes, Controller::Cpu, Controller::CpuAccounting];
    let on_v1: BTreeMap<_, _> = mounts.into_iter().map(|c| (c, root.path().join(c.name()))).collect();
    for mount in on_v1.values() {
        fs::create_dir_all(mount).unwrap();
    }
    Hierarchies { on_v1, ..Hierarchies::default() }
}

fn create(hierarchies: &Hierarchies) -> Leaf {
    Leaf::create(hierarchies, Path::new("sandstorm/me"), "jail", &limits(), SPACE)
}

#[test]
fn a_unified_leaf_has_every_limit() {
    let root = tempfile::tempdir().unwrap();
    let leaf = create(&unified(&root));
    let read = |file: &str| fs::read_to_string(root.path().join("sandstorm/me/jail").join(file)).unwrap();
    assert_eq!(leaf.missing(), []);
    assert_eq!(read("memory.max"), (80 << 20).to_string(), "what is written is beside what programs have");
    assert_eq!(read("memory.swap.max"), "0");
    assert_eq!(read("pids.max"), "32");
    assert_eq!(read("cpu.max"), "150000 100000");
    assert_eq!(read("cgroup.max.descendants"), "0");
    for above in ["", "sandstorm", "sandstorm/me"] {
        let handed_down = root.path().join(above).join("cgroup.subtree_control");
        assert!(handed_down.exists(), "controllers are not handed down from /{above}");
    }
    assert!(leaf.birthplace().is_some() && leaf.entrances().unwrap().is_empty());
    for (preferred, weight) in [(true, "3200"), (false, "100")] {
        leaf.prefer(preferred);
        assert_eq!(read("cpu.weight"), weight);
    }
}

/// A limit on memory without one on swap is none.
#[test]
fn a_refused_limit_on_swap_is_a_missing_limit_on_memory() {
    for (on_v1, file) in [(false, "memory.swap.max"), (true, "memory.memsw.limit_in_bytes")] {
        let root = tempfile::tempdir().unwrap();
        // A directory in its place takes no value, as a kernel that refuses it takes none.
        fs::create_dir(root.path().join(file)).unwrap();
        let mut leaf = Leaf::nowhere(&limits(), SPACE);
        leaf.homes.insert(Controller::Memory, root.path().to_owned());
        if on_v1 {
            leaf.v1.insert(Controller::Memory, root.path().to_owned());
        }
        leaf.limit_memory(64 << 20);
        let [(limit, reason)] = leaf.missing() else { panic!("{file}: {:?}", leaf.missing()) };
        assert_eq!(*limit, "memory", "{file}");
        assert!(reason.contains(file) && reason.contains("swap is not limited"), "{reason}");
    }
}

#[test]
fn a_v1_leaf_has_every_limit_and_is_entered_by_descriptor() {
    let root = tempfile::tempdir().unwrap();
    let hierarchies = v1(&root);
    for mount in hierarchies.on_v1.values() {
        let dir = mount.join("sandstorm/me");
        fs::create_dir_all(&dir).unwrap();
    }
    let leaf = create(&hierarchies);
    let read = |file: &str| fs::read_to_string(root.path().join(file)).unwrap();
    assert_eq!(leaf.missing(), []);
    assert_eq!(read("memory/sandstorm/me/jail/memory.limit_in_bytes"), (80 << 20).to_string());
    assert_eq!(read("memory/sandstorm/me/jail/memory.memsw.limit_in_bytes"), (80 << 20).to_string());
    assert_eq!(read("pids/sandstorm/me/jail/pids.max"), "32");
    assert_eq!(read("cpu/sandstorm/me/jail/cpu.cfs_quota_us"), "150000");
    for (preferred, shares) in [(true, "32768"), (false, "1024")] {
        leaf.prefer(preferred);
        assert_eq!(read("cpu/sandstorm/me/jail/cpu.shares"), shares);
    }
    assert!(leaf.birthplace().is_none());
    for controller in ["memory", "pids", "cpu", "cpuacct"] {
        fs::write(root.path().join(controller).join("sandstorm/me/jail/tasks"), "").unwrap();
    }
    assert_eq!(leaf.entrances().unwrap().len(), 4);
}

#[test]
fn counters_are_read_where_they_are() {
    let root = tempfile::tempdir().unwrap();
    let leaf = create(&unified(&root));
    let dir = root.path().join("sandstorm/me/jail");
    fs::write(dir.join("cpu.stat"), "usage_usec 1500\nuser_usec 1000\n").unwrap();
    fs::write(dir.join("memory.peak"), "4096\n").unwrap();
    fs::write(dir.join("memory.events"), "low 0\noom 2\noom_kill 1\n").unwrap();
    fs::write(dir.join("pids.events"), "max 7\n").unwrap();
    let counted = leaf.counters();
    assert_eq!(counted.cpu_time, Some(Duration::from_micros(1500)));
    assert_eq!(
        (counted.peak_memory_bytes, counted.memory_kills, counted.process_refusals),
        (Some(4096), Some(1), Some(7))
    );
}

#[test]
fn a_limit_that_cannot_be_written_is_named() {
    let root = tempfile::tempdir().unwrap();
    let mut hierarchies = unified(&root);
    hierarchies.on_unified = vec![Controller::Memory];
    let leaf = create(&hierarchies);
    let names: Vec<&str> = leaf.missing().iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["processes", "cpus"]);
}

#[test]
fn a_jail_is_frozen_in_the_unified_tree_where_it_can_be() {
    let root = tempfile::tempdir().unwrap();
    let leaf = create(&unified(&root));
    let dir = root.path().join("sandstorm/me/jail");
    assert!(leaf.freeze(true).is_err(), "a kernel without the file froze something");
    fs::write(dir.join("cgroup.freeze"), "0").unwrap();
    fs::write(dir.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
    leaf.freeze(true).unwrap();
    assert_eq!(fs::read_to_string(dir.join("cgroup.freeze")).unwrap(), "1");
    assert!(!leaf.is_frozen(), "it stands still before the kernel says so");
    fs::write(dir.join("cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
    assert!(leaf.is_frozen());
    leaf.freeze(false).unwrap();
    assert_eq!(fs::read_to_string(dir.join("cgroup.freeze")).unwrap(), "0");
}

#[test]
fn a_jail_on_a_v1_host_is_frozen_there() {
    let root = tempfile::tempdir().unwrap();
    let mut hierarchies = v1(&root);
    assert!(create(&hierarchies).freeze(true).is_err(), "there is no freezer");
    let mount = root.path().join("freezer");
    fs::create_dir_all(&mount).unwrap();
    hierarchies.on_v1.insert(Controller::Freezer, mount.clone());
    let leaf = Leaf::create(&hierarchies, Path::new("sandstorm/me"), "other", &limits(), SPACE);
    let state = mount.join("sandstorm/me/other/freezer.state");
    leaf.freeze(true).unwrap();
    assert_eq!(fs::read_to_string(&state).unwrap(), "FROZEN");
    assert!(leaf.is_frozen());
    fs::write(&state, "FREEZING\n").unwrap();
    assert!(!leaf.is_frozen());
    leaf.freeze(false).unwrap();
    assert_eq!(fs::read_to_string(&state).unwrap(), "THAWED");
}

#[test]
fn the_kernel_is_asked_for_the_memory_of_a_frozen_jail() {
    use std::io::Write;

    let ask = |leaf: &Leaf| {
        let Reclaim { mut file, word } = leaf.reclaim().expect("there is a file for it");
        file.write_all(word.as_bytes()).unwrap();
    };
    let root = tempfile::tempdir().unwrap();
    let leaf = create(&unified(&root));
    let dir = root.path().join("sandstorm/me/jail");
    fs::write(dir.join("memory.current"), "12345\n").unwrap();
    assert!(leaf.reclaim().is_none(), "kernels before 5.19 have no such file");
    fs::write(dir.join("memory.reclaim"), "").unwrap();
    ask(&leaf);
    assert_eq!(fs::read_to_string(dir.join("memory.reclaim")).unwrap(), "12345");
    let swap = || fs::read_to_string(dir.join("memory.swap.max")).unwrap();
    assert_eq!(swap(), if host_swaps() { (64 << 20).to_string() } else { "0".to_owned() });
    leaf.may_swap.set(true);
    leaf.set_swap_limit(64 << 20).unwrap();
    fs::write(dir.join("cgroup.freeze"), "1").unwrap();
    leaf.freeze(false).unwrap();
    assert_eq!(swap(), "0", "what runs may not swap");

    let root = tempfile::tempdir().unwrap();
    let leaf = create(&v1(&root));
    let dir = root.path().join("memory/sandstorm/me/jail");
    fs::write(dir.join("memory.usage_in_bytes"), "12345\n").unwrap();
    assert!(leaf.reclaim().is_none());
    fs::write(dir.join("memory.force_empty"), "").unwrap();
    ask(&leaf);
    assert_eq!(fs::read_to_string(dir.join("memory.force_empty")).unwrap(), "0");
}

#[test]
fn a_jail_whose_limit_on_swap_cannot_be_set_back_stays_frozen() {
    let root = tempfile::tempdir().unwrap();
    let leaf = create(&unified(&root));
    let dir = root.path().join("sandstorm/me/jail");
    let (swap, freezer) = (dir.join("memory.swap.max"), dir.join("cgroup.freeze"));
    leaf.set_swap_limit(64 << 20).unwrap();
    leaf.may_swap.set(true);
    fs::write(&freezer, "1").unwrap();
    // Root writes to every file, but not to a folder.
    fs::remove_file(&swap).unwrap();
    fs::create_dir(&swap).unwrap();
    for _ in 0..2 {
        let error = leaf.freeze(false).unwrap_err().to_string();
        assert!(error.starts_with("memory.swap.max: "), "{error}");
        assert_eq!(fs::read_to_string(&freezer).unwrap(), "1", "it runs and may swap");
    }
    fs::remove_dir(&swap).unwrap();
    leaf.freeze(false).unwrap();
    let written = [swap, freezer].map(|file| fs::read_to_string(file).unwrap());
    assert_eq!(written, ["0", "0"]);
}

/// Both kinds at once, as where groups are used again.
fn hybrid(root: &TempDir) -> Hierarchies {
    let unified = root.path().join("unified");
    fs::create_dir_all(&unified).unwrap();
    Hierarchies { unified: Some(unified), ..v1(root) }
}

#[test]
fn no_process_is_in_a_freezer_that_is_not_needed() {
    let root = tempfile::tempdir().unwrap();
    let mut hierarchies = hybrid(&root);
    let mount = root.path().join("freezer");
    fs::create_dir_all(&mount).unwrap();
    hierarchies.on_v1.insert(Controller::Freezer, mount.clone());
    create(&hierarchies);
    let group = mount.join("sandstorm/me/jail");
    assert!(group.exists(), "the unified tree of this kernel freezes nobody");
    fs::remove_dir(&group).unwrap();
    let unified = root.path().join("unified/sandstorm/me");
    fs::write(unified.join("jail/cgroup.freeze"), "0").unwrap();
    let mut leaf = Leaf::nowhere(&limits(), SPACE);
    leaf.unified = Some((unified.join("jail"), open_directory(&unified).unwrap()));
    leaf.make_v1(&hierarchies, Path::new("sandstorm/me/jail"));
    assert!(!group.exists() && root.path().join("memory/sandstorm/me/jail").exists());
}

#[test]
fn a_meter_is_good_for_one_jail_only() {
    use std::os::fd::AsFd;

    use crate::cgroup::Extent;

    let root = tempfile::tempdir().unwrap();
    let (hierarchies, parent) = (hybrid(&root), Path::new("sandstorm/me"));
    let mut leaf = Leaf::create_lasting(&hierarchies, parent, ("groups_1", "first"), &limits(), SPACE);
    let write = |file: &str, text: &str| fs::write(root.path().join(file), text).unwrap();
    write("memory/sandstorm/me/groups_1/memory.oom_control", "oom_kill 0\n");
    write("memory/sandstorm/me/groups_1/memory.max_usage_in_bytes", "4096\n");
    write("pids/sandstorm/me/groups_1/pids.events", "max 0\n");
    write("pids/sandstorm/me/groups_1/pids.current", "0\n");
    write("cpuacct/sandstorm/me/groups_1/cpuacct.usage", "700\n");
    for controller in ["memory", "pids", "cpu", "cpuacct"] {
        write(&format!("{controller}/sandstorm/me/groups_1/cgroup.procs"), "");
    }
    write("unified/sandstorm/me/first/cgroup.events", "populated 1\n");
    let scratch = fs::File::open(root.path()).unwrap();
    let first = leaf.meter().unwrap();
    let used = |meter: &Meter| {
        meter.read(&Gauges::default(), scratch.as_fd(), Extent::Verdict).map(|read| read.cpu_time.unwrap())
    };
    assert_eq!(used(&first), Some(Duration::from_nanos(700)));
    // A folder is not removed with its files as a group is.
    for file in ["cgroup.max.descendants", "cgroup.events"] {
        fs::remove_file(root.path().join("unified/sandstorm/me/first").join(file)).unwrap();
    }
    assert!(leaf.rest());
    assert_eq!(used(&first), None, "it rests");
    assert!(leaf.wake(&hierarchies, parent, "second"));
    write("unified/sandstorm/me/second/cgroup.events", "populated 1\n");
    write("cpuacct/sandstorm/me/groups_1/cpuacct.usage", "900\n");
    assert_eq!(used(&first), None, "another jail has it");
    assert_eq!(used(&leaf.meter().unwrap()), Some(Duration::from_nanos(200)));
}

/// What a file system with nothing in it would say.
fn empty() -> File {
    File::open("/proc").unwrap()
}

#[test]
fn programs_have_what_is_not_in_files() {
    let root = tempfile::tempdir().unwrap();
    for (hierarchies, dir, [all, own]) in [
        (unified(&root), "sandstorm/me/jail", ["memory.current", "anon"]),
        (v1(&root), "memory/sandstorm/me/jail", ["memory.usage_in_bytes", "rss"]),
    ] {
        let leaf = create(&hierarchies);
        assert!(leaf.shares_memory());
        let dir = root.path().join(dir);
        let write = |now: u64, own_bytes: u64, shared: u64| {
            fs::write(dir.join(all), (now << 20).to_string()).unwrap();
            let stat = format!("cache 1\n{own}_huge 3\n{own} {}\nshmem {}\n", own_bytes << 20, shared << 20);
            fs::write(dir.join("memory.stat"), stat).unwrap();
        };
        let mib = || leaf.program_memory(empty().as_fd()).unwrap() >> 20;
        write(60, 1, 1);
        assert_eq!(mib(), 60, "below the limit nobody asks what it is");
        write(78, 40, 2);
        assert_eq!(mib(), 42, "the rest are files of the host");
        write(78, 66, 10);
        assert_eq!(mib(), 76, "what is shared and in no file counts");
    }
    let nothing = Leaf::create(&unified(&root), Path::new("sandstorm/me"), "bare", &limits(), 0);
    assert!(!nothing.shares_memory(), "the kernel's limit is that of programs");
}

#[test]
fn a_group_is_narrowed_to_what_it_uses_and_widened_again() {
    let root = tempfile::tempdir().unwrap();
    for (hierarchies, dir, all, limits) in [
        (unified(&root), "sandstorm/me/jail", "memory.current", &["memory.max"][..]),
        (
            v1(&root),
            "memory/sandstorm/me/jail",
            "memory.usage_in_bytes",
            &["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"][..],
        ),
    ] {
        let leaf = create(&hierarchies);
        let dir = root.path().join(dir);
        let read = || -> Vec<u64> {
            limits.iter().map(|file| fs::read_to_string(dir.join(file)).unwrap().parse().unwrap()).collect()
        };
        let whole = read();
        fs::write(dir.join(all), (70 << 20).to_string()).unwrap();
        leaf.narrow();
        assert!(read().iter().all(|most| (70 << 20..71 << 20).contains(most)), "{:?}", read());
        fs::write(dir.join(all), (90 << 20).to_string()).unwrap();
        leaf.narrow();
        assert!(read().iter().all(|most| *most < 71 << 20), "it grew by being narrowed: {:?}", read());
        leaf.widen();
        assert_eq!(read(), whole);
        leaf.narrow();
        assert_eq!(read(), whole, "never past what it may have");
        assert!(leaf.was_narrowed.get());
    }
}
