//! The synthetic addresses of one sandbox: which name it was told for which address.
//!
//! The table is bounded. A name that falls out keeps no address; a connection to its old one is refused until the name
//! is asked for again. Addresses are handed out in turn through the whole range, so one that a program still remembers
//! is not soon another's; and if it were, the connection would be judged by the name that the table holds now.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher};
use std::net::Ipv4Addr;

use sandstorm_types::HostName;

/// 198.18.0.0/15 without its first /24, in which the name server's own address lies.
const FIRST: u32 = Ipv4Addr::new(198, 18, 1, 0).to_bits();
const LAST: u32 = Ipv4Addr::new(198, 19, 255, 255).to_bits();

#[derive(Debug)]
pub(crate) struct Names {
    capacity: usize,
    by_name: HashMap<HostName, Ipv4Addr>,
    by_address: HashMap<Ipv4Addr, Entry>,
    /// Oldest use first.
    by_use: BTreeMap<u64, Ipv4Addr>,
    uses: u64,
    next: u32,
}

#[derive(Debug)]
struct Entry {
    name: HostName,
    used: u64,
}

impl Names {
    pub(crate) fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, (LAST - FIRST) as usize / 2);
        Self {
            capacity,
            by_name: HashMap::new(),
            by_address: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            next: somewhere(),
        }
    }

    /// Whether the address is of the kind that this table hands out.
    pub(crate) fn is_synthetic(address: Ipv4Addr) -> bool {
        address.to_bits() >> 17 == FIRST >> 17
    }

    pub(crate) fn contains(&self, name: &HostName) -> bool {
        self.by_name.contains_key(name)
    }

    /// The address that stands for the name, from now on if not already.
    pub(crate) fn address_for(&mut self, name: &HostName) -> Ipv4Addr {
        if let Some(&address) = self.by_name.get(name) {
            self.touch(address);
            return address;
        }
        if self.by_name.len() >= self.capacity {
            self.evict_oldest();
        }
        let address = self.free_address();
        self.uses += 1;
        self.by_name.insert(name.clone(), address);
        self.by_address.insert(address, Entry { name: name.clone(), used: self.uses });
        self.by_use.insert(self.uses, address);
        address
    }

    /// The name that the sandbox was told this address for.
    pub(crate) fn name_of(&mut self, address: Ipv4Addr) -> Option<HostName> {
        self.touch(address);
        self.by_address.get(&address).map(|entry| entry.name.clone())
    }

    fn touch(&mut self, address: Ipv4Addr) {
        if let Some(entry) = self.by_address.get_mut(&address) {
            self.uses += 1;
            self.by_use.remove(&entry.used);
            entry.used = self.uses;
            self.by_use.insert(self.uses, address);
        }
    }

    fn evict_oldest(&mut self) {
        if let Some((_, address)) = self.by_use.pop_first()
            && let Some(entry) = self.by_address.remove(&address)
        {
            self.by_name.remove(&entry.name);
        }
    }

    /// The capacity is at most half of the range, so there is always a free one.
    fn free_address(&mut self) -> Ipv4Addr {
        loop {
            let address = Ipv4Addr::from_bits(self.next);
            self.next = if self.next == LAST { FIRST } else { self.next + 1 };
            if !self.by_address.contains_key(&address) {
                return address;
            }
        }
    }
}

/// Where handing out begins. A sandbox can outlive its table, and its programs remember what they were told: addresses of
/// the next table should not be those of the last.
fn somewhere() -> u32 {
    let random = RandomState::new().build_hasher().finish();
    FIRST + (random % u64::from(LAST - FIRST)) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(index: usize) -> HostName {
        format!("n{index}.example").parse().unwrap()
    }

    #[test]
    fn answers_stay_the_same_while_they_are_used() {
        let mut names = Names::new(2);
        let first = names.address_for(&name(1));
        let second = names.address_for(&name(2));
        assert_ne!(first, second);
        assert_eq!(names.address_for(&name(1)), first);
        // The second is the least recently used by now.
        let third = names.address_for(&name(3));
        assert_eq!(names.name_of(second), None);
        assert_eq!(names.name_of(first), Some(name(1)));
        assert_eq!(names.name_of(third), Some(name(3)));
    }

    #[test]
    fn knows_its_range() {
        for (address, synthetic) in [
            ("198.17.255.255", false),
            ("198.18.0.0", true),
            ("198.18.0.1", true),
            ("198.19.255.255", true),
            ("198.20.0.0", false),
        ] {
            assert_eq!(Names::is_synthetic(address.parse().unwrap()), synthetic, "{address}");
        }
    }

    #[test]
    fn a_new_table_begins_elsewhere() {
        let first = |_| Names::new(1).address_for(&name(0));
        let beginnings: std::collections::HashSet<_> = (0..64).map(first).collect();
        assert!(beginnings.len() > 50, "{beginnings:?}");
    }

    #[test]
    fn goes_round_the_whole_range() {
        let mut names = Names::new(1);
        let first = names.address_for(&name(0));
        for index in 1..=(LAST - FIRST) as usize {
            assert_ne!(names.address_for(&name(index)), first);
        }
        assert_eq!(names.address_for(&name(usize::MAX)), first);
        assert_eq!(names.name_of(first), Some(name(usize::MAX)));
    }

    proptest! {
        #[test]
        fn both_directions_agree_and_stay_bounded(asked in prop::collection::vec(0..40usize, 1..400), capacity in 1..20usize) {
            let mut names = Names::new(capacity);
            for index in asked {
                let address = names.address_for(&name(index));
                prop_assert!(Names::is_synthetic(address));
                prop_assert_eq!(names.name_of(address), Some(name(index)));
                prop_assert!(names.by_name.len() <= capacity);
                prop_assert_eq!(names.by_name.len(), names.by_address.len());
                prop_assert_eq!(names.by_name.len(), names.by_use.len());
            }
        }
    }
}
