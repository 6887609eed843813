//! Rules that depend on an argument. Every argument named here is 32 bits or fewer in the kernel.

use super::super::rule::{Action, Rule, Switch};
use super::{ALLOW, EINVAL, EPERM};

const EPROTONOSUPPORT: Rule = Rule::Always(Action::Errno(93));
const ESOCKTNOSUPPORT: Rule = Rule::Always(Action::Errno(94));
const EAFNOSUPPORT: Rule = Rule::Always(Action::Errno(97));

/// `CLONE_NEWNS`, `NEWCGROUP`, `NEWUTS`, `NEWIPC`, `NEWUSER`, `NEWPID`, `NEWNET`.
const NAMESPACE_FLAGS: u32 = 0x7E02_0000;
/// In `clone` the low byte is the signal sent at exit, so this bit means a time namespace only in `clone3` and
/// `unshare`, which are denied. No signal is above 64, so nothing honest has the bit here and denying it is free.
const CLONE_NEWTIME: u32 = 0x80;
/// A sibling instead of a child. The parent of a guest interpreter is the launcher, which would never collect a child that
/// it does not know, and PID 1 does not end before everybody in its namespace is collected.
const CLONE_PARENT: u32 = 0x8000;

pub(super) const CLONE: Rule = Rule::Switch(&Switch {
    argument: 0,
    mask: NAMESPACE_FLAGS | CLONE_NEWTIME | CLONE_PARENT,
    cases: &[(&[0], ALLOW)],
    otherwise: EPERM,
});

/// Only the caller's own, which libc names 0. Where all of a sandbox has one user id, the limits of PID 1 would be
/// anybody's otherwise.
pub(super) const OWN_LIMITS: Rule =
    Rule::Switch(&Switch { argument: 0, mask: u32::MAX, cases: &[(&[0], ALLOW)], otherwise: EPERM });

/// Loopback works without a network, so the Internet families are open in every profile; the network namespace
/// decides what they reach.
pub(super) const SOCKET: Rule = Rule::Switch(&Switch {
    argument: 0,
    mask: u32::MAX,
    cases: &[
        (&[AF_UNIX], UNIX_TYPE),
        (&[AF_INET, AF_INET6], INTERNET_TYPE),
        (&[AF_NETLINK], NETLINK_PROTOCOL),
    ],
    otherwise: EAFNOSUPPORT,
});

const AF_UNIX: u32 = 1;
const AF_INET: u32 = 2;
const AF_INET6: u32 = 10;
const AF_NETLINK: u32 = 16;

/// The kernel's own mask: above it stand `SOCK_CLOEXEC` and `SOCK_NONBLOCK`.
const TYPE_MASK: u32 = 0xF;
const SOCK_STREAM: u32 = 1;
const SOCK_DGRAM: u32 = 2;
const SOCK_RAW: u32 = 3;
const SOCK_SEQPACKET: u32 = 5;
/// With `AF_INET` the kernel silently makes a packet socket of it.
const SOCK_PACKET: u32 = 10;

const UNIX_TYPE: Rule = Rule::Switch(&Switch {
    argument: 1,
    mask: TYPE_MASK,
    cases: &[(&[SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET], ALLOW), (&[SOCK_RAW, SOCK_PACKET], EPERM)],
    otherwise: ESOCKTNOSUPPORT,
});

const INTERNET_TYPE: Rule = Rule::Switch(&Switch {
    argument: 1,
    mask: TYPE_MASK,
    cases: &[(&[SOCK_STREAM, SOCK_DGRAM], INTERNET_PROTOCOL), (&[SOCK_RAW, SOCK_PACKET], EPERM)],
    otherwise: ESOCKTNOSUPPORT,
});

/// The default, TCP and UDP. Any other protocol may make the kernel load a module on the host, SCTP for one.
const INTERNET_PROTOCOL: Rule = Rule::Switch(&Switch {
    argument: 2,
    mask: u32::MAX,
    cases: &[(&[0, 6, 17], ALLOW)],
    otherwise: EPROTONOSUPPORT,
});

/// libc lists addresses through `NETLINK_ROUTE`, by a socket of type raw, which has no privilege in this family.
const NETLINK_PROTOCOL: Rule =
    Rule::Switch(&Switch { argument: 2, mask: u32::MAX, cases: &[(&[0], ALLOW)], otherwise: EAFNOSUPPORT });

/// Typing into, or reading from, a terminal that others own, and freezing a file system.
pub(super) const IOCTL: Rule = Rule::Switch(&Switch {
    argument: 1,
    mask: u32::MAX,
    cases: &[(
        &[
            0x5412,      // TIOCSTI
            0x541C,      // TIOCLINUX
            0x541D,      // TIOCCONS
            0x5423,      // TIOCSETD
            0xC004_5877, // FIFREEZE
            0xC004_5878, // FITHAW
        ],
        EPERM,
    )],
    otherwise: ALLOW,
});

/// `MADV_MERGEABLE`: pages that merge with a neighbour's tell what the neighbour holds. A kernel without merging
/// answers the same.
pub(super) const MADVISE: Rule =
    Rule::Switch(&Switch { argument: 2, mask: u32::MAX, cases: &[(&[12], EINVAL)], otherwise: ALLOW });

/// Fifos, sockets and files are made by `mknod` too; only devices are refused. The mode has 16 bits.
pub(super) const MKNOD: Rule =
    Rule::Switch(&Switch { argument: 1, mask: MODE_TYPE, cases: &[(DEVICES, EPERM)], otherwise: ALLOW });

pub(super) const MKNODAT: Rule =
    Rule::Switch(&Switch { argument: 2, mask: MODE_TYPE, cases: &[(DEVICES, EPERM)], otherwise: ALLOW });

const MODE_TYPE: u32 = 0xF000;
/// `S_IFCHR`, `S_IFBLK`.
const DEVICES: &[u32] = &[0x2000, 0x6000];

/// `PER_LINUX` and `PER_LINUX32`, each with or without `UNAME26`, and the question what is set. Anything else is
/// refused, above all switching off address randomisation.
pub(super) const PERSONALITY: Rule = Rule::Switch(&Switch {
    argument: 0,
    mask: u32::MAX,
    cases: &[(&[0, 8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF], ALLOW)],
    otherwise: EPERM,
});

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`: a supervisor may tell the kernel to go on with a call whose pointers have
/// changed since. Further filters are welcome.
pub(super) const SECCOMP: Rule =
    Rule::Switch(&Switch { argument: 1, mask: 8, cases: &[(&[0], ALLOW)], otherwise: EPERM });

/// `F_SETLK`, `F_SETLKW`, `F_OFD_SETLK`, `F_OFD_SETLKW`, `F_SETLEASE`, `F_NOTIFY`, `F_SETDELEG`.
pub(super) const FCNTL_STRICT: Rule = Rule::Switch(&Switch {
    argument: 1,
    mask: u32::MAX,
    cases: &[(&[6, 7, 37, 38, 1024, 1026, 1040], EPERM)],
    otherwise: ALLOW,
});

/// Options that neither list names are unknown to us: EINVAL is how a kernel says so.
pub(super) const PRCTL_PAYLOAD: Rule = Rule::Switch(&Switch {
    argument: 0,
    mask: u32::MAX,
    cases: &[
        (PRCTL_COMMON, ALLOW),
        (&[PR_SET_DUMPABLE], ALLOW),
        (PRCTL_DENIED, EPERM),
        (&[PR_CAPBSET_DROP, PR_SET_SECUREBITS], EPERM),
    ],
    otherwise: EINVAL,
});

pub(super) const PRCTL_STRICT: Rule = Rule::Switch(&Switch {
    argument: 0,
    mask: u32::MAX,
    cases: &[
        (PRCTL_COMMON, ALLOW),
        (PRCTL_DENIED, EPERM),
        (&[PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS], EPERM),
    ],
    otherwise: EINVAL,
});

/// The agent makes payloads: it drops the bounding set and locks the securebits of each.
pub(super) const PRCTL_AGENT: Rule = Rule::Switch(&Switch {
    argument: 0,
    mask: u32::MAX,
    cases: &[
        (PRCTL_COMMON, ALLOW),
        (&[PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS], ALLOW),
        (PRCTL_DENIED, EPERM),
    ],
    otherwise: EINVAL,
});

const PR_SET_DUMPABLE: u32 = 4;
const PR_CAPBSET_DROP: u32 = 24;
const PR_SET_SECUREBITS: u32 = 28;

const PRCTL_COMMON: &[u32] = &[
    1,           // PR_SET_PDEATHSIG
    2,           // PR_GET_PDEATHSIG
    3,           // PR_GET_DUMPABLE
    7,           // PR_GET_KEEPCAPS
    8,           // PR_SET_KEEPCAPS
    15,          // PR_SET_NAME
    16,          // PR_GET_NAME
    21,          // PR_GET_SECCOMP
    22,          // PR_SET_SECCOMP: has no flags, so makes no listener
    23,          // PR_CAPBSET_READ
    25,          // PR_GET_TSC
    27,          // PR_GET_SECUREBITS
    29,          // PR_SET_TIMERSLACK
    30,          // PR_GET_TIMERSLACK
    36,          // PR_SET_CHILD_SUBREAPER
    37,          // PR_GET_CHILD_SUBREAPER
    38,          // PR_SET_NO_NEW_PRIVS
    39,          // PR_GET_NO_NEW_PRIVS
    40,          // PR_GET_TID_ADDRESS
    41,          // PR_SET_THP_DISABLE
    42,          // PR_GET_THP_DISABLE
    47,          // PR_CAP_AMBIENT
    50,          // PR_SVE_SET_VL
    51,          // PR_SVE_GET_VL
    52,          // PR_GET_SPECULATION_CTRL
    54,          // PR_PAC_RESET_KEYS
    55,          // PR_SET_TAGGED_ADDR_CTRL
    56,          // PR_GET_TAGGED_ADDR_CTRL
    60,          // PR_PAC_SET_ENABLED_KEYS
    61,          // PR_PAC_GET_ENABLED_KEYS
    63,          // PR_SME_SET_VL
    64,          // PR_SME_GET_VL
    65,          // PR_SET_MDWE
    66,          // PR_GET_MDWE
    68,          // PR_GET_MEMORY_MERGE
    74,          // PR_GET_SHADOW_STACK_STATUS
    75,          // PR_SET_SHADOW_STACK_STATUS
    76,          // PR_LOCK_SHADOW_STACK_STATUS
    0x4155_5856, // PR_GET_AUXV
    0x5356_4D41, // PR_SET_VMA: names for memory areas
];

const PRCTL_DENIED: &[u32] = &[
    26,          // PR_SET_TSC
    31,          // PR_TASK_PERF_EVENTS_DISABLE
    32,          // PR_TASK_PERF_EVENTS_ENABLE
    33,          // PR_MCE_KILL
    35,          // PR_SET_MM
    53,          // PR_SET_SPECULATION_CTRL: the mitigations stay as the host set them
    57,          // PR_SET_IO_FLUSHER
    59,          // PR_SET_SYSCALL_USER_DISPATCH
    62,          // PR_SCHED_CORE: the cookie separates tenants on a core
    67,          // PR_SET_MEMORY_MERGE: as MADV_MERGEABLE
    0x5961_6D61, // PR_SET_PTRACER
];
