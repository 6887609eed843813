//! Where a list goes on: a place in it, marked so that nobody can make one up or use another tenant's.

use data_encoding::BASE64URL_NOPAD;
use ring::hmac;
use sandstorm_provider::Result;
use sandstorm_types::{TenantId, Timestamp};

use super::Pepper;
use super::failure::invalid;

/// Bytes of a place: a moment and an id.
const PLACE: usize = 8 + 16;
/// Bytes of the mark that are kept: as hard to guess as an id.
const MARK: usize = 16;

/// The last thing on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: Timestamp,
    pub(super) id: u128,
}

/// Which list: the tenant's, with these filters.
#[derive(Debug, Clone, Copy)]
pub(super) struct List<'a> {
    pub(super) tenant: TenantId,
    /// Any text that is the same for the same filters.
    pub(super) filters: &'a str,
}

pub(super) fn encode(pepper: &Pepper, list: List<'_>, place: Place) -> String {
    let mut bytes = place_bytes(place).to_vec();
    bytes.extend_from_slice(&mark(pepper, list, &bytes));
    BASE64URL_NOPAD.encode(&bytes)
}

pub(super) fn decode(pepper: &Pepper, list: List<'_>, cursor: &str) -> Result<Place> {
    let wrong = || invalid("the cursor is not one of this list");
    if cursor.len() > 2 * (PLACE + MARK) {
        return Err(wrong());
    }
    let bytes = BASE64URL_NOPAD.decode(cursor.as_bytes()).map_err(|_| wrong())?;
    let (place, given) = bytes.split_first_chunk::<PLACE>().ok_or_else(wrong)?;
    let same = subtle::ConstantTimeEq::ct_eq(given, mark(pepper, list, place).as_slice());
    if !bool::from(same) {
        return Err(wrong());
    }
    let (at, id) = place.split_first_chunk::<8>().ok_or_else(wrong)?;
    let id: [u8; 16] = id.try_into().map_err(|_| wrong())?;
    Ok(Place { at: Timestamp::from_millis(i64::from_be_bytes(*at)), id: u128::from_be_bytes(id) })
}

fn place_bytes(place: Place) -> [u8; PLACE] {
    let mut bytes = [0; PLACE];
    bytes[..8].copy_from_slice(&place.at.millis().to_be_bytes());
    bytes[8..].copy_from_slice(&place.id.to_be_bytes());
    bytes
}

fn mark(pepper: &Pepper, list: List<'_>, place: &[u8]) -> [u8; MARK] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &pepper.0);
    let mut mac = hmac::Context::with_key(&key);
    mac.update(b"sandstorm list cursor\0");
    mac.update(&list.tenant.bits().to_be_bytes());
    mac.update(place);
    mac.update(list.filters.as_bytes());
    let mut mark = [0; MARK];
    mark.copy_from_slice(&mac.sign().as_ref()[..MARK]);
    mark
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_good_for_its_own_list_only() {
        let pepper = Pepper([7; 32]);
        let list = List { tenant: TenantId::LOCAL, filters: "sandboxes ready" };
        let place = Place { at: Timestamp::from_millis(-5), id: 99 };
        let cursor = encode(&pepper, list, place);
        assert_eq!(decode(&pepper, list, &cursor).unwrap(), place);
        let other_tenant = List { tenant: TenantId::from_bits(1), ..list };
        let other_filter = List { filters: "sandboxes", ..list };
        assert!(decode(&pepper, other_tenant, &cursor).is_err());
        assert!(decode(&pepper, other_filter, &cursor).is_err());
        assert!(decode(&Pepper([8; 32]), list, &cursor).is_err());
        for place in 0..cursor.len() {
            let mut forged = cursor.clone().into_bytes();
            forged[place] = if forged[place] == b'A' { b'B' } else { b'A' };
            assert!(decode(&pepper, list, &String::from_utf8(forged).unwrap()).is_err(), "{place}");
        }
        for bad in ["", "AAAA", "!", &"A".repeat(10_000)] {
            assert!(decode(&pepper, list, bad).is_err());
        }
    }
}
