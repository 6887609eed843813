//! W3C trace context: read strictly from the request, written into the answer.

use std::fmt;

use http::HeaderMap;
use sandstorm_types::ExecId;

pub(crate) const TRACEPARENT: &str = "traceparent";

/// The trace that a request belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) id: u128,
    /// Our part of it.
    span: u64,
    sampled: bool,
}

impl Trace {
    /// The caller's trace, or a new one when there is none or it is malformed.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let given = values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok());
        let fresh = ExecId::random().bits();
        let span = (fresh >> 64) as u64 | 1;
        match given.and_then(parse) {
            Some((id, sampled)) => Self { id, span, sampled },
            None => Self { id: ExecId::random().bits() | 1, span, sampled: false },
        }
    }
}

/// `00-<32 hex>-<16 hex>-<2 hex>`, lower case, neither id zero. Later versions may add fields at the end.
fn parse(text: &str) -> Option<(u128, bool)> {
    let hex = |text: &str, length: usize| {
        let digits =
            text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        digits.then(|| u128::from_str_radix(text, 16).ok()).flatten()
    };
    let mut parts = text.splitn(5, '-');
    let version = hex(parts.next()?, 2)?;
    let id = hex(parts.next()?, 32)?;
    let parent = hex(parts.next()?, 16)?;
    let flags = hex(parts.next()?, 2)?;
    let known = version == 0 && parts.next().is_none() || (1..0xff).contains(&version);
    (known && id != 0 && parent != 0).then_some((id, flags & 1 == 1))
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.id, self.span, u8::from(self.sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_good_parent_is_continued() {
        let headers = HeaderMap::from_iter([(TRACEPARENT.parse().unwrap(), GOOD.parse().unwrap())]);
        let trace = Trace::of(&headers);
        assert_eq!(trace.id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        let written = trace.to_string();
        assert_eq!(parse(&written), Some((trace.id, true)));
        assert!(!written.contains("00f067aa0ba902b7"));
    }

    #[test]
    fn a_bad_one_is_replaced() {
        let zero = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let upper = GOOD.to_uppercase();
        for bad in ["", "00", zero, &upper, &GOOD[1..], &format!("{GOOD}-x"), &GOOD.replace("00-4", "ff-4")] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_ne!(Trace::of(&HeaderMap::new()).id, 0);
    }
}
