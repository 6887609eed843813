//! The table is complete, the compiled programs agree with it, and each rule refuses what it is there for.

mod golden;
mod refusals;

use std::sync::LazyLock;

use proptest::prelude::*;

use super::compile::{JUMP, JUMP_EQUAL, JUMP_GREATER_EQUAL, RETURN};
use super::interpret::{Call, run};
use super::profile::GROUPS;
use super::rule::{Rule, Switch};
use super::{Action, Arch, Profile, Program, agent, compile, payload};

fn program(profile: Profile, arch: Arch) -> &'static Program {
    static PROGRAMS: LazyLock<Vec<Program>> = LazyLock::new(|| {
        Arch::ALL
            .into_iter()
            .flat_map(|arch| [payload(arch, false), payload(arch, true), agent(arch)])
            .collect()
    });
    let found = PROGRAMS.iter().find(|program| program.profile() == profile && program.arch() == arch);
    found.expect("every profile has a public function")
}

fn every() -> impl Iterator<Item = (Profile, Arch)> {
    Profile::ALL.into_iter().flat_map(|profile| Arch::ALL.map(|arch| (profile, arch)))
}

/// The answer of the compiled program.
fn answer(profile: Profile, arch: Arch, number: u32, arguments: [u64; 6]) -> u32 {
    let call = Call { number, audit: arch.audit(), arguments };
    run(program(profile, arch).instructions(), &call).0
}

fn number(arch: Arch, name: &str) -> u32 {
    arch.number(name).unwrap_or_else(|| panic!("{name} is not in the table of {}", arch.name()))
}

#[test]
fn every_call_stands_in_exactly_one_group() {
    for arch in Arch::ALL {
        for (name, _) in arch.syscalls() {
            let groups: Vec<_> = GROUPS
                .iter()
                .filter(|group| group.calls.split_ascii_whitespace().any(|call| call == *name))
                .map(|group| group.name)
                .collect();
            assert_eq!(groups.len(), 1, "{name} on {} stands in {groups:?}", arch.name());
        }
    }
}

#[test]
fn groups_name_only_known_calls() {
    for group in GROUPS {
        for call in group.calls.split_ascii_whitespace() {
            let known = Arch::ALL.iter().any(|arch| arch.number(call).is_some());
            assert!(known, "{call} of group {} exists on no architecture", group.name);
        }
    }
}

#[test]
fn tables_are_in_order_and_end_with_linux_6_18() {
    for arch in Arch::ALL {
        assert!(arch.syscalls().is_sorted_by(|(_, before), (_, after)| before < after), "{}", arch.name());
        assert_eq!(arch.syscalls().last(), Some(&("file_setattr", 469)));
    }
    assert_eq!(Arch::X86_64.number("uprobe"), Some(336));
}

macro_rules! same_as_libc {
    ($($call:ident)*) => {
        [$((&stringify!($call)[4..], u32::try_from(libc::$call).unwrap())),*]
    };
}

#[test]
fn numbers_are_those_of_libc() {
    let sample = same_as_libc!(
        SYS_read SYS_write SYS_close SYS_fstat SYS_lseek SYS_mmap SYS_mprotect SYS_munmap SYS_brk SYS_rt_sigaction
        SYS_rt_sigprocmask SYS_rt_sigreturn SYS_ioctl SYS_pread64 SYS_pwrite64 SYS_readv SYS_writev SYS_sched_yield
        SYS_mremap SYS_msync SYS_mincore SYS_madvise SYS_shmget SYS_shmat SYS_shmctl SYS_dup SYS_nanosleep
        SYS_getitimer SYS_setitimer SYS_getpid SYS_socket SYS_connect SYS_accept SYS_sendto SYS_recvfrom SYS_sendmsg
        SYS_recvmsg SYS_shutdown SYS_bind SYS_listen SYS_getsockname SYS_getpeername SYS_socketpair SYS_setsockopt
        SYS_getsockopt SYS_clone SYS_execve SYS_exit SYS_wait4 SYS_kill SYS_uname SYS_semget SYS_semop SYS_semctl
        SYS_shmdt SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl SYS_fcntl SYS_flock SYS_fsync SYS_fdatasync
        SYS_truncate SYS_ftruncate SYS_getcwd SYS_chdir SYS_fchdir SYS_fchmod SYS_fchown SYS_umask SYS_gettimeofday
        SYS_getrusage SYS_sysinfo SYS_times SYS_ptrace SYS_getuid SYS_syslog SYS_getgid SYS_setuid SYS_setgid
        SYS_geteuid SYS_getegid SYS_setpgid SYS_getppid SYS_setsid SYS_setreuid SYS_setregid SYS_getgroups
        SYS_setgroups SYS_setresuid SYS_getresuid SYS_setresgid SYS_getresgid SYS_getpgid SYS_setfsuid SYS_setfsgid
        SYS_getsid SYS_capget SYS_capset SYS_rt_sigpending SYS_rt_sigtimedwait SYS_rt_sigqueueinfo
        SYS_rt_sigsuspend SYS_sigaltstack SYS_personality SYS_statfs SYS_fstatfs SYS_getpriority SYS_setpriority
        SYS_mlock SYS_munlock SYS_mlockall SYS_munlockall SYS_vhangup SYS_pivot_root SYS_prctl SYS_adjtimex
        SYS_chroot SYS_sync SYS_acct SYS_settimeofday SYS_mount SYS_umount2 SYS_swapon SYS_swapoff SYS_reboot
        SYS_sethostname SYS_setdomainname SYS_init_module SYS_delete_module SYS_quotactl SYS_nfsservctl SYS_gettid
        SYS_readahead SYS_setxattr SYS_getxattr SYS_listxattr SYS_removexattr SYS_tkill SYS_futex
        SYS_sched_setaffinity SYS_sched_getaffinity SYS_io_setup SYS_io_destroy SYS_io_getevents SYS_io_submit
        SYS_io_cancel SYS_lookup_dcookie SYS_remap_file_pages SYS_getdents64 SYS_set_tid_address
        SYS_restart_syscall SYS_semtimedop SYS_timer_create SYS_timer_settime SYS_timer_gettime
        SYS_timer_getoverrun SYS_timer_delete SYS_clock_settime SYS_clock_gettime SYS_clock_getres
        SYS_clock_nanosleep SYS_exit_group SYS_epoll_ctl SYS_tgkill SYS_mbind SYS_set_mempolicy SYS_get_mempolicy
        SYS_mq_open SYS_mq_unlink SYS_kexec_load SYS_waitid SYS_add_key SYS_request_key SYS_keyctl SYS_ioprio_set
        SYS_ioprio_get SYS_inotify_add_watch SYS_inotify_rm_watch SYS_migrate_pages SYS_openat SYS_mkdirat
        SYS_mknodat SYS_fchownat SYS_newfstatat SYS_unlinkat SYS_linkat SYS_symlinkat SYS_readlinkat SYS_fchmodat
        SYS_faccessat SYS_pselect6 SYS_ppoll SYS_unshare SYS_set_robust_list SYS_get_robust_list SYS_splice SYS_tee
        SYS_vmsplice SYS_move_pages SYS_utimensat SYS_epoll_pwait SYS_timerfd_create SYS_fallocate
        SYS_timerfd_settime SYS_timerfd_gettime SYS_accept4 SYS_signalfd4 SYS_eventfd2 SYS_epoll_create1 SYS_dup3
        SYS_pipe2 SYS_inotify_init1 SYS_preadv SYS_pwritev SYS_rt_tgsigqueueinfo SYS_perf_event_open SYS_recvmmsg
        SYS_fanotify_init SYS_fanotify_mark SYS_prlimit64 SYS_name_to_handle_at SYS_open_by_handle_at
        SYS_clock_adjtime SYS_syncfs SYS_sendmmsg SYS_setns SYS_getcpu SYS_process_vm_readv SYS_process_vm_writev
        SYS_kcmp SYS_finit_module SYS_sched_setattr SYS_sched_getattr SYS_renameat2 SYS_seccomp SYS_getrandom
        SYS_memfd_create SYS_bpf SYS_execveat SYS_userfaultfd SYS_membarrier SYS_mlock2 SYS_copy_file_range
        SYS_preadv2 SYS_pwritev2 SYS_pkey_mprotect SYS_pkey_alloc SYS_pkey_free SYS_statx SYS_rseq
        SYS_pidfd_send_signal SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_open_tree
        SYS_move_mount SYS_fsopen SYS_fsconfig SYS_fsmount SYS_fspick SYS_pidfd_open SYS_clone3 SYS_close_range
        SYS_openat2 SYS_pidfd_getfd SYS_faccessat2 SYS_process_madvise SYS_epoll_pwait2 SYS_mount_setattr
        SYS_quotactl_fd SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self
        SYS_memfd_secret SYS_process_mrelease SYS_futex_waitv SYS_set_mempolicy_home_node SYS_mseal
    );
    for (name, expected) in sample {
        assert_eq!(Arch::host().number(name), Some(expected), "{name}");
    }
}

#[test]
fn programs_are_small_well_formed_and_always_the_same() {
    for (profile, arch) in every() {
        let program = program(profile, arch);
        let instructions = program.instructions();
        println!("{} {}: {} instructions", profile.name(), arch.name(), instructions.len());
        assert!(
            instructions.len() <= 256,
            "{} on {} has {}",
            profile.name(),
            arch.name(),
            instructions.len()
        );
        assert_eq!(*program, compile::compile(profile, arch));
        assert_eq!(program.hash(), blake3::hash(&program.bytes()).to_hex().as_str());
        assert_eq!(program.bytes().len(), instructions.len() * 8);

        // What the kernel's verifier asks: jumps stay inside and the end is a return.
        for (index, instruction) in instructions.iter().enumerate() {
            let longest = match instruction.code {
                JUMP => usize::try_from(instruction.k).unwrap(),
                JUMP_EQUAL | JUMP_GREATER_EQUAL => usize::from(instruction.jt.max(instruction.jf)),
                RETURN => continue,
                _ => 0,
            };
            assert!(index + 1 + longest < instructions.len(), "jump out of the program at {index}");
        }
        assert_eq!(instructions.last().unwrap().code, RETURN);
    }
}

#[test]
fn programs_differ_between_profiles_and_architectures() {
    let mut hashes: Vec<_> =
        every().map(|(profile, arch)| program(profile, arch).hash().to_owned()).collect();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), 6);
}

/// A table like ours never has targets out of reach of a short jump, so make one that does.
#[test]
fn targets_beyond_a_short_jump_are_reached() {
    let rules = |value: u32| Rule::Always(Action::Errno(u16::try_from(value % 4000).unwrap()));
    let audit = Arch::X86_64.audit();
    let instructions = compile::from_rules(audit, (0..2000).map(|value| (value, rules(value))));
    assert!(instructions.len() > 2000 && instructions.len() <= 4096, "{}", instructions.len());
    for value in 0..2000 {
        let (result, steps) = run(&instructions, &Call { number: value, audit, arguments: [0; 6] });
        assert_eq!(result, Action::Errno(u16::try_from(value).unwrap()).code());
        assert!(steps < 30, "{steps} steps for {value}");
    }
    let (result, _) = run(&instructions, &Call { number: 2000, audit, arguments: [0; 6] });
    assert_eq!(result, Action::Errno(38).code());
}

#[test]
fn a_search_passes_few_instructions() {
    for (profile, arch) in every() {
        let program = program(profile, arch);
        for (name, number) in arch.syscalls() {
            let call = Call { number: *number, audit: arch.audit(), arguments: [0; 6] };
            let (_, steps) = run(program.instructions(), &call);
            assert!(steps <= 24, "{name} on {} takes {steps}", arch.name());
        }
    }
}

/// Filters stack and the strictest answer wins, so a payload below the agent must lose nothing by the agent's.
#[test]
fn agent_allows_what_payloads_are_allowed() {
    for arch in Arch::ALL {
        for (name, number) in arch.syscalls() {
            for arguments in interesting(Profile::Payload.rule(name)) {
                let verdict = |profile: Profile| profile.decide(arch, arch.audit(), *number, &arguments);
                if verdict(Profile::Payload) == Action::Allow {
                    assert_eq!(verdict(Profile::Agent), Action::Allow, "{name} {arguments:x?}");
                }
                if verdict(Profile::PayloadStrict) == Action::Allow {
                    assert_eq!(verdict(Profile::Payload), Action::Allow, "{name} {arguments:x?}");
                }
            }
        }
    }
}

/// Argument lists that reach every branch of a rule: each value of each case, its neighbours, and high bits.
fn interesting(rule: Rule) -> Vec<[u64; 6]> {
    let mut lists = vec![[0; 6]];
    collect(rule, [0; 6], &mut lists);
    lists
}

fn collect(rule: Rule, from: [u64; 6], lists: &mut Vec<[u64; 6]>) {
    let Rule::Switch(Switch { argument, mask, cases, otherwise }) = rule else { return };
    let with = |value: u32, next: Rule, lists: &mut Vec<[u64; 6]>| {
        for value in [
            u64::from(value),
            u64::from(value) | 1 << 32,
            u64::from(value | !mask),
            !0 << 32 | u64::from(value),
        ] {
            let mut arguments = from;
            arguments[usize::from(*argument)] = value;
            lists.push(arguments);
            collect(next, arguments, lists);
        }
    };
    for (values, next) in *cases {
        for value in *values {
            with(*value, *next, lists);
            with(value.wrapping_add(1), *otherwise, lists);
            with(value.wrapping_sub(1), *otherwise, lists);
        }
    }
    with(u32::MAX, *otherwise, lists);
}

#[test]
fn programs_agree_with_the_table_on_every_branch() {
    for (profile, arch) in every() {
        let program = program(profile, arch);
        for (name, number) in arch.syscalls() {
            for arguments in interesting(profile.rule(name)) {
                let call = Call { number: *number, audit: arch.audit(), arguments };
                let expected = profile.decide(arch, arch.audit(), *number, &arguments).code();
                assert_eq!(
                    run(program.instructions(), &call).0,
                    expected,
                    "{} {name} {call:x?}",
                    profile.name()
                );
            }
        }
    }
}

fn any_argument() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0u64..64,
        (0u32..32, 0u32..64).prop_map(|(low, high)| 1 << low | 1 << high),
        prop::sample::select(vec![
            0x5412,
            0x541C,
            0x541D,
            0x5423,
            0xC004_5877,
            0x5961_6D61,
            1024,
            1026,
            0x2_0008
        ])
        .prop_flat_map(|value: u64| prop_oneof![
            Just(value),
            any::<u32>().prop_map(move |high| value | u64::from(high) << 32)
        ]),
    ]
}

fn any_number() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => 0u32..520,
        1 => any::<u32>(),
        1 => (0u32..520).prop_map(|number| number | 0x4000_0000),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn programs_agree_with_the_table(
        number in any_number(),
        foreign in prop::bool::weighted(0.05),
        audit in any::<u32>(),
        arguments in prop::array::uniform6(any_argument()),
    ) {
        for (profile, arch) in every() {
            let audit = if foreign { audit } else { arch.audit() };
            let call = Call { number, audit, arguments };
            let (result, _) = run(program(profile, arch).instructions(), &call);
            prop_assert_eq!(result, profile.decide(arch, audit, number, &arguments).code());
        }
    }
}
