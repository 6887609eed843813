//! What each rule is there to refuse, asked of the compiled programs.

use super::super::{Action, Arch, Profile};
use super::{Call, answer, every, number, program, run};

const ALLOW: u32 = Action::Allow.code();
const KILL: u32 = Action::KillProcess.code();
const EPERM: u32 = Action::Errno(1).code();
const EINVAL: u32 = Action::Errno(22).code();
const ENOSYS: u32 = Action::Errno(38).code();
const EPROTONOSUPPORT: u32 = Action::Errno(93).code();
const ESOCKTNOSUPPORT: u32 = Action::Errno(94).code();
const EAFNOSUPPORT: u32 = Action::Errno(97).code();

/// Upper halves that a caller may leave in a register; none may change an answer.
const HIGH_HALVES: [u64; 4] = [0, 1 << 32, 1 << 63, !0 << 32];

/// The same answer in all profiles, on both architectures, whatever stands in the upper halves.
#[track_caller]
fn expect(name: &str, arguments: &[u64], expected: u32) {
    for (profile, _) in every() {
        expect_from(profile, name, arguments, expected);
    }
}

#[track_caller]
fn expect_from(profile: Profile, name: &str, arguments: &[u64], expected: u32) {
    for arch in Arch::ALL {
        // The older calls do not exist on aarch64.
        let Some(number) = arch.number(name) else {
            assert_eq!(arch, Arch::Aarch64, "{name}");
            continue;
        };
        for high in HIGH_HALVES {
            let mut list = [high; 6];
            for (slot, argument) in list.iter_mut().zip(arguments) {
                *slot |= argument;
            }
            let result = answer(profile, arch, number, list);
            assert_eq!(
                result,
                expected,
                "{} {name} {list:x?} on {}: {result:#x}",
                profile.name(),
                arch.name()
            );
        }
    }
}

#[test]
fn denied_calls_by_name() {
    let eperm = "unshare setns mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig
        fsmount fspick mount_setattr init_module finit_module delete_module kexec_load kexec_file_load bpf ptrace
        process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd perf_event_open lookup_dcookie
        open_by_handle_at name_to_handle_at fanotify_init fanotify_mark reboot swapon swapoff acct quotactl
        quotactl_fd syslog settimeofday clock_settime clock_adjtime adjtimex sethostname setdomainname iopl ioperm
        vhangup nfsservctl sysfs ustat uselib _sysctl mbind set_mempolicy set_mempolicy_home_node migrate_pages
        move_pages lsm_set_self_attr lsm_get_self_attr lsm_list_modules process_mrelease";
    let enosys =
        "clone3 userfaultfd io_uring_setup io_uring_enter io_uring_register remap_file_pages modify_ldt
        memfd_secret keyctl add_key request_key";
    for (names, expected) in [(eperm, EPERM), (enosys, ENOSYS)] {
        for name in names.split_ascii_whitespace() {
            expect(name, &[], expected);
            expect(name, &[!0; 6], expected);
        }
    }
    for name in ["create_module", "get_kernel_syms", "query_module"] {
        expect(name, &[], KILL);
    }
}

#[test]
fn strict_denies_covert_channels() {
    let denied = ["flock", "mincore", "cachestat", "statmount", "listmount", "sync", "syncfs"];
    let commands = [6, 7, 37, 38, 1024, 1026];
    for name in denied {
        expect_from(Profile::PayloadStrict, name, &[], EPERM);
        expect_from(Profile::Payload, name, &[], ALLOW);
        expect_from(Profile::Agent, name, &[], ALLOW);
    }
    for command in commands {
        expect_from(Profile::PayloadStrict, "fcntl", &[3, command], EPERM);
        expect_from(Profile::Payload, "fcntl", &[3, command], ALLOW);
    }
    // Duplicating, flags, reading a lock, pipe size, seals.
    for command in [0, 1, 2, 3, 4, 5, 36, 1025, 1030, 1031, 1033] {
        expect_from(Profile::PayloadStrict, "fcntl", &[3, command], ALLOW);
    }
}

#[test]
fn other_architectures_are_killed() {
    // i386 (`int 0x80`), arm, big-endian aarch64, riscv64, and nothing at all.
    let foreign = [0x4000_0003, 0x4000_0028, 0x8000_00B7, 0xC000_00F3, 0];
    for (profile, arch) in every() {
        let other = if arch == Arch::X86_64 { Arch::Aarch64 } else { Arch::X86_64 };
        for audit in foreign.into_iter().chain([other.audit()]) {
            for number in [0, 1, 20, 39, 172, 435, 0x4000_0001, u32::MAX] {
                let call = Call { number, audit, arguments: [0; 6] };
                assert_eq!(run(program(profile, arch).instructions(), &call).0, KILL, "{audit:#x} {number}");
            }
        }
    }
}

#[test]
fn x32_and_unknown_numbers_do_not_exist() {
    for (profile, arch) in every() {
        let known = arch.syscalls().iter().map(|(_, number)| number | 0x4000_0000);
        let newer = 470..1024;
        // The x32 calls of their own, the ends of the ranges, and the number of a call that a tracer skipped.
        let others =
            (0x4000_0200..0x4000_0230).chain([0x3FFF_FFFF, 0x4000_0000, 0x7FFF_FFFF, 0x8000_0000, u32::MAX]);
        for number in known.chain(newer).chain(others) {
            assert_eq!(answer(profile, arch, number, [0; 6]), ENOSYS, "{number:#x} on {}", arch.name());
        }
    }
    assert_eq!(answer(Profile::Payload, Arch::X86_64, 400, [0; 6]), ENOSYS);
    assert_eq!(answer(Profile::Payload, Arch::Aarch64, 244, [0; 6]), ENOSYS);
}

#[test]
fn clone_makes_no_namespace() {
    let threads = 0x003D_0F00;
    let process_with_pidfd = 0x0120_1011;
    expect("clone", &[threads], ALLOW);
    expect("clone", &[process_with_pidfd], ALLOW);
    // SIGCHLD, vfork and the highest signal.
    expect("clone", &[17], ALLOW);
    expect("clone", &[0x4111], ALLOW);
    expect("clone", &[64], ALLOW);
    // NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, and NEWTIME where it would be a signal.
    for shift in [17, 25, 26, 27, 28, 29, 30, 7] {
        expect("clone", &[1 << shift], EPERM);
        expect("clone", &[threads | 1 << shift], EPERM);
    }
}

#[test]
fn clone_makes_nobody_elses_child() {
    const PARENT: u64 = 0x8000;
    for flags in [PARENT, PARENT | 17, PARENT | 0x4111] {
        expect("clone", &[flags], EPERM);
    }
}

#[test]
fn socket_families_and_types() {
    const FLAGS: u64 = 0o2_004_000;
    for call in ["socket", "socketpair"] {
        for flags in [0, FLAGS] {
            for kind in [1, 2, 5] {
                expect(call, &[1, kind | flags, 0], ALLOW);
            }
            for family in [2, 10] {
                for (kind, protocol) in [(1, 0), (1, 6), (2, 0), (2, 17)] {
                    expect(call, &[family, kind | flags, protocol], ALLOW);
                }
                // SCTP, UDP-Lite, ICMP, multipath TCP.
                for protocol in [132, 136, 1, 262] {
                    expect(call, &[family, 1 | flags, protocol], EPROTONOSUPPORT);
                }
                expect(call, &[family, 5 | flags, 132], ESOCKTNOSUPPORT);
            }
            for family in [1, 2, 10] {
                for kind in [3, 10] {
                    expect(call, &[family, kind | flags, 0], EPERM);
                    expect(call, &[family, kind | flags, 255], EPERM);
                }
            }
            for kind in [2, 3] {
                expect(call, &[16, kind | flags, 0], ALLOW);
                for protocol in 1..32 {
                    expect(call, &[16, kind | flags, protocol], EAFNOSUPPORT);
                }
            }
            for family in (0..=64).filter(|family| ![1, 2, 10, 16].contains(family)).chain([255, 0xFFFF_FFFF])
            {
                for kind in [1, 2, 3, 5, 10] {
                    expect(call, &[family, kind | flags, 0], EAFNOSUPPORT);
                }
            }
        }
    }
}

#[test]
fn terminals_and_freezing() {
    for request in [0x5412, 0x541C, 0x5423, 0x541D, 0xC004_5877, 0xC004_5878] {
        expect("ioctl", &[0, request], EPERM);
    }
    // TCGETS, TIOCGWINSZ, TIOCSCTTY, TIOCSPTLCK, FIONREAD, FIOCLEX, FICLONE.
    for request in [0x5401, 0x5413, 0x540E, 0x4004_5431, 0x541B, 0x5451, 0x4004_9409] {
        expect("ioctl", &[0, request], ALLOW);
    }
}

#[test]
fn prctl_options() {
    // SET_MM, SET_PTRACER, SCHED_CORE, SET_SPECULATION_CTRL, SET_MEMORY_MERGE.
    for option in [35, 0x5961_6D61, 62, 53, 67] {
        expect("prctl", &[option], EPERM);
    }
    // SET_NAME, SET_NO_NEW_PRIVS, SET_PDEATHSIG, SET_VMA, CAPBSET_READ.
    for option in [15, 38, 1, 0x5356_4D41, 23] {
        expect("prctl", &[option], ALLOW);
    }
    for option in [0, 77, 78, 79, 1000, 0xFFFF_FFFF] {
        expect("prctl", &[option], EINVAL);
    }
    let dumpable = 4;
    expect_from(Profile::Payload, "prctl", &[dumpable], ALLOW);
    expect_from(Profile::PayloadStrict, "prctl", &[dumpable], EPERM);
    expect_from(Profile::Agent, "prctl", &[dumpable], ALLOW);
    // CAPBSET_DROP, SET_SECUREBITS.
    for option in [24, 28] {
        expect_from(Profile::Payload, "prctl", &[option], EPERM);
        expect_from(Profile::PayloadStrict, "prctl", &[option], EPERM);
        expect_from(Profile::Agent, "prctl", &[option], ALLOW);
    }
}

#[test]
fn personality_keeps_randomisation() {
    for value in [0, 8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF] {
        expect("personality", &[value], ALLOW);
    }
    // ADDR_NO_RANDOMIZE, alone and with others, READ_IMPLIES_EXEC, MMAP_PAGE_ZERO.
    for value in [0x004_0000, 0x006_0008, 0x040_0000, 0x010_0000, 1, 0xFFFF_FFFE] {
        expect("personality", &[value], EPERM);
    }
}

#[test]
fn filters_without_a_listener() {
    for flags in [0, 1, 2, 3, 4, 16, 33] {
        expect("seccomp", &[1, flags], ALLOW);
        expect("seccomp", &[1, flags | 8], EPERM);
    }
}

#[test]
fn devices_and_merged_pages() {
    let (fifo, socket, file, character, block) = (0x1000, 0xC000, 0x8000, 0x2000, 0x6000);
    for kind in [fifo, socket, file, 0] {
        expect("mknod", &[0, kind | 0o644], ALLOW);
        expect("mknodat", &[0, 0, kind | 0o644], ALLOW);
    }
    for kind in [character, block] {
        expect("mknod", &[0, kind | 0o666], EPERM);
        expect("mknodat", &[0, 0, kind | 0o666], EPERM);
        // The kernel takes the mode in 16 bits.
        expect("mknod", &[0, kind | 0x1_0000], EPERM);
    }
    expect("madvise", &[0, 4096, 12], EINVAL);
    // DONTNEED, FREE, HUGEPAGE, DONTDUMP, POPULATE_WRITE.
    for advice in [4, 8, 14, 16, 23] {
        expect("madvise", &[0, 4096, advice], ALLOW);
    }
}

/// What runtimes and compilers were seen to need.
#[test]
fn runtimes_get_their_calls() {
    let needed =
        "rseq membarrier pidfd_open pidfd_send_signal sched_setaffinity sched_getaffinity mlock memfd_create
        set_robust_list statx faccessat2 close_range copy_file_range landlock_create_ruleset futex_waitv
        epoll_pwait2 execve execveat wait4 waitid getrandom openat openat2 prlimit64 inotify_init1 eventfd2
        timerfd_create signalfd4 sendfile splice shmget mq_open setresuid getdents64 renameat2 utimensat";
    for name in needed.split_ascii_whitespace() {
        expect(name, &[], ALLOW);
        for arch in Arch::ALL {
            number(arch, name);
        }
    }
}
