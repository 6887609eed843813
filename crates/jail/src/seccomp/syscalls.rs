//! Names and numbers of system calls, per architecture.

mod aarch64;
mod x86_64;

/// A CPU architecture that the jail knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    X86_64,
    Aarch64,
}

impl Arch {
    pub const ALL: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

    /// The architecture that this program was built for.
    pub const fn host() -> Arch {
        if cfg!(target_arch = "x86_64") {
            Arch::X86_64
        } else if cfg!(target_arch = "aarch64") {
            Arch::Aarch64
        } else {
            panic!("only x86-64 and aarch64 have a table of system calls")
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        }
    }

    /// The kernel's `AUDIT_ARCH_*`: ELF machine, 64 bits, little endian.
    pub const fn audit(self) -> u32 {
        match self {
            Arch::X86_64 => 0xC000_003E,
            Arch::Aarch64 => 0xC000_00B7,
        }
    }

    /// Every call of Linux 6.18 with its number, in the order of the numbers.
    pub const fn syscalls(self) -> &'static [(&'static str, u32)] {
        match self {
            Arch::X86_64 => x86_64::TABLE,
            Arch::Aarch64 => aarch64::TABLE,
        }
    }

    pub fn number(self, name: &str) -> Option<u32> {
        self.syscalls().iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
    }

    pub fn syscall_name(self, number: u32) -> Option<&'static str> {
        let table = self.syscalls();
        table.binary_search_by_key(&number, |(_, known)| *known).ok().map(|index| table[index].0)
    }
}
