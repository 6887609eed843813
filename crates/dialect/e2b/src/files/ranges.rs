//! `Range` and `ETag`.

use std::time::UNIX_EPOCH;

use http::{HeaderMap, header};
use sandstorm_provider::FileInfo;

/// First byte and number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) first: u64,
    pub(super) length: u64,
}

/// What is asked for of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    Part(Part),
    /// The file has nothing there.
    Nothing,
}

/// The part that is wanted of a file. Several parts, and units that are no bytes, mean all of it, as the standard allows.
pub(super) fn wanted(headers: &HeaderMap, info: &FileInfo) -> Wanted {
    let size = info.size.as_u64();
    if headers.get(header::IF_RANGE).is_some_and(|value| value != etag(info).as_str()) {
        return Wanted::All;
    }
    let text = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let Some((first, last)) = text.and_then(|text| text.strip_prefix("bytes=")?.split_once('-')) else {
        return Wanted::All;
    };
    let number =
        |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let (first, end) = match (number(first), number(last)) {
        (Some(first), _) if last.is_empty() => (first, size),
        (Some(first), Some(last)) if first <= last => (first, last.saturating_add(1).min(size)),
        (_, Some(count)) if first.is_empty() => (size.saturating_sub(count), size),
        _ => return Wanted::All,
    };
    match first < end {
        true => Wanted::Part(Part { first, length: end - first }),
        false => Wanted::Nothing,
    }
}

/// Changes with every write.
pub(super) fn etag(info: &FileInfo) -> String {
    let nanos = info.modified.duration_since(UNIX_EPOCH).map_or(0, |span| span.as_nanos());
    format!("\"{nanos:x}-{:x}\"", info.size.as_u64())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use sandstorm_provider::{FileKind, Metadata};
    use sandstorm_types::ByteSize;

    use super::*;

    #[test]
    fn parts_are_cut_to_the_file() {
        let path = "/a".parse().unwrap();
        let info = FileInfo {
            path,
            kind: FileKind::File,
            size: ByteSize::bytes(10),
            mode: 0,
            modified: UNIX_EPOCH,
            target: None,
            owner: None,
            metadata: Metadata::new(),
        };
        let ask = |range: &'static str| {
            wanted(&HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static(range))]), &info)
        };
        let part = |first, length| Wanted::Part(Part { first, length });
        assert_eq!(ask("bytes=0-0"), part(0, 1));
        assert_eq!(ask("bytes=2-"), part(2, 8));
        assert_eq!(ask("bytes=2-99"), part(2, 8));
        assert_eq!(ask("bytes=-3"), part(7, 3));
        assert_eq!(ask("bytes=-99"), part(0, 10));
        assert_eq!(ask("bytes=10-"), Wanted::Nothing);
        for all in ["bytes=5-2", "bytes=a-b", "items=0-1", "bytes=0-1,3-4", "bytes=-", "bytes=+1-2"] {
            assert_eq!(ask(all), Wanted::All, "{all}");
        }
    }
}
