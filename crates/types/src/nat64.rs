//! IPv4 addresses inside IPv6 ones, as a translator between the two networks (NAT64) writes them.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

use crate::IpNetwork;
use crate::text_form::serde_as_text;

/// The lengths that RFC 6052 knows.
const LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];
/// The byte of an address that is always zero; an IPv4 address steps over it.
const RESERVED: usize = 8;

/// A block of IPv6 addresses behind which a translator reaches IPv4 addresses: `64:ff9b::/96`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nat64Prefix(IpNetwork);

/// Why a text is no such block.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a NAT64 prefix is an IPv6 network of 32, 40, 48, 56, 64 or 96 bits, such as 2001:db8:64::/96")]
pub struct Nat64PrefixError;

impl Nat64Prefix {
    pub fn new(network: IpNetwork) -> Result<Self, Nat64PrefixError> {
        (network.is_ipv6() && LENGTHS.contains(&network.length()))
            .then_some(Self(network))
            .ok_or(Nat64PrefixError)
    }

    /// Every prefix under which `translated` would stand for `address`: how a network's prefix is found out from the
    /// answer to a name whose IPv4 address is known (RFC 7050).
    pub fn discover(translated: Ipv6Addr, address: Ipv4Addr) -> impl Iterator<Item = Self> {
        LENGTHS.into_iter().filter_map(move |length| {
            let mask = u128::MAX << (128 - u32::from(length));
            let first = Ipv6Addr::from_bits(translated.to_bits() & mask);
            let prefix = Self::new(IpNetwork::new(first.into(), length).ok()?).ok()?;
            (prefix.embedded(translated) == Some(address)).then_some(prefix)
        })
    }

    /// All addresses below it.
    pub fn network(&self) -> IpNetwork {
        self.0
    }

    pub fn contains(&self, address: Ipv6Addr) -> bool {
        self.0.contains(address.into())
    }

    /// The IPv4 address that the translator dials for this one. `None`: the address is not in the block, or has other
    /// bits set, which a translator may read as it likes.
    pub fn embedded(&self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        if !self.contains(address) {
            return None;
        }
        let bytes = address.octets();
        let mut places = (usize::from(self.0.length()) / 8..bytes.len()).filter(|place| *place != RESERVED);
        let mut next = || places.next().map(|place| bytes[place]);
        let embedded = Ipv4Addr::new(next()?, next()?, next()?, next()?);
        let rest_is_zero = places.all(|place| bytes[place] == 0);
        let reserved_is_zero = self.0.length() == 96 || bytes[RESERVED] == 0;
        (rest_is_zero && reserved_is_zero).then_some(embedded)
    }
}

impl FromStr for Nat64Prefix {
    type Err = Nat64PrefixError;

    fn from_str(text: &str) -> Result<Self, Nat64PrefixError> {
        Self::new(text.parse().map_err(|_| Nat64PrefixError)?)
    }
}

impl fmt::Display for Nat64Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

serde_as_text!(Nat64Prefix);

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Nat64Prefix {
        text.parse().unwrap()
    }

    /// The table of RFC 6052, section 2.4: 192.0.2.33 under a prefix of each length.
    const EXAMPLES: [(&str, &str); 6] = [
        ("2001:db8::/32", "2001:db8:c000:221::"),
        ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
        ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::/96", "2001:db8:122:344::c000:221"),
    ];

    #[test]
    fn the_address_is_found_at_every_length() {
        let wanted = Ipv4Addr::new(192, 0, 2, 33);
        for (text, address) in EXAMPLES {
            let address: Ipv6Addr = address.parse().unwrap();
            assert_eq!(prefix(text).embedded(address), Some(wanted), "{text}");
            let found: Vec<_> = Nat64Prefix::discover(address, wanted).collect();
            assert!(found.contains(&prefix(text)), "{text}: {found:?}");
            assert_eq!(Nat64Prefix::discover(address, Ipv4Addr::new(192, 0, 2, 34)).count(), 0, "{text}");
        }
    }

    #[test]
    fn what_a_translator_could_read_otherwise_is_none() {
        for (text, address) in [
            ("2001:db8::/32", "2001:db8:c000:221:100::"),
            ("2001:db8::/32", "2001:db8:c000:221::1"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:1c0:2:2100::"),
            ("2001:db8::/32", "2001:db9:c000:221::"),
        ] {
            assert_eq!(prefix(text).embedded(address.parse().unwrap()), None, "{text} {address}");
        }
    }

    #[test]
    fn only_what_is_such_a_block_is_read() {
        for text in ["192.0.2.0/24", "2001:db8::/33", "2001:db8::/128", "2001:db8::1/96", "", "64:ff9b::"] {
            assert_eq!(text.parse::<Nat64Prefix>(), Err(Nat64PrefixError), "{text}");
        }
        assert_eq!(prefix("64:ff9b::/96").to_string(), "64:ff9b::/96");
    }
}
