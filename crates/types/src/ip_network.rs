//! A block of addresses, as network rules name it: `192.0.2.0/24`, `2001:db8::/32`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use thiserror::Error;

use crate::text_form::serde_as_text;

/// Every address that begins with the same bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IpNetwork {
    first: IpAddr,
    length: u8,
}

/// Why a text is no network.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a network is its first address and a length, such as 192.0.2.0/24")]
pub struct IpNetworkError;

impl IpNetwork {
    /// The network of this many leading bits. `first` must be its first address: with other bits set it is unclear what
    /// was meant. A network of v4 addresses in their v6 spelling is refused, since matching sees only one spelling.
    pub fn new(first: IpAddr, length: u8) -> Result<Self, IpNetworkError> {
        let mapped = first.to_canonical().is_ipv4() && first.is_ipv6();
        if length > width(first) || mapped {
            return Err(IpNetworkError);
        }
        let network = Self { first, length };
        let trailing = network.trailing_bits();
        let start = network.leading(first).checked_shl(trailing).unwrap_or(0);
        if start == bits(first) { Ok(network) } else { Err(IpNetworkError) }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4() && self.leading(address) == self.leading(self.first)
    }

    /// Just this address.
    pub fn of(address: IpAddr) -> Self {
        let first = address.to_canonical();
        Self { first, length: width(first) }
    }

    /// Whether every address of the other one is in this one.
    pub fn covers(&self, other: &Self) -> bool {
        self.length <= other.length && self.contains(other.first)
    }

    pub fn is_ipv6(&self) -> bool {
        self.first.is_ipv6()
    }

    pub fn first(&self) -> IpAddr {
        self.first
    }

    /// How many leading bits all its addresses share.
    pub fn length(&self) -> u8 {
        self.length
    }

    fn trailing_bits(&self) -> u32 {
        u32::from(width(self.first) - self.length)
    }

    /// The bits that count: none for a length of zero, which shifts all of them out.
    fn leading(&self, address: IpAddr) -> u128 {
        bits(address).checked_shr(self.trailing_bits()).unwrap_or(0)
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl FromStr for IpNetwork {
    type Err = IpNetworkError;

    fn from_str(text: &str) -> Result<Self, IpNetworkError> {
        let (first, length) = text.split_once('/').ok_or(IpNetworkError)?;
        // One spelling only: no sign, no leading zero.
        let plain =
            length.bytes().all(|byte| byte.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
        let length = length.parse().ok().filter(|_| plain).ok_or(IpNetworkError)?;
        Self::new(first.parse().map_err(|_| IpNetworkError)?, length)
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

serde_as_text!(IpNetwork);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(text: &str) -> IpNetwork {
        text.parse().unwrap()
    }

    #[test]
    fn holds_what_begins_alike() {
        for (text, inside, outside) in [
            ("192.0.2.0/24", "192.0.2.255", "192.0.3.0"),
            ("192.0.2.128/25", "192.0.2.128", "192.0.2.127"),
            ("192.0.2.7/32", "192.0.2.7", "192.0.2.6"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "2001:db8::1", "192.0.2.1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::"),
            ("2001:db8::1/128", "2001:db8::1", "2001:db8::2"),
        ] {
            assert!(network(text).contains(inside.parse().unwrap()), "{text} {inside}");
            assert!(!network(text).contains(outside.parse().unwrap()), "{text} {outside}");
        }
        assert!(network("192.0.2.0/24").contains("::ffff:192.0.2.9".parse().unwrap()));
        assert_eq!(IpNetwork::of("192.0.2.7".parse().unwrap()), network("192.0.2.7/32"));
        assert_eq!(IpNetwork::of("::ffff:192.0.2.7".parse().unwrap()), network("192.0.2.7/32"));
    }

    #[test]
    fn covers_what_is_inside() {
        for (outer, inner, covers) in [
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.1.0.0/16", "10.0.0.0/8", false),
            ("10.0.0.0/8", "10.0.0.0/8", true),
            ("10.0.0.0/8", "11.0.0.0/16", false),
            ("0.0.0.0/0", "2001:db8::/32", false),
            ("::/0", "2001:db8::/32", true),
        ] {
            assert_eq!(network(outer).covers(&network(inner)), covers, "{outer} {inner}");
        }
    }

    #[test]
    fn refuses_what_is_unclear() {
        for text in [
            "192.0.2.0",
            "192.0.2.0/",
            "192.0.2.0/33",
            "192.0.2.1/24",
            "192.0.2/24",
            "2001:db8::/129",
            "2001:db8::1/64",
            "192.0.2.0/+8",
            "192.0.2.0/024",
            "1.0.0.0/0",
            "::1/0",
            "::ffff:192.0.2.0/120",
            "fe80::%lo/10",
            "a/8",
        ] {
            assert_eq!(text.parse::<IpNetwork>(), Err(IpNetworkError), "{text}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_comparing_bits(first: u32, other: u32, length in 0u8..=32) {
            let mask = u32::MAX.checked_shl(u32::from(32 - length)).unwrap_or(0);
            let network = IpNetwork::new(IpAddr::V4((first & mask).into()), length).unwrap();
            prop_assert_eq!(network.contains(IpAddr::V4(other.into())), other & mask == first & mask);
            prop_assert_eq!(network.to_string().parse::<IpNetwork>(), Ok(network));
            if first & !mask != 0 {
                prop_assert!(IpNetwork::new(IpAddr::V4(first.into()), length).is_err());
            }
        }
    }
}
