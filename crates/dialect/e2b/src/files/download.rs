//! Reading a file, whole or in part, packed if that is all that the client takes.

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use sandstorm_provider::{ByteStream, Error, FileInfo, FileKind, ReadRange, Result as ProviderResult};
use sandstorm_types::{ErrorKind, GuestPath, User};

use super::compression;
use super::ranges::{self, Part, Wanted};
use crate::door::Guest;
use crate::query::Query;
use crate::refusal::Refusal;
use crate::rpc;
use crate::state::Dialect;

pub(super) async fn download(
    State(dialect): State<Dialect>,
    Extension(guest): Extension<Guest>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let query = Query::of(&uri);
    let guest = guest.acting_as(user(&query)?);
    let path = guest.resolve(query.get("path").unwrap_or_default())?;
    let open = async |range| -> Result<(FileInfo, ByteStream), Refusal> {
        let opened = dialect.control.read_file(&guest.caller, guest.sandbox, &path, range).await;
        opened.map_err(|error| about(&path, error))
    };
    let (info, _) = open(ReadRange { offset: 0, length: Some(0) }).await?;
    if info.kind != FileKind::File {
        return Err(Refusal::invalid(format!("path '{path}' is a directory or no regular file")));
    }
    if headers.get(header::IF_NONE_MATCH).is_some_and(|value| value == ranges::etag(&info).as_str()) {
        return Ok(described(StatusCode::NOT_MODIFIED.into_response(), &info));
    }
    match ranges::wanted(&headers, &info) {
        Wanted::All => {}
        Wanted::Part(part) => {
            let (now, content) = open(ReadRange { offset: part.first, length: Some(part.length) }).await?;
            return Ok(partial(&now, part, content));
        }
        Wanted::Nothing => {
            let mut response = StatusCode::RANGE_NOT_SATISFIABLE.into_response();
            let range = format!("bytes */{}", info.size.as_u64());
            response.headers_mut().insert(header::CONTENT_RANGE, text(&range));
            return Ok(response);
        }
    }
    let (info, content) = open(ReadRange::default()).await?;
    if takes_only_gzip(&headers) {
        let packed = Box::pin(compression::packed(content));
        let mut response = described(Response::new(Body::from_stream(packed)), &info);
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        return Ok(response);
    }
    let mut response = described(Response::new(Body::from_stream(content)), &info);
    response.headers_mut().insert(header::CONTENT_LENGTH, info.size.as_u64().into());
    Ok(response)
}

fn partial(info: &FileInfo, part: Part, content: ByteStream) -> Response {
    let mut response = described(Response::new(Body::from_stream(content)), info);
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    let range = format!("bytes {}-{}/{}", part.first, part.first + part.length - 1, info.size.as_u64());
    response.headers_mut().insert(header::CONTENT_RANGE, text(&range));
    response.headers_mut().insert(header::CONTENT_LENGTH, part.length.into());
    response
}

/// What is in a sandbox is hostile to the browser that fetches it: nothing runs what has this type.
fn described(mut response: Response, info: &FileInfo) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_DISPOSITION, text(&inline(info.path.file_name().unwrap_or("file"))));
    headers.insert(header::ETAG, text(&ranges::etag(info)));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    response
}

fn text(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// A plain name for old clients, and the exact one percent-encoded.
fn inline(name: &str) -> String {
    let safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let plain: String = name.bytes().map(|b| if safe(&b) { char::from(b) } else { '_' }).collect();
    let exact: String = name
        .bytes()
        .map(|b| if safe(&b) { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect();
    format!("inline; filename=\"{plain}\"; filename*=UTF-8''{exact}")
}

fn takes_only_gzip(headers: &HeaderMap) -> bool {
    let mut taken = headers.get_all(header::ACCEPT_ENCODING).iter();
    taken.next().is_some_and(|value| value == "gzip") && taken.next().is_none()
}

/// The user that an address names, if it is one.
pub(super) fn user(query: &Query) -> Result<Option<User>, Refusal> {
    rpc::user_named(query.get("username").unwrap_or_default())
        .map_err(|error| Refusal::new(StatusCode::UNAUTHORIZED, error.message))
}

/// Says which file is missing.
pub(super) fn about(path: &GuestPath, error: Error) -> Refusal {
    if error.kind() == ErrorKind::NotFound {
        return Refusal::not_found(format!("path '{path}' does not exist"));
    }
    let refused = Refusal::from(error);
    match refused.status() {
        StatusCode::NOT_FOUND => Refusal::not_found(format!("path '{path}' does not exist")),
        _ => refused,
    }
}

/// A body as pieces of a file.
pub(super) fn pieces(body: Body) -> ByteStream {
    use futures_util::StreamExt;
    let broken =
        |error: axum::Error| Error::new(ErrorKind::Cancelled, "the body broke off").with_source(error);
    ByteStream::new(body.into_data_stream().map(move |piece| -> ProviderResult<_> { piece.map_err(broken) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_their_header() {
        assert_eq!(inline("a.txt"), "inline; filename=\"a.txt\"; filename*=UTF-8''a.txt");
        let odd = inline("a\"\r\nb ü");
        assert!(HeaderValue::from_str(&odd).is_ok() && !odd.contains('\n'), "{odd}");
    }

    #[test]
    fn only_who_takes_nothing_else_gets_gzip() {
        let with = |value: &'static str| {
            HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(value))])
        };
        assert!(takes_only_gzip(&with("gzip")));
        assert!(!takes_only_gzip(&with("gzip, deflate")) && !takes_only_gzip(&HeaderMap::new()));
    }
}
