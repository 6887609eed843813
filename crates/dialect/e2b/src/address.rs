//! Which sandbox and port a request is for: by its host, `{port}-{id}.{domain}`, or by two headers.

use std::convert::Infallible;
use std::net::IpAddr;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{HeaderMap, header};
use sandstorm_e2b_wire::{ENVD_PORT, INTERPRETER_PORT};
pub(crate) use sandstorm_e2b_wire::{PORT_HEADER, SANDBOX_HEADER};
use sandstorm_types::SandboxId;

use crate::process;
use crate::refusal::Refusal;
use crate::state::Dialect;

/// Where a request wants to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) sandbox: String,
    pub(crate) port: u16,
    /// Named by a host that only this port of this sandbox has.
    pub(crate) own_host: bool,
}

impl Dialect {
    /// Whether a request is for a sandbox, by its host or its headers, or asks whether a page may make one.
    pub fn claims(&self, parts: &Parts) -> bool {
        let named = [SANDBOX_HEADER, PORT_HEADER].iter().any(|name| parts.headers.contains_key(*name));
        named || self.host_address(parts).is_some() || self.is_preflight(parts)
    }

    /// Whether the body of a request that is claimed has no end of its own: it is input for a program.
    pub fn is_endless(&self, parts: &Parts) -> bool {
        self.address(parts).is_ok_and(|address| match address.port {
            ENVD_PORT => parts.uri.path() == process::STREAM_INPUT,
            port => port != INTERPRETER_PORT,
        })
    }

    /// `{port}-{id}.{domain}`.
    pub(crate) fn host_address(&self, parts: &Parts) -> Option<Address> {
        let host = named_host(parts)?;
        let name = host.split(':').next().unwrap_or_default();
        let (label, domain) = name.split_once('.')?;
        let (port, sandbox) = label.split_once('-')?;
        if let Some(own) = &self.settings.domain {
            let own = own.split(':').next().unwrap_or_default();
            if !own.eq_ignore_ascii_case(domain) {
                return None;
            }
        }
        SandboxId::from_bare(sandbox).ok()?;
        Some(Address { sandbox: sandbox.to_owned(), port: port_number(port)?, own_host: true })
    }

    pub(crate) fn address(&self, parts: &Parts) -> Result<Address, Refusal> {
        if let Some(address) = self.host_address(parts) {
            return Ok(address);
        }
        let sandbox = one(&parts.headers, SANDBOX_HEADER);
        let port = one(&parts.headers, PORT_HEADER).and_then(port_number);
        match (sandbox, port) {
            (Some(sandbox), Some(port)) => Ok(Address { sandbox: sandbox.to_owned(), port, own_host: false }),
            _ => Err(Refusal::invalid("E2b-Sandbox-Id and E2b-Sandbox-Port must both be given, once")),
        }
    }
}

/// The domain below which sandboxes have hosts, as an answer names it: the configured one, or the name that the request
/// called this server by. No answer leads to another server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Here(pub(crate) String);

impl Here {
    pub(crate) fn of(dialect: &Dialect, parts: &Parts) -> Self {
        let configured = dialect.settings.domain.clone();
        Self(configured.unwrap_or_else(|| below(named_host(parts).unwrap_or_default())))
    }
}

impl FromRequestParts<Dialect> for Here {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, dialect: &Dialect) -> Result<Self, Infallible> {
        Ok(Self::of(dialect, parts))
    }
}

/// The host that a request names, with its port.
fn named_host(parts: &Parts) -> Option<&str> {
    let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    host.or_else(|| parts.uri.authority().map(http::uri::Authority::as_str))
}

/// The domain of sandboxes, by the host of the API. `api.` is where clients look for the API below a domain. An address of
/// this machine has no names below it, but `localhost` has.
fn below(host: &str) -> String {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port_number(port).is_some() && !name.ends_with(':') => (name, Some(port)),
        _ => (host, None),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let name = match address {
        Ok(address) if address.is_loopback() => "localhost",
        Err(_) if name.is_empty() || !name.bytes().all(plain) => "localhost",
        Err(_) => name.strip_prefix("api.").filter(|rest| !rest.is_empty()).unwrap_or(name),
        Ok(_) => name,
    };
    match port {
        Some(port) => format!("{name}:{port}"),
        None => name.to_owned(),
    }
}

fn port_number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The one value of a header.
pub(crate) fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_is_where_the_request_came() {
        for (host, wanted) in [
            ("127.0.0.1:7300", "localhost:7300"),
            ("[::1]:7300", "localhost:7300"),
            ("localhost:7300", "localhost:7300"),
            ("localhost", "localhost"),
            ("api.sandbox.example.com", "sandbox.example.com"),
            ("sandbox.example.com:8443", "sandbox.example.com:8443"),
            ("192.0.2.1:7300", "192.0.2.1:7300"),
            ("", "localhost"),
            ("a b", "localhost"),
        ] {
            assert_eq!(below(host), wanted, "{host}");
        }
    }
}
