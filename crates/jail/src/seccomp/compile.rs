//! From the table to BPF: a balanced search over ranges of call numbers, with the argument rules as leaves.
//!
//! A search tree is cheaper to install than a chain of comparisons and each call passes fewer instructions. Before
//! the leaves only the number and the architecture are loaded, so the kernel can prove most calls always allowed
//! and skip the filter for them.

use super::profile::{ENOSYS, KILL, Profile, UNNAMED};
use super::rule::{Rule, Switch};
use super::syscalls::Arch;

/// One BPF instruction, laid out like the kernel's `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    pub code: u16,
    pub jt: u8,
    pub jf: u8,
    pub k: u32,
}

/// A filter that is ready to be installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    profile: Profile,
    arch: Arch,
    instructions: Vec<Instruction>,
    hash: String,
}

impl Program {
    pub fn profile(&self) -> Profile {
        self.profile
    }

    pub fn arch(&self) -> Arch {
        self.arch
    }

    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The instructions in the form that installs.
    pub(crate) fn to_install(&self) -> Vec<sandstorm_sys::filter::Instruction> {
        let convert = |i: &Instruction| sandstorm_sys::filter::Instruction {
            code: i.code,
            jump_true: i.jt,
            jump_false: i.jf,
            operand: i.k,
        };
        self.instructions.iter().map(convert).collect()
    }

    /// The instructions as the kernel reads them from memory, eight bytes each.
    pub fn bytes(&self) -> Vec<u8> {
        encode(&self.instructions)
    }

    /// BLAKE3 of [`Program::bytes`] in hexadecimal: the name of this exact filter in reports.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// `BPF_LD | BPF_W | BPF_ABS`.
pub(super) const LOAD: u16 = 0x20;
/// `BPF_ALU | BPF_AND | BPF_K`.
pub(super) const AND: u16 = 0x54;
/// `BPF_JMP | BPF_JA`.
pub(super) const JUMP: u16 = 0x05;
/// `BPF_JMP | BPF_JEQ | BPF_K`.
pub(super) const JUMP_EQUAL: u16 = 0x15;
/// `BPF_JMP | BPF_JGE | BPF_K`.
pub(super) const JUMP_GREATER_EQUAL: u16 = 0x35;
/// `BPF_RET | BPF_K`.
pub(super) const RETURN: u16 = 0x06;

/// Offsets into `struct seccomp_data`. Both architectures are little endian, so the low half of an argument comes
/// first.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

pub(super) fn compile(profile: Profile, arch: Arch) -> Program {
    let rules = profile.rules();
    let numbers =
        arch.syscalls().iter().map(|(name, number)| (*number, *rules.get(name).unwrap_or(&UNNAMED)));
    let instructions = from_rules(arch.audit(), numbers);
    let hash = blake3::hash(&encode(&instructions)).to_hex().to_string();
    Program { profile, arch, instructions, hash }
}

/// How many single values a unit may except from its rule: each saves an instruction and may cost a step.
const EXCEPTIONS: usize = 2;

/// Cuts ranges into units: one rule, with exceptions for single values. An exception takes one comparison, where a
/// search by ranges takes two.
fn units(ranges: &[Range]) -> Vec<&[Range]> {
    let mut units = Vec::new();
    let mut rest = ranges;
    while let [(_, base), ..] = rest {
        let exceptions = rest[1..].chunks_exact(2).take(EXCEPTIONS);
        let single = |pair: &&[Range]| pair[1].1 == *base && pair[1].0 - pair[0].0 == 1;
        let (unit, after) = rest.split_at(1 + 2 * exceptions.take_while(single).count());
        units.push(unit);
        rest = after;
    }
    units
}

/// A filter for one architecture from call numbers and their rules; numbers without a rule are unknown.
pub(super) fn from_rules(audit: u32, numbers: impl Iterator<Item = (u32, Rule)>) -> Vec<Instruction> {
    let mut assembler = Assembler::default();
    let search = assembler.search(&ranges(numbers, ENOSYS));
    let known = assembler.load(NUMBER, u32::MAX, search);
    let foreign = assembler.rule(KILL);
    let check = assembler.branch(JUMP_EQUAL, audit, known, foreign);
    assembler.load(ARCHITECTURE, u32::MAX, check);
    assembler.reversed.reverse();
    assembler.reversed
}

fn encode(instructions: &[Instruction]) -> Vec<u8> {
    let encoded = instructions.iter().flat_map(|instruction| {
        let [code0, code1] = instruction.code.to_ne_bytes();
        let [k0, k1, k2, k3] = instruction.k.to_ne_bytes();
        [code0, code1, instruction.jt, instruction.jf, k0, k1, k2, k3]
    });
    encoded.collect()
}

/// A first value, and the rule for it and all that follow up to the next range.
type Range = (u32, Rule);

/// Covers all 32-bit values. Neighbours with the same rule become one range.
fn ranges(values: impl Iterator<Item = (u32, Rule)>, otherwise: Rule) -> Vec<Range> {
    let mut values: Vec<Range> = values.collect();
    values.sort_by_key(|(value, _)| *value);
    let mut ranges = vec![(0, otherwise)];
    let mut push = |start: u32, rule: Rule| {
        ranges.pop_if(|(last, _)| *last == start);
        if ranges.last().is_none_or(|(_, before)| *before != rule) {
            ranges.push((start, rule));
        }
    };
    for (value, rule) in values {
        push(value, rule);
        if let Some(next) = value.checked_add(1) {
            push(next, otherwise);
        }
    }
    ranges
}

/// Writes a program from its end to its start. BPF jumps only forward, so every target is known when a jump is
/// written. A place is an index into `reversed`.
#[derive(Default)]
struct Assembler {
    reversed: Vec<Instruction>,
    /// Where the code of a rule stands already; calls with equal rules share it.
    placed: Vec<(Rule, usize)>,
}

impl Assembler {
    fn rule(&mut self, rule: Rule) -> usize {
        if let Some((_, place)) = self.placed.iter().find(|(known, _)| *known == rule) {
            return *place;
        }
        let place = match rule {
            Rule::Always(action) => self.push(RETURN, 0, 0, action.code()),
            Rule::Switch(switch) => self.switch(switch),
        };
        self.placed.push((rule, place));
        place
    }

    fn switch(&mut self, switch: &Switch) -> usize {
        let cases = switch.cases.iter();
        let values = cases.flat_map(|(values, rule)| values.iter().map(|value| (*value, *rule)));
        let search = self.search(&ranges(values, switch.otherwise));
        self.load(ARGUMENTS + 8 * u32::from(switch.argument), switch.mask, search)
    }

    fn search(&mut self, ranges: &[Range]) -> usize {
        self.search_units(&units(ranges))
    }

    fn search_units(&mut self, units: &[&[Range]]) -> usize {
        if let [unit] = units {
            return self.unit(unit);
        }
        let (low, high) = units.split_at(units.len() / 2);
        let start = high[0][0].0;
        let high = self.search_units(high);
        let low = self.search_units(low);
        self.branch(JUMP_GREATER_EQUAL, start, high, low)
    }

    fn unit(&mut self, unit: &[Range]) -> usize {
        let mut next = self.rule(unit[0].1);
        for exception in unit[1..].chunks_exact(2) {
            let (value, rule) = exception[0];
            let hit = self.rule(rule);
            next = self.branch(JUMP_EQUAL, value, hit, next);
        }
        next
    }

    /// Loads a word, masks it, and goes on at `next`.
    fn load(&mut self, offset: u32, mask: u32, next: usize) -> usize {
        if next + 1 != self.reversed.len() {
            self.push(JUMP, 0, 0, self.distance(next));
        }
        if mask != u32::MAX {
            self.push(AND, 0, 0, mask);
        }
        self.push(LOAD, 0, 0, offset)
    }

    fn branch(&mut self, code: u16, k: u32, hit: usize, miss: usize) -> usize {
        let (mut hit, mut miss) = (hit, miss);
        loop {
            match (u8::try_from(self.distance(hit)), u8::try_from(self.distance(miss))) {
                (Ok(jt), Ok(jf)) => return self.push(code, jt, jf, k),
                (Err(_), _) => hit = self.nearer(hit),
                (_, Err(_)) => miss = self.nearer(miss),
            }
        }
    }

    /// A place within reach that does what `place` does: a copy of a return, or a long jump.
    fn nearer(&mut self, place: usize) -> usize {
        let target = self.reversed[place];
        let near = if target.code == RETURN {
            self.push(RETURN, 0, 0, target.k)
        } else {
            self.push(JUMP, 0, 0, self.distance(place))
        };
        for (_, placed) in self.placed.iter_mut().filter(|(_, placed)| *placed == place) {
            *placed = near;
        }
        near
    }

    /// How many instructions a jump skips that is written next and goes to `place`.
    fn distance(&self, place: usize) -> u32 {
        u32::try_from(self.reversed.len() - place - 1).expect("programs are far shorter than 2^32")
    }

    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> usize {
        self.reversed.push(Instruction { code, jt, jf, k });
        self.reversed.len() - 1
    }
}
