//! The compiled filters asked through the real kernel. What a refused call would have done is not needed: each is
//! made by an unprivileged child behind the filter.

use std::time::Duration;

use sandstorm_jail::seccomp::{self, Action, Arch, Profile, Program};
use sandstorm_sys::filter::Instruction;
use sandstorm_sys::probe::{Entry, Outcome, attempt};

const ARCH: Arch = Arch::host();
const PATIENCE: Duration = Duration::from_secs(30);
const SIGSYS: i32 = 31;

fn filter(program: &Program) -> Vec<Instruction> {
    let steps = program.instructions().iter();
    steps
        .map(|step| Instruction { code: step.code, jump_true: step.jt, jump_false: step.jf, operand: step.k })
        .collect()
}

fn filters() -> [(Profile, Vec<Instruction>); 3] {
    [seccomp::payload(ARCH, false), seccomp::payload(ARCH, true), seccomp::agent(ARCH)]
        .map(|program| (program.profile(), filter(&program)))
}

/// What the kernel must answer, or nothing when the call is let through.
fn refusal(profile: Profile, number: u32, arguments: &[u64; 6]) -> Option<Outcome> {
    match profile.decide(ARCH, ARCH.audit(), number, arguments) {
        Action::Allow => None,
        Action::Errno(error) => Some(Outcome::Returned(-i64::from(error))),
        Action::KillProcess => Some(Outcome::Killed(SIGSYS)),
    }
}

#[test]
fn kernel_refuses_what_the_table_refuses() {
    for (profile, filter) in filters() {
        let mut refused = 0;
        for number in 0..=ARCH.number("file_setattr").unwrap() + 32 {
            let Some(expected) = refusal(profile, number, &[0; 6]) else { continue };
            let outcome = attempt(Some(&filter), Entry::Native, number.into(), [0; 6], PATIENCE).unwrap();
            assert_eq!(outcome, expected, "{number} {:?} {}", ARCH.syscall_name(number), profile.name());
            refused += 1;
        }
        assert!(refused > 100, "only {refused} calls are refused by {}", profile.name());
    }
}

#[test]
fn high_bits_do_not_get_past_the_kernel() {
    // Of each kind one that an unprivileged process without a filter would be given.
    let calls: [(&str, [u64; 6]); 7] = [
        ("clone", [0x1000_0011, 0, 0, 0, 0, 0]),
        ("socket", [1, 3, 0, 0, 0, 0]),
        ("socket", [16, 3, 15, 0, 0, 0]),
        ("prctl", [0x5961_6D61, 0, 0, 0, 0, 0]),
        ("personality", [0x004_0000, 0, 0, 0, 0, 0]),
        ("ioctl", [0, 0x5412, 0, 0, 0, 0]),
        ("unshare", [0, 0, 0, 0, 0, 0]),
    ];
    for (profile, filter) in filters() {
        for (name, arguments) in calls {
            let number = ARCH.number(name).unwrap();
            for high in [0, 1 << 32, !0 << 32] {
                let arguments = arguments.map(|argument| argument | high);
                let expected = refusal(profile, number, &arguments).expect("a call to be refused");
                let outcome =
                    attempt(Some(&filter), Entry::Native, number.into(), arguments, PATIENCE).unwrap();
                assert_eq!(outcome, expected, "{name} {arguments:x?} {}", profile.name());
            }
        }
    }
}

#[test]
fn kernel_lets_allowed_calls_through() {
    let calls: [(&str, [u64; 6]); 6] = [
        ("getpid", [0; 6]),
        ("socket", [1, 0o2_000_001, 0, 0, 0, 0]),
        ("socket", [2, 1, 6, 0, 0, 0]),
        ("socket", [2, 1 | 1 << 32, 0, 0, 0, 0]),
        ("socket", [16, 3, 0, 0, 0, 0]),
        ("clone", [17, 0, 0, 0, 0, 0]),
    ];
    for (profile, filter) in filters() {
        for (name, arguments) in calls {
            let number = ARCH.number(name).unwrap().into();
            let outcome = attempt(Some(&filter), Entry::Native, number, arguments, PATIENCE).unwrap();
            let through = matches!(outcome, Outcome::Returned(answer) if answer >= 0);
            assert!(through, "{name} {arguments:x?} {} {outcome:?}", profile.name());
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn x32_answers_enosys_and_the_32_bit_gate_kills() {
    for (profile, filter) in filters() {
        for (name, number) in ARCH.syscalls() {
            let number = u64::from(*number) | 0x4000_0000;
            let outcome = attempt(Some(&filter), Entry::Native, number, [0; 6], PATIENCE).unwrap();
            assert_eq!(outcome, Outcome::Returned(-38), "{name} {}", profile.name());
        }
        // `getpid` of i386. A kernel without the gate ends the process by SIGSEGV.
        let outcome = attempt(Some(&filter), Entry::Int80, 20, [0; 6], PATIENCE).unwrap();
        assert!(matches!(outcome, Outcome::Killed(SIGSYS | 11)), "{outcome:?}");
    }
}
