//! The table: every system call of both architectures, in groups that share a reason.

use super::super::rule::Rule;
use super::arguments::{
    CLONE, FCNTL_STRICT, IOCTL, MADVISE, MKNOD, MKNODAT, OWN_LIMITS, PERSONALITY, PRCTL_AGENT, PRCTL_PAYLOAD,
    PRCTL_STRICT, SECCOMP, SOCKET,
};
use super::{ALLOW, ENOSYS, EPERM, KILL};

#[derive(Debug)]
pub(in super::super) struct Group {
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers and for the messages of tests"))]
    pub(in super::super) name: &'static str,
    /// Names separated by white space.
    pub(in super::super) calls: &'static str,
    pub(in super::super) payload: Rule,
    pub(in super::super) strict: Rule,
    pub(in super::super) agent: Rule,
}

/// The same answer in every profile.
const fn all(name: &'static str, rule: Rule, calls: &'static str) -> Group {
    Group { name, calls, payload: rule, strict: rule, agent: rule }
}

/// Allowed, except to strict payloads.
const fn unless_strict(name: &'static str, strict: Rule, calls: &'static str) -> Group {
    Group { name, calls, payload: ALLOW, strict, agent: ALLOW }
}

pub(in super::super) const GROUPS: &[Group] = &[
    // What ordinary programs are made of.
    all(
        "file contents",
        ALLOW,
        "read write pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 lseek sendfile splice tee vmsplice
         copy_file_range fsync fdatasync sync_file_range truncate ftruncate fallocate fadvise64 readahead",
    ),
    all(
        "files and directories",
        ALLOW,
        "open openat openat2 creat close close_range stat fstat lstat newfstatat statx access faccessat faccessat2
         getdents getdents64 getcwd chdir fchdir rename renameat renameat2 mkdir mkdirat rmdir link linkat unlink
         unlinkat symlink symlinkat readlink readlinkat chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat
         umask utime utimes utimensat futimesat statfs fstatfs setxattr lsetxattr fsetxattr setxattrat getxattr
         lgetxattr fgetxattr getxattrat listxattr llistxattr flistxattr listxattrat removexattr lremovexattr
         fremovexattr removexattrat file_getattr file_setattr inotify_init inotify_init1 inotify_add_watch
         inotify_rm_watch",
    ),
    all("device nodes", MKNOD, "mknod"),
    all("device nodes at a directory", MKNODAT, "mknodat"),
    all(
        "descriptors and waiting",
        ALLOW,
        "dup dup2 dup3 pipe pipe2 poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait
         epoll_pwait epoll_pwait2 eventfd eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime",
    ),
    all("device control", IOCTL, "ioctl"),
    all(
        "memory",
        ALLOW,
        "mmap mprotect munmap brk mremap msync mlock mlock2 munlock mlockall munlockall membarrier memfd_create
         pkey_mprotect pkey_alloc pkey_free mseal map_shadow_stack get_mempolicy",
    ),
    all("memory advice", MADVISE, "madvise"),
    all(
        "processes and threads",
        ALLOW,
        "fork vfork execve execveat exit exit_group wait4 waitid kill tkill tgkill pidfd_open pidfd_send_signal getpid
         getppid gettid getpgid getpgrp setpgid getsid setsid set_tid_address arch_prctl set_robust_list
         get_robust_list rseq futex futex_waitv futex_wake futex_wait futex_requeue restart_syscall getrlimit
         setrlimit getrusage times sysinfo uname getrandom",
    ),
    all("limits of oneself", OWN_LIMITS, "prlimit64"),
    all("new tasks", CLONE, "clone"),
    // The flags lie behind a pointer, which a filter cannot read. With ENOSYS libc falls back to `clone`; with EPERM
    // threads fail.
    all("new tasks by structure", ENOSYS, "clone3"),
    all(
        "scheduling",
        ALLOW,
        "sched_yield sched_setparam sched_getparam sched_setscheduler sched_getscheduler sched_get_priority_max
         sched_get_priority_min sched_rr_get_interval sched_setaffinity sched_getaffinity sched_setattr sched_getattr
         getpriority setpriority ioprio_set ioprio_get getcpu",
    ),
    all(
        "signals",
        ALLOW,
        "rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo
         rt_sigsuspend sigaltstack pause",
    ),
    all(
        "time",
        ALLOW,
        "gettimeofday time clock_gettime clock_getres clock_nanosleep nanosleep getitimer setitimer alarm timer_create
         timer_settime timer_gettime timer_getoverrun timer_delete",
    ),
    // The payload has no capability, so it can only drop identity; the agent needs these to become the payload.
    all(
        "identity",
        ALLOW,
        "getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid setresuid
         setresgid setfsuid setfsgid setgroups capget capset",
    ),
    all("sockets", SOCKET, "socket socketpair"),
    all(
        "socket use",
        ALLOW,
        "bind listen connect accept accept4 shutdown getsockname getpeername setsockopt getsockopt sendto recvfrom
         sendmsg recvmsg sendmmsg recvmmsg",
    ),
    // The sandbox has an IPC namespace of its own.
    all(
        "System V and POSIX IPC",
        ALLOW,
        "shmget shmat shmctl shmdt semget semop semctl semtimedop msgget msgsnd msgrcv msgctl mq_open mq_unlink
         mq_timedsend mq_timedreceive mq_notify mq_getsetattr",
    ),
    all("own sandboxing", ALLOW, "landlock_create_ruleset landlock_add_rule landlock_restrict_self"),
    all("own filters", SECCOMP, "seccomp"),
    all("personality", PERSONALITY, "personality"),
    Group {
        name: "process attributes",
        calls: "prctl",
        payload: PRCTL_PAYLOAD,
        strict: PRCTL_STRICT,
        agent: PRCTL_AGENT,
    },
    // Made by code that the kernel puts into a process that the host traces; called from elsewhere they fail or end
    // the process. Newer kernels do not ask a filter about them; on the first that had them a refusal would crash
    // the traced process.
    all("probe trampolines", ALLOW, "uprobe uretprobe"),
    // What strict payloads lose: questions about shared files, and kernel code that few programs need.
    Group { name: "descriptor flags and locks", calls: "fcntl", payload: ALLOW, strict: FCNTL_STRICT, agent: ALLOW },
    unless_strict("locks", EPERM, "flock"),
    unless_strict("page cache", EPERM, "mincore cachestat"),
    unless_strict("mount list", EPERM, "statmount listmount"),
    // They wait for writes of other sandboxes: `sync` for those of the whole host, `syncfs` for those of a file system
    // that is shown to several.
    unless_strict("whole-system sync", EPERM, "sync syncfs"),
    unless_strict(
        "asynchronous I/O",
        ENOSYS,
        "io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents",
    ),
    // What no profile gets.
    all("namespaces", EPERM, "unshare setns"),
    all(
        "mounts",
        EPERM,
        "mount umount2 pivot_root chroot open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick
         mount_setattr",
    ),
    all("kernel code", EPERM, "init_module finit_module delete_module kexec_load kexec_file_load bpf"),
    all(
        "tracing",
        EPERM,
        "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd perf_event_open
         lookup_dcookie",
    ),
    // io_uring would also make sockets past the rule for `socket`.
    all(
        "exploit helpers",
        ENOSYS,
        "io_uring_setup io_uring_enter io_uring_register userfaultfd remap_file_pages modify_ldt memfd_secret",
    ),
    all("keys", ENOSYS, "keyctl add_key request_key"),
    all("handles and watches", EPERM, "open_by_handle_at name_to_handle_at fanotify_init fanotify_mark"),
    all(
        "system",
        EPERM,
        "reboot swapon swapoff acct quotactl quotactl_fd syslog settimeofday clock_settime clock_adjtime adjtimex
         sethostname setdomainname iopl ioperm vhangup nfsservctl sysfs ustat uselib _sysctl",
    ),
    all("NUMA", EPERM, "mbind set_mempolicy set_mempolicy_home_node migrate_pages move_pages"),
    all("security modules", EPERM, "lsm_set_self_attr lsm_get_self_attr lsm_list_modules"),
    // Numbers without code behind them: the answer of the kernel itself.
    all(
        "never implemented",
        ENOSYS,
        "getpmsg putpmsg afs_syscall tuxcall security vserver set_thread_area get_thread_area epoll_ctl_old
         epoll_wait_old",
    ),
    // Module loading as it was before Linux 2.6: nothing honest has called these in twenty years.
    all("module loading of old kernels", KILL, "create_module get_kernel_syms query_module"),
];
