//! The way out of a sandbox whose policy has one.

use std::os::fd::OwnedFd;

use sandstorm_egress::{EgressProxy, Options, Sockets, SystemResolver, Upstream};
use sandstorm_jail::network::Captured;
use sandstorm_provider::{Error, Result};
use sandstorm_types::{ErrorKind, NetworkPolicy};
use tokio_util::sync::CancellationToken;

/// The proxy of one sandbox. Dropping it ends every connection.
#[derive(Debug)]
pub(crate) struct Egress {
    _proxy: EgressProxy,
}

impl Egress {
    /// Serves the sockets that the jail captured every connection with. None: the policy lets nothing out.
    pub(crate) fn start(
        descriptors: Vec<OwnedFd>,
        policy: &NetworkPolicy,
        resolver: &SystemResolver,
    ) -> Result<Option<Self>> {
        if *policy == NetworkPolicy::None {
            return Ok(None);
        }
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(ErrorKind::Isolation, "the way out of the sandbox could not be made")
                .with_source(source)
        };
        let captured = Captured::from_fds(descriptors).map_err(|e| failed(e.into()))?;
        let sockets = Sockets { tcp: captured.tcp, dns_udp: captured.dns_udp, dns_tcp: captured.dns_tcp };
        let upstream =
            Upstream { resolver: std::sync::Arc::new(resolver.for_sandbox()), ..Upstream::default() };
        let proxy = EgressProxy::start(
            sockets,
            policy.clone(),
            upstream,
            Options::default(),
            CancellationToken::new(),
        )
        .map_err(|e| failed(e.into()))?;
        Ok(Some(Self { _proxy: proxy }))
    }
}
