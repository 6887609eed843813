//! Signatures of file addresses, as E2B's SDKs make them from a sandbox's token.

use data_encoding::BASE64_NOPAD;
use ring::digest::{Context, SHA256};
use subtle::ConstantTimeEq;

use crate::query::Query;

/// The longest path that a kernel takes, and more than a user, a signature or a time is long. What is longer is refused before
/// anything is worked out for it: who comes with a signature has no key yet.
const LONGEST_PATH: usize = 4096;
const LONGEST_WORD: usize = 128;
/// What a signature begins with, before the text of a hash.
const VERSION: &str = "v1_";

/// What a signature is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
}

/// A signed address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signed<'a> {
    path: &'a str,
    user: &'a str,
    signature: &'a str,
    /// Seconds since 1970, as it was written.
    expiration: Option<&'a str>,
    operation: Operation,
}

impl<'a> Signed<'a> {
    /// `None` when the address has no signature, or what nobody signs.
    pub(crate) fn of(query: &'a Query, operation: Operation) -> Option<Self> {
        let part = |name: &str, longest: usize| {
            let text = query.get(name).unwrap_or_default();
            (text.len() <= longest).then_some(text)
        };
        Some(Self {
            path: part("path", LONGEST_PATH)?,
            user: part("username", LONGEST_WORD)?,
            signature: part("signature", LONGEST_WORD).filter(|text| is_signature(text))?,
            expiration: Some(part("signature_expiration", LONGEST_WORD)?).filter(|text| !text.is_empty()),
            operation,
        })
    }

    /// Whether it was made with a token that is asked about. What all answers have in common is worked out once, however
    /// many are asked about.
    pub(crate) fn matcher(&self) -> impl Fn(&str) -> bool {
        let operation = match self.operation {
            Operation::Read => "read",
            Operation::Write => "write",
        };
        let mut common = Context::new(&SHA256);
        common.update(format!("{}:{operation}:{}:", self.path, self.user).as_bytes());
        move |token| {
            let mut own = common.clone();
            own.update(token.as_bytes());
            if let Some(expiration) = self.expiration {
                own.update(b":");
                own.update(expiration.as_bytes());
            }
            let expected = format!("{VERSION}{}", BASE64_NOPAD.encode(own.finish().as_ref()));
            bool::from(expected.as_bytes().ct_eq(self.signature.as_bytes()))
        }
    }

    /// Whether it was made with this token.
    #[cfg(test)]
    pub(crate) fn matches(&self, token: &str) -> bool {
        self.matcher()(token)
    }

    /// Whether its time is over. One that cannot be read never was good.
    pub(crate) fn is_expired(&self, now: i64) -> bool {
        self.expiration.is_some_and(|text| text.parse::<i64>().map_or(true, |end| end < now))
    }
}

/// Whether this has the form of a signature, true or not.
fn is_signature(text: &str) -> bool {
    let hash = text.strip_prefix(VERSION).and_then(|hash| BASE64_NOPAD.decode(hash.as_bytes()).ok());
    hash.is_some_and(|hash| hash.len() == SHA256.output_len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Query {
        Query::of(&format!("/files?{text}").parse().unwrap())
    }

    #[test]
    fn agrees_with_the_sdk() {
        // Both made by the Python SDK for the token `token`.
        let read = query("path=/a%20b.txt&signature=v1_AItRVC4LAbemb0KEzBsle6MPE9cNPBG5Cq90mNwVdEk");
        let signed = Signed::of(&read, Operation::Read).unwrap();
        assert!(signed.matches("token") && !signed.matches("other") && !signed.is_expired(i64::MAX));
        let write = query(
            "path=/a%20b.txt&username=root&signature_expiration=1005\
             &signature=v1_/fgX0WcKDz817cZVA8nbRT88FFQlN7ZQFip1fcotQWM",
        );
        let signed = Signed::of(&write, Operation::Write).unwrap();
        assert!(signed.matches("token") && !signed.is_expired(1005) && signed.is_expired(1006));
    }

    #[test]
    fn what_nobody_signs_costs_nothing() {
        let long = |length: usize| "a".repeat(length);
        let asked = |path: usize, user: usize, signature: usize, end: usize| {
            let (path, user, signature, end) = (long(path), long(user), "A".repeat(signature), long(end));
            let text =
                format!("path=/{path}&username={user}&signature=v1_{signature}&signature_expiration={end}");
            Signed::of(&query(&text), Operation::Read).is_some()
        };
        assert!(asked(4095, 10, 43, 10));
        for (path, user, signature, end) in [
            (4096, 1, 43, 1),
            (1, 60_000, 43, 1),
            (1, 1, 60_000, 1),
            (1, 1, 43, 60_000),
            (1, 1, 42, 1),
            (1, 1, 44, 1),
            (1, 1, 0, 1),
        ] {
            assert!(!asked(path, user, signature, end), "{path} {user} {signature} {end}");
        }
        let good = "A".repeat(43);
        for odd in ["".to_owned(), good.clone(), format!("v2_{good}"), format!("v1_-{}", &good[1..])] {
            assert!(
                Signed::of(&query(&format!("path=/a&signature={odd}")), Operation::Read).is_none(),
                "{odd}"
            );
        }
    }

    #[test]
    fn everything_that_is_signed_counts() {
        use ring::digest::digest;
        let sign =
            |text: &str| BASE64_NOPAD.encode(digest(&SHA256, text.as_bytes()).as_ref()).replace('+', "%2B");
        let good = sign("/a:write:root:t:99");
        let ask = |path: &str, user: &str, end: &str, operation| {
            let query =
                query(&format!("path={path}&username={user}&signature=v1_{good}&signature_expiration={end}"));
            let signed = Signed::of(&query, operation).unwrap();
            (signed.matches("t"), signed.is_expired(100))
        };
        assert_eq!(ask("/a", "root", "99", Operation::Write), (true, true));
        for (path, user, end, operation) in [
            ("/b", "root", "99", Operation::Write),
            ("/a", "user", "99", Operation::Write),
            ("/a", "root", "999", Operation::Write),
            ("/a", "root", "99", Operation::Read),
            ("/a", "root", "", Operation::Write),
        ] {
            assert!(!ask(path, user, end, operation).0, "{path} {user} {end}");
        }
        assert!(Signed::of(&query("path=/a"), Operation::Read).is_none());
        assert!(Signed::of(&query("path=/a&signature="), Operation::Read).is_none());
        let odd = query(&format!("signature=v1_{good}&signature_expiration=soon"));
        assert!(Signed::of(&odd, Operation::Read).unwrap().is_expired(0));
    }
}
