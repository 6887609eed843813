//! Runs a command in which one system call fails: fault injection without a hook in what is tested.
//!
//! `deny NUMBER [ARGUMENT=VALUE]… -- COMMAND…` makes the call with this number fail with EPERM, only where the given
//! arguments (0 to 5) have the given values in their lower 32 bits. The command and all its descendants are behind it.

#![expect(clippy::disallowed_methods, reason = "becoming a command is what this is for")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use sandstorm_sys::filter::{Instruction, install};

const LOAD_WORD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const FAIL: u32 = 0x0005_0000 | libc::EPERM as u32;

fn main() -> io::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut halves = words.splitn(2, |word| word == "--");
    let (Some([number, conditions @ ..]), Some([command, arguments @ ..])) = (halves.next(), halves.next())
    else {
        return Err(usage());
    };
    let number = number.parse().map_err(|_| usage())?;
    let conditions = conditions.iter().map(|word| condition(word)).collect::<io::Result<Vec<_>>>()?;
    let program = filter(number, &conditions);
    if install(&program).is_err() {
        // Without privilege a filter has its price; programs with set-id bits then keep the caller's rights.
        rustix::thread::set_no_new_privs(true)?;
        install(&program)?;
    }
    Err(Command::new(command).args(arguments).exec())
}

fn usage() -> io::Error {
    io::Error::other("usage: deny NUMBER [ARGUMENT=VALUE]... -- COMMAND...")
}

fn condition(word: &str) -> io::Result<(u32, u32)> {
    let (argument, value) = word.split_once('=').ok_or_else(usage)?;
    match (argument.parse(), value.parse()) {
        (Ok(argument @ 0..=5), Ok(value)) => Ok((argument, value)),
        _ => Err(usage()),
    }
}

/// Each test jumps to the last instruction but one when it does not hold. The architecture is not looked at: a test
/// is no wall.
fn filter(number: u32, conditions: &[(u32, u32)]) -> Vec<Instruction> {
    let tests =
        std::iter::once((0, number)).chain(conditions.iter().map(|(at, value)| (16 + at * 8, *value)));
    let mut program = Vec::new();
    let mut left = conditions.len() as u8;
    for (offset, value) in tests {
        program.push(Instruction { code: LOAD_WORD, jump_true: 0, jump_false: 0, operand: offset });
        program.push(Instruction {
            code: JUMP_EQUAL,
            jump_true: 0,
            jump_false: left * 2 + 1,
            operand: value,
        });
        left = left.saturating_sub(1);
    }
    program.push(Instruction { code: RETURN, jump_true: 0, jump_false: 0, operand: FAIL });
    program.push(Instruction { code: RETURN, jump_true: 0, jump_false: 0, operand: ALLOW });
    program
}
