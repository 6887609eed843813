//! Which addresses are this machine's own.

use std::net::{IpAddr, UdpSocket};

/// Whether the address belongs to this machine, whose services see its own connections as local ones. Only an own
/// address can be bound; asking so needs no list that could be stale.
pub(crate) fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_this_machines_addresses() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(!is_own("8.8.8.8".parse().unwrap()));
    }
}
