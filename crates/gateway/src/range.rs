//! Parts of files: `Range`, `If-Range`, `ETag`.

use std::time::UNIX_EPOCH;

use http::{HeaderMap, header};
use sandstorm_provider::FileInfo;

/// What part of a file is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    All,
    /// From a place, up to and with another one.
    From {
        first: u64,
        last: Option<u64>,
    },
    /// So many bytes at the end.
    Last(u64),
}

/// The part that a file of some size has of it: first byte and number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) first: u64,
    pub(crate) length: u64,
}

/// Reads `Range`. Several ranges and units that are not bytes mean the whole file, as the standard allows.
pub(crate) fn wanted(headers: &HeaderMap) -> Wanted {
    let text = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    text.and_then(|text| parse(text.strip_prefix("bytes=")?)).unwrap_or(Wanted::All)
}

fn parse(text: &str) -> Option<Wanted> {
    let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => text.parse::<u64>().ok(),
        false => None,
    };
    match text.split_once('-')? {
        ("", last) => number(last).map(Wanted::Last),
        (first, "") => Some(Wanted::From { first: number(first)?, last: None }),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Wanted::From { first, last: Some(last) })
        }
    }
}

impl Wanted {
    /// The part of a file of `size` bytes; `None` when it has nothing of it.
    pub(crate) fn of(self, size: u64) -> Option<Part> {
        let (first, end) = match self {
            Self::All => return Some(Part { first: 0, length: size }),
            Self::From { first, last } => (first, last.map_or(size, |last| last.saturating_add(1).min(size))),
            Self::Last(count) => (size.saturating_sub(count), size),
        };
        (first < end).then(|| Part { first, length: end - first })
    }
}

/// Changes with every write: size and time of the last change.
pub(crate) fn etag(info: &FileInfo) -> String {
    let nanos = info.modified.duration_since(UNIX_EPOCH).map_or(0, |span| span.as_nanos());
    format!("\"{nanos:x}-{:x}\"", info.size.as_u64())
}

/// Whether the client has this version already.
pub(crate) fn unchanged(headers: &HeaderMap, etag: &str) -> bool {
    let given = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    given == "*" || given.split(',').any(|one| one.trim().trim_start_matches("W/") == etag)
}

/// Whether `Range` counts: not when `If-Range` names another version.
pub(crate) fn range_counts(headers: &HeaderMap, etag: &str) -> bool {
    headers.get(header::IF_RANGE).is_none_or(|value| value == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(range: &'static str, size: u64) -> Option<(u64, u64)> {
        let headers = HeaderMap::from_iter([(header::RANGE, http::HeaderValue::from_static(range))]);
        wanted(&headers).of(size).map(|part| (part.first, part.length))
    }

    #[test]
    fn ranges_are_cut_to_the_file() {
        for (range, size, wanted) in [
            ("bytes=0-0", 10, Some((0, 1))),
            ("bytes=2-", 10, Some((2, 8))),
            ("bytes=2-100", 10, Some((2, 8))),
            ("bytes=-3", 10, Some((7, 3))),
            ("bytes=-30", 10, Some((0, 10))),
            ("bytes=0-18446744073709551615", 10, Some((0, 10))),
            ("bytes=10-", 10, None),
            ("bytes=-0", 10, None),
            ("bytes=0-", 0, None),
            ("bytes=-5", 0, None),
        ] {
            assert_eq!(part(range, size), wanted, "{range} of {size}");
        }
    }

    #[test]
    fn what_is_no_range_means_everything() {
        let odd = ["bytes=5-2", "bytes=a-b", "bytes=0-1,3-4", "items=0-1", "bytes=+1-2", "bytes=", "bytes=-"];
        for range in odd.into_iter().chain(["bytes=99999999999999999999-"]) {
            assert_eq!(part(range, 10), Some((0, 10)), "{range}");
        }
    }
}
