//! The client's first bytes: what it speaks, and whether it may say that here.

use std::collections::BTreeMap;

use sandstorm_types::HostName;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use super::connection::{check_hello, check_name};
use super::relay::Cut;
use super::report::Refusal;
use super::shared::Shared;
use crate::hello::Hellos;
use crate::http::{Opening, Requests, classify};
use crate::limits::ServerName;

const HTTP_PORT: u16 = 80;

/// What happens before the client's bytes flow freely.
#[derive(Debug)]
pub(super) struct Held<'a> {
    /// Bytes already read from the client.
    pub(super) first: Vec<u8>,
    /// If the client opens with TLS or HTTP, it must name this server.
    pub(super) name: Option<&'a HostName>,
    pub(super) port: u16,
    /// What plain HTTP requests get on their way.
    pub(super) headers: Option<&'a BTreeMap<String, String>>,
}

/// How the client's bytes go on: those that were read first, and what follows.
#[derive(Debug)]
pub(super) enum Speech<'a> {
    Free,
    /// Records, of which every hello must name this server.
    Tls(&'a HostName, Hellos),
    /// Requests, of which every one must be for this server.
    Http(Requests<'a>),
}

impl Speech<'_> {
    /// Takes what the client sent and returns what may go on. After an error nothing may.
    pub(super) fn take(&mut self, shared: &Shared, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
        match self {
            Self::Free => Ok(bytes.to_vec()),
            Self::Tls(name, hellos) => hellos.take(bytes, |hello| check_name(shared, hello, name)),
            Self::Http(requests) => requests.take(bytes),
        }
    }

    /// Why the client may not end here, if it may not: something that is looked at as a whole is not whole.
    pub(super) fn unfinished(&self) -> Option<Refusal> {
        match self {
            Self::Tls(_, hellos) if hellos.is_within_hello() => Some(Refusal::MalformedHello),
            Self::Http(requests) if requests.is_within_head() => Some(Refusal::MalformedRequest),
            _ => None,
        }
    }
}

/// Reads until it is clear what the client speaks, and checks what must be checked before any of it goes on. Returns the
/// bytes read too.
pub(super) async fn listen<'a>(
    shared: &Shared,
    client: &mut (impl AsyncRead + Unpin),
    held: Held<'a>,
) -> Result<(Speech<'a>, Vec<u8>), Cut> {
    let Held { mut first, name, port, headers } = held;
    let Some(name) = name else { return Ok((Speech::Free, first)) };
    let strict_http = port == HTTP_PORT && shared.server_name() == ServerName::Strict;
    match opening(shared, client, &mut first).await? {
        Opening::Tls if headers.is_some() => Err(Refusal::HeadersInTls.into()),
        Opening::Tls => {
            let first = check_hello(shared, client, name, first).await?;
            Ok((Speech::Tls(name, Hellos::new()), first))
        }
        Opening::Http => Ok((Speech::Http(Requests::new(name, port).with_headers(headers)), first)),
        Opening::Other | Opening::Undecided if strict_http && !first.is_empty() => {
            Err(Refusal::NotHttp.into())
        }
        Opening::Other | Opening::Undecided => Ok((Speech::Free, first)),
    }
}

/// What the client's first bytes are. The server may speak before them, so the first is waited for without end; one that
/// begins like a request and then stalls could go on to be one, so the rest is not.
async fn opening(
    shared: &Shared,
    client: &mut (impl AsyncRead + Unpin),
    first: &mut Vec<u8>,
) -> Result<Opening, Cut> {
    if first.is_empty() {
        client.read_buf(first).await.map_err(|_| Cut::Closed)?;
    }
    let decide = async {
        while !first.is_empty() {
            match classify(first) {
                // At the end of the stream nothing can become a request any more.
                Opening::Undecided if client.read_buf(first).await.map_err(|_| Cut::Closed)? == 0 => break,
                Opening::Undecided => {}
                decided => return Ok(decided),
            }
        }
        Ok(Opening::Undecided)
    };
    timeout(shared.limits().hello_timeout, decide).await.map_err(|_| Refusal::MalformedRequest)?
}
