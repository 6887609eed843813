//! Which addresses are public: the only ones that a sandbox may reach by its own policy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::IpNetwork;

/// IPv4 networks that are not the public internet, as first address and prefix length. Two single addresses among them
/// look public, but a cloud answers there for the machine itself: Azure's host agent, which hands out the machine's
/// certificates, and the metadata of Equinix Metal. All other clouds use ranges that nobody routes.
const SPECIAL_V4: [(Ipv4Addr, u32); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 80, 8, 124), 32),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Networks inside 2000::/3 that are not plain public addresses: Teredo and the other protocol assignments,
/// documentation (both blocks), and 6to4, which carries an IPv4 address.
const SPECIAL_V6: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Interface identifiers of ISATAP, in which an IPv4 address follows: with the bit for a globally unique one, and without.
const ISATAP: [u32; 2] = [0x0000_5efe, 0x0200_5efe];

/// Whether the address is a public unicast one. For IPv6 this starts from the one block that is handed out, so mapped,
/// translated, local and future forms are all out without being listed. A tunnel to an IPv4 address can begin in any
/// network of that block (ISATAP), so its interface identifiers are out as well.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !SPECIAL_V4.iter().any(|&(network, length)| {
            let shift = 32 - length;
            address.to_bits() >> shift == network.to_bits() >> shift
        }),
        IpAddr::V6(address) => {
            let handed_out = address.segments()[0] & 0xe000 == 0x2000;
            let identifier = (address.to_bits() >> 32) as u32;
            handed_out
                && !ISATAP.contains(&identifier)
                && !SPECIAL_V6.iter().any(|&(network, length)| {
                    let shift = 128 - length;
                    address.to_bits() >> shift == network.to_bits() >> shift
                })
        }
    }
}

/// The networks in which public addresses lie: all of IPv4, and the one block of IPv6 that is handed out.
pub fn public_networks() -> impl Iterator<Item = IpNetwork> {
    let all = [(Ipv4Addr::UNSPECIFIED.into(), 0), (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0).into(), 3)];
    all.into_iter().filter_map(|(first, length)| IpNetwork::new(first, length).ok())
}

/// The networks inside those that are not public. What is in none of them is, but for interface identifiers of ISATAP,
/// which no list of networks can name.
pub fn special_networks() -> impl Iterator<Item = IpNetwork> {
    let v4 = SPECIAL_V4.into_iter().map(|(first, length)| (IpAddr::from(first), length));
    let v6 = SPECIAL_V6.into_iter().map(|(first, length)| (IpAddr::from(first), length));
    v4.chain(v6).filter_map(|(first, length)| IpNetwork::new(first, u8::try_from(length).ok()?).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn networks_and_addresses_say_the_same() {
        assert_eq!(special_networks().count(), SPECIAL_V4.len() + SPECIAL_V6.len());
        for text in [
            "8.8.8.8",
            "10.1.2.3",
            "169.254.169.254",
            "2001:db8::1",
            "2a00::1",
            "fe80::1",
            "::1",
            "203.0.113.9",
        ] {
            let address: IpAddr = text.parse().unwrap();
            let inside = |network: IpNetwork| network.contains(address);
            let public = public_networks().any(inside) && !special_networks().any(inside);
            assert_eq!(public, is_public(address), "{text}");
        }
    }

    #[test]
    fn refuses_every_special_range_at_both_ends() {
        for text in [
            "0.0.0.0",
            "0.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "100.100.100.200",
            "168.63.129.16",
            "169.254.169.254",
            "169.254.170.2",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.80.8.124",
            "192.88.99.1",
            "192.168.0.0",
            "192.168.255.255",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:20::1",
            "2001:1ff:ffff::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:808:808::1",
            "3fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2a00:1::5efe:a00:1",
            "2a00:1::200:5efe:808:808",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn neighbours_of_special_ranges_are_public() {
        for text in [
            "1.0.0.0",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.80.8.123",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2003::1",
            "2606:4700::1111",
            "2a00:5efe::a00:1",
            "3ffe::1",
        ] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_form_of_a_v4_address_inside_v6_is_public(bits: u32) {
            let v4 = Ipv4Addr::from_bits(bits);
            let low = u128::from(bits);
            for v6 in [
                v4.to_ipv6_mapped(),
                v4.to_ipv6_compatible(),
                Ipv6Addr::from_bits((0x64_ff9b_u128 << 96) | low),
                Ipv6Addr::from_bits((0x2002_u128 << 112) | (low << 80)),
                Ipv6Addr::from_bits((0x2001_u128 << 112) | low),
            ] {
                prop_assert!(!is_public(v6.into()), "{}", v6);
            }
        }

        #[test]
        fn never_wider_than_the_standard_library(bits: u32) {
            let v4 = Ipv4Addr::from_bits(bits);
            if v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast() || v4.is_broadcast()
                || v4.is_documentation() || v4.is_unspecified()
            {
                prop_assert!(!is_public(v4.into()));
            }
        }
    }
}
