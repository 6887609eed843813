//! Makes every system call, each in a child of its own, and prints what the kernel answered.
//!
//! Run inside a jail it shows what the filter there really refuses. Lines are `number name answer`, where the answer
//! is an error number, 0 for success, `signal n`, `exit n` or `blocked`. Options:
//! - `--variants`: argument variants instead: high bits on each filtered `int`, x32 numbers, `int 0x80`, `clone3`,
//!   io_uring;
//! - `--check PROFILE`: compare with the table, print only what differs, and fail if anything does;
//! - `--install PROFILE`: put each child behind that filter, as an unprivileged user, instead of relying on a jail.
//!
//! A fully static build: `RUSTFLAGS='-C target-feature=+crt-static' cargo build -p sandstorm-jail --example …`.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use sandstorm_jail::seccomp::{self, Action, Arch, Profile};
use sandstorm_sys::filter::{self, Instruction};
use sandstorm_sys::probe::{self, Entry, Outcome};

const ARCH: Arch = Arch::host();
const PATIENCE: Duration = Duration::from_millis(500);
const X32: u64 = 0x4000_0000;
const SIGSYS: i32 = 31;
const SIGSEGV: i32 = 11;

struct Probe {
    name: String,
    entry: Entry,
    number: u64,
    arguments: [u64; 6],
}

fn main() -> io::Result<ExitCode> {
    let mut variants = false;
    let mut check = None;
    let mut install = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--variants" => variants = true,
            "--check" => check = Some(profile(words.next())?),
            "--install" => install = Some(filter_of(profile(words.next())?)),
            _ => return Err(usage()),
        }
    }
    if install.is_none() && filter::mode()? == 0 {
        // Some calls with arguments of zero change the whole machine when nothing stands in the way.
        return Err(io::Error::other("no seccomp filter here: run inside a jail, or give --install"));
    }

    let probes = if variants { argument_variants() } else { every_number() };
    let mut out = io::stdout().lock();
    let mut wrong = 0;
    for Probe { name, entry, number, arguments } in probes {
        let outcome = probe::attempt(install.as_deref(), entry, number, arguments, PATIENCE)?;
        let Some(profile) = check else {
            writeln!(out, "{number} {name} {}", show(outcome))?;
            continue;
        };
        if !agrees(profile, entry, number, &arguments, outcome) {
            wrong += 1;
            writeln!(out, "{number} {name} {} differs from {}", show(outcome), profile.name())?;
        }
    }
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn usage() -> io::Error {
    io::Error::other("usage: syscall_prober [--variants] [--check PROFILE] [--install PROFILE]")
}

fn profile(word: Option<String>) -> io::Result<Profile> {
    let word = word.ok_or_else(usage)?;
    Profile::ALL.into_iter().find(|profile| profile.name() == word).ok_or_else(usage)
}

fn filter_of(profile: Profile) -> Vec<Instruction> {
    let program = match profile {
        Profile::Payload => seccomp::payload(ARCH, false),
        Profile::PayloadStrict => seccomp::payload(ARCH, true),
        Profile::Agent => seccomp::agent(ARCH),
    };
    let instructions = program.instructions().iter();
    instructions
        .map(|step| Instruction { code: step.code, jump_true: step.jt, jump_false: step.jf, operand: step.k })
        .collect()
}

fn show(outcome: Outcome) -> String {
    match outcome {
        Outcome::Returned(answer) => (-answer.min(0)).to_string(),
        Outcome::Exited(status) => format!("exit {status}"),
        Outcome::Killed(signal) => format!("signal {signal}"),
        Outcome::Blocked => "blocked".to_owned(),
    }
}

/// A refused call must answer as the table says. An allowed one may answer anything but the death by filter: what it
/// does with its arguments is the kernel's business.
fn agrees(profile: Profile, entry: Entry, number: u64, arguments: &[u64; 6], outcome: Outcome) -> bool {
    if entry == Entry::Int80 {
        // A kernel without the 32-bit gate ends the process too, in its own way.
        return matches!(outcome, Outcome::Killed(SIGSYS | SIGSEGV));
    }
    // The kernel takes the number in 32 bits.
    match profile.decide(ARCH, ARCH.audit(), number as u32, arguments) {
        Action::Allow => outcome != Outcome::Killed(SIGSYS),
        Action::Errno(error) => outcome == Outcome::Returned(-i64::from(error)),
        Action::KillProcess => outcome == Outcome::Killed(SIGSYS),
    }
}

fn every_number() -> Vec<Probe> {
    let last = ARCH.syscalls().iter().map(|(_, number)| *number).max().unwrap_or(0);
    let numbers = (0..=last + 32).map(|number| Probe {
        name: ARCH.syscall_name(number).unwrap_or("-").to_owned(),
        entry: Entry::Native,
        number: number.into(),
        arguments: [0; 6],
    });
    numbers.collect()
}

fn argument_variants() -> Vec<Probe> {
    let mut probes = Vec::new();
    for (name, arguments) in FILTERED {
        let Some(number) = ARCH.number(name) else { continue };
        for (label, high) in [("plain", 0), ("bit 32", 1 << 32), ("all high bits", !0 << 32)] {
            let arguments = arguments.map(|argument| argument | high);
            let name = format!("{name}{:x?} {label}", arguments);
            probes.push(Probe { name, entry: Entry::Native, number: number.into(), arguments });
        }
    }
    if ARCH == Arch::X86_64 {
        for (name, number) in ARCH.syscalls() {
            let number = u64::from(*number) | X32;
            probes.push(Probe {
                name: format!("x32 {name}"),
                entry: Entry::Native,
                number,
                arguments: [0; 6],
            });
        }
        // `getpid` and `socketcall` of i386.
        for number in [20, 102] {
            probes.push(Probe {
                name: "int 0x80".to_owned(),
                entry: Entry::Int80,
                number,
                arguments: [0; 6],
            });
        }
    }
    probes
}

/// Calls whose arguments decide, with arguments that must be refused, and those that hide theirs behind a pointer.
const FILTERED: &[(&str, [u64; 6])] = &[
    // AF_PACKET, AF_ALG, AF_VSOCK, AF_XDP, AF_KEY, AF_BLUETOOTH.
    ("socket", [17, 3, 0, 0, 0, 0]),
    ("socket", [38, 5, 0, 0, 0, 0]),
    ("socket", [40, 1, 0, 0, 0, 0]),
    ("socket", [44, 3, 0, 0, 0, 0]),
    ("socket", [15, 3, 2, 0, 0, 0]),
    ("socket", [31, 3, 0, 0, 0, 0]),
    // Raw and packet sockets, with SOCK_CLOEXEC in one; SCTP; netlink other than route.
    ("socket", [2, 3, 1, 0, 0, 0]),
    ("socket", [2, 0o2_000_003, 255, 0, 0, 0]),
    ("socket", [2, 10, 0, 0, 0, 0]),
    ("socket", [10, 3, 58, 0, 0, 0]),
    ("socket", [2, 1, 132, 0, 0, 0]),
    ("socket", [16, 3, 12, 0, 0, 0]),
    ("socketpair", [1, 3, 0, 0, 0, 0]),
    ("socketpair", [30, 1, 0, 0, 0, 0]),
    // The seven namespaces.
    ("clone", [0x0002_0011, 0, 0, 0, 0, 0]),
    ("clone", [0x0200_0011, 0, 0, 0, 0, 0]),
    ("clone", [0x0400_0011, 0, 0, 0, 0, 0]),
    ("clone", [0x0800_0011, 0, 0, 0, 0, 0]),
    ("clone", [0x1000_0011, 0, 0, 0, 0, 0]),
    ("clone", [0x2000_0011, 0, 0, 0, 0, 0]),
    ("clone", [0x4000_0011, 0, 0, 0, 0, 0]),
    ("clone3", [1, 88, 0, 0, 0, 0]),
    ("unshare", [0x1000_0000, 0, 0, 0, 0, 0]),
    // TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD, FIFREEZE, FITHAW.
    ("ioctl", [0, 0x5412, 0, 0, 0, 0]),
    ("ioctl", [0, 0x541C, 0, 0, 0, 0]),
    ("ioctl", [0, 0x541D, 0, 0, 0, 0]),
    ("ioctl", [0, 0x5423, 0, 0, 0, 0]),
    ("ioctl", [0, 0xC004_5877, 0, 0, 0, 0]),
    ("ioctl", [0, 0xC004_5878, 0, 0, 0, 0]),
    // PR_SET_MM, PR_SET_PTRACER, PR_SCHED_CORE.
    ("prctl", [35, 1, 0, 0, 0, 0]),
    ("prctl", [0x5961_6D61, 1, 0, 0, 0, 0]),
    ("prctl", [62, 1, 0, 0, 0, 0]),
    // ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC.
    ("personality", [0x004_0000, 0, 0, 0, 0, 0]),
    ("personality", [0x040_0000, 0, 0, 0, 0, 0]),
    // SECCOMP_FILTER_FLAG_NEW_LISTENER.
    ("seccomp", [1, 8, 0, 0, 0, 0]),
    // F_SETLK, F_OFD_SETLK, F_SETLEASE, F_NOTIFY: refused by the strict profile.
    ("fcntl", [0, 6, 0, 0, 0, 0]),
    ("fcntl", [0, 37, 0, 0, 0, 0]),
    ("fcntl", [0, 1024, 0, 0, 0, 0]),
    ("fcntl", [0, 1026, 0, 0, 0, 0]),
    // MADV_MERGEABLE; character and block devices.
    ("madvise", [0, 4096, 12, 0, 0, 0]),
    ("mknod", [0, 0x2000, 0x103, 0, 0, 0]),
    ("mknodat", [0, 0, 0x6000, 0x801, 0, 0]),
    ("io_uring_setup", [8, 1, 0, 0, 0, 0]),
    ("io_uring_enter", [0, 1, 0, 0, 0, 0]),
    ("io_uring_register", [0, 0, 0, 0, 0, 0]),
];
