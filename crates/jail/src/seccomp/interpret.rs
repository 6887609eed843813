//! A BPF machine for tests: runs a filter over `struct seccomp_data` as the kernel would.

use super::compile::{AND, Instruction, JUMP, JUMP_EQUAL, JUMP_GREATER_EQUAL, LOAD, RETURN};

/// What the kernel shows a filter about a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) number: u32,
    pub(super) audit: u32,
    pub(super) arguments: [u64; 6],
}

impl Call {
    fn bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0..4].copy_from_slice(&self.number.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.audit.to_le_bytes());
        // Bytes 8 to 15 are the instruction pointer; anything may stand there.
        bytes[8..16].fill(0xA5);
        for (index, argument) in self.arguments.iter().enumerate() {
            bytes[16 + 8 * index..24 + 8 * index].copy_from_slice(&argument.to_le_bytes());
        }
        bytes
    }
}

/// The value returned and how many instructions ran. Panics where the kernel would refuse the program.
pub(super) fn run(program: &[Instruction], call: &Call) -> (u32, usize) {
    let data = call.bytes();
    let mut accumulator = 0u32;
    let mut counter = 0usize;
    let mut steps = 0;
    loop {
        let Instruction { code, jt, jf, k } = program[counter];
        let branch = |taken: bool| usize::from(if taken { jt } else { jf });
        steps += 1;
        counter += 1;
        match code {
            LOAD => {
                assert_eq!(k % 4, 0, "unaligned load");
                let offset = usize::try_from(k).unwrap();
                accumulator = u32::from_le_bytes(data[offset..offset + 4].try_into().unwrap());
            }
            AND => accumulator &= k,
            JUMP => counter += usize::try_from(k).unwrap(),
            JUMP_EQUAL => counter += branch(accumulator == k),
            JUMP_GREATER_EQUAL => counter += branch(accumulator >= k),
            RETURN => return (k, steps),
            _ => panic!("instruction {code:#x} is not one of ours"),
        }
    }
}
