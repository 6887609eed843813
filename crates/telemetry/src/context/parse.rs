//! The grammar of `traceparent` and `tracestate`, W3C Trace Context level 1.

/// Longer lists are not handed on.
const MAX_STATE_BYTES: usize = 512;
const MAX_STATE_MEMBERS: usize = 32;

/// Trace, span, sampled.
pub(super) fn traceparent(text: &str) -> Option<(u128, u64, bool)> {
    let bytes = text.as_bytes();
    if bytes.len() < 55 || bytes.len() > 512 || [2, 35, 52].iter().any(|at| bytes[*at] != b'-') {
        return None;
    }
    let version = hex(&bytes[..2])?;
    // Version 0 ends here. A later one may say more behind a further dash; what comes before means the same.
    let ends = match version {
        0 => bytes.len() == 55,
        0xff => false,
        _ => bytes.len() == 55 || bytes[55] == b'-',
    };
    let (trace, span, flags) = (hex(&bytes[3..35])?, hex(&bytes[36..52])?, hex(&bytes[53..55])?);
    let span = u64::try_from(span).ok()?;
    (ends && trace != 0 && span != 0).then_some((trace, span, flags & 1 == 1))
}

/// Lower-case digits only: capitals are not allowed.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0_u128, |value, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u128::from(digit))
    })
}

/// One list from all the headers, or nothing when it is too long or any member is wrong.
pub(super) fn tracestate<'a>(headers: impl Iterator<Item = &'a [u8]>) -> Option<String> {
    let mut members: Vec<&str> = Vec::new();
    for header in headers {
        for member in std::str::from_utf8(header).ok()?.split(',') {
            let member = member.trim_matches([' ', '\t']);
            // Empty members are allowed, and say nothing.
            if member.is_empty() {
                continue;
            }
            let (key, value) = member.split_once('=')?;
            let repeated =
                members.iter().any(|earlier| earlier.split_once('=').is_some_and(|(name, _)| name == key));
            if repeated || !is_key(key) || !is_value(value) || members.len() == MAX_STATE_MEMBERS {
                return None;
            }
            members.push(member);
        }
    }
    let list = members.join(",");
    (list.len() <= MAX_STATE_BYTES).then_some(list)
}

fn is_key(key: &str) -> bool {
    let part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/".contains(&byte);
    let plain = |text: &str, longest: usize| (1..=longest).contains(&text.len()) && text.bytes().all(part);
    match key.split_once('@') {
        None => plain(key, 256) && key.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()),
        Some((tenant, system)) => {
            plain(tenant, 241) && plain(system, 14) && system.starts_with(|c: char| c.is_ascii_lowercase())
        }
    }
}

fn is_value(value: &str) -> bool {
    let part = |byte: u8| (0x20..=0x7e).contains(&byte) && byte != b',' && byte != b'=';
    (1..=256).contains(&value.len()) && value.bytes().all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn parents_are_exact() {
        let read = |text: &str| traceparent(text).map(|(_, _, sampled)| sampled);
        assert_eq!(read(&format!("00-{TRACE}-{SPAN}-01")), Some(true));
        assert_eq!(read(&format!("00-{TRACE}-{SPAN}-02")), Some(false));
        assert_eq!(read(&format!("cc-{TRACE}-{SPAN}-01")), Some(true));
        assert_eq!(read(&format!("cc-{TRACE}-{SPAN}-01-more")), Some(true));
        let zeros = "0".repeat(32);
        for wrong in [
            String::new(),
            format!("00-{TRACE}-{SPAN}-0"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}-01 "),
            format!(" 00-{TRACE}-{SPAN}-01"),
            format!("cc-{TRACE}-{SPAN}-01more"),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("0x-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{zeros}-{SPAN}-01"),
            format!("00-{TRACE}-{}-01", &zeros[..16]),
            format!("00_{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}{SPAN}--01"),
            format!("cc-{TRACE}-{SPAN}-01-{}", "x".repeat(600)),
        ] {
            assert_eq!(traceparent(&wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn states_are_bounded() {
        let read = |headers: &[&str]| tracestate(headers.iter().map(|header| header.as_bytes()));
        assert_eq!(read(&[]).as_deref(), Some(""));
        assert_eq!(read(&["a=1 , ,b@c=x y", "d=~"]).as_deref(), Some("a=1,b@c=x y,d=~"));
        for wrong in ["a", "a=", "=1", "A=1", "a=1,a=2", "a=b=c", "a=\u{7}", "a b=1", "@x=1", "a=é"] {
            assert_eq!(read(&[wrong]), None, "{wrong:?}");
        }
        let many: Vec<_> = (0..33).map(|n| format!("k{n}=1")).collect();
        assert_eq!(read(&[&many.join(",")]), None);
        assert!(read(&[&many[..32].join(",")]).is_some());
        assert_eq!(read(&[&format!("a={},b={}", "x".repeat(256), "x".repeat(256))]), None);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(text in proptest::collection::vec(proptest::num::u8::ANY, 0..80), near in "[0-9a-f-]{53,58}") {
            let _ = traceparent(&String::from_utf8_lossy(&text));
            let _ = traceparent(&near);
            let _ = tracestate(std::iter::once(text.as_slice()));
        }
    }
}
