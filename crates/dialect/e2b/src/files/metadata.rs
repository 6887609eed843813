//! What a client wants to be kept with files, as headers say it.

use http::{HeaderMap, HeaderValue};
use sandstorm_provider::{MOST_METADATA, Metadata};

use crate::refusal::Refusal;

/// What the names of such headers begin with.
const PREFIX: &str = "x-metadata-";
/// Longest name: the kernel takes 255 bytes, and some are ours.
const LONGEST_NAME: usize = 246;

/// The metadata of all files of a request. Names are in lower case, as headers are.
pub(super) fn of(headers: &HeaderMap) -> Result<Metadata, Refusal> {
    let mut metadata = Metadata::new();
    let mut size = 0;
    for (header, value) in headers {
        let Some(name) = header.as_str().strip_prefix(PREFIX) else { continue };
        if name.is_empty() || name.len() > LONGEST_NAME {
            return Err(Refusal::invalid(format!("a name of metadata has 1 to {LONGEST_NAME} bytes")));
        }
        let text = plain(value).ok_or_else(|| {
            Refusal::invalid(format!("the metadata '{name}' has other than printable ASCII characters"))
        })?;
        size += name.len() + text.len();
        if size > MOST_METADATA {
            let message = format!("the metadata of a file has at most {MOST_METADATA} bytes");
            return Err(Refusal::invalid(message));
        }
        if metadata.insert(name.to_owned(), text).is_some() {
            return Err(Refusal::invalid(format!("the metadata '{name}' is given twice")));
        }
    }
    Ok(metadata)
}

fn plain(value: &HeaderValue) -> Option<String> {
    let bytes = value.as_bytes();
    let printable = bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
    if printable { String::from_utf8(bytes.to_vec()).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    fn headers(pairs: &[(&str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn names_are_in_lower_case_and_texts_as_they_are() {
        let given =
            headers(&[("X-Metadata-Author", b"Ada L."), ("content-type", b"x"), ("x-metadata-n", b"")]);
        let wanted = [("author".to_owned(), "Ada L.".to_owned()), ("n".to_owned(), String::new())];
        assert_eq!(of(&given).unwrap(), Metadata::from(wanted));
        assert!(of(&HeaderMap::new()).unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let long = "x".repeat(LONGEST_NAME + 1);
        let large = vec![b'x'; MOST_METADATA];
        let mut bad = vec![
            headers(&[("x-metadata-", b"v")]),
            headers(&[("x-metadata-k", b"\xc3\xbc")]),
            headers(&[("x-metadata-k", b"a\tb")]),
            headers(&[("x-metadata-k", b"1"), ("x-metadata-k", b"2")]),
            headers(&[("x-metadata-k", &large)]),
        ];
        bad.push(headers(&[(&format!("x-metadata-{long}"), b"v")]));
        for headers in bad {
            assert_eq!(of(&headers).unwrap_err().status(), 400, "{headers:?}");
        }
    }
}
