//! Which sandbox and port a request is for: by its host, `{port}-{id}.{domain}`, or by two headers.

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
    /// Whether a request is for a sandbox, by its host or its headers.
    pub fn claims(&self, parts: &Parts) -> bool {
        let named = [SANDBOX_HEADER, PORT_HEADER].iter().any(|name| parts.headers.contains_key(*name));
        named || self.host_address(parts).is_some()
    }

    /// Whether the body of a request that is claimed has no end of its own: it is input for a program.
    pub fn is_endless(&self, parts: &Parts) -> bool {
        self.address(parts).is_ok_and(|address| match address.port {
            ENVD_PORT => parts.uri.path() == process::STREAM_INPUT,
            port => port != INTERPRETER_PORT,
        })
    }

    /// `{port}-{id}.{domain}`.
    fn host_address(&self, parts: &Parts) -> Option<Address> {
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.or_else(|| parts.uri.authority().map(http::uri::Authority::as_str))?;
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

fn port_number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The one value of a header.
pub(crate) fn one<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}
