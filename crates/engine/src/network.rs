//! The way out of a sandbox whose policy has one.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandstorm_egress::{Boundary, EgressProxy, Options, Sockets, SystemResolver, Upstream, Watch, Watchers};
use sandstorm_jail::network::Captured;
use sandstorm_provider::{Error, Events, ProviderEvent, Refusals, Result, Tasks};
use sandstorm_types::{Denied, ErrorKind, IpNetwork, Nat64Prefix, NetworkPolicy, SandboxId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Denials that may wait to be told.
const DENIALS: usize = 64;

/// The way out of one sandbox. Dropping it ends every connection.
#[derive(Debug)]
pub(crate) struct Egress {
    sandbox: SandboxId,
    /// None: nothing was captured, so nothing gets out.
    proxy: Mutex<Option<EgressProxy>>,
    /// Who collects what is refused. They outlive a proxy and may come before it.
    watchers: Arc<Watchers>,
}

impl Egress {
    /// Serves the sockets that the jail captured every connection with. Without any there is no way out.
    pub(crate) fn start(
        sandbox: SandboxId,
        descriptors: Vec<OwnedFd>,
        policy: &NetworkPolicy,
        with: &Surroundings,
    ) -> Result<Self> {
        let watchers = Arc::<Watchers>::default();
        let proxy = match descriptors.is_empty() {
            true if *policy != NetworkPolicy::None => {
                return Err(Error::new(ErrorKind::Isolation, "the network of the sandbox was not captured"));
            }
            true => None,
            false => Some(with.serve(sandbox, descriptors, policy.clone(), &watchers)?),
        };
        Ok(Self { sandbox, proxy: Mutex::new(proxy), watchers })
    }

    fn proxy(&self) -> MutexGuard<'_, Option<EgressProxy>> {
        self.proxy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Collects what is refused from now on.
    pub(crate) fn watch(&self) -> Watch {
        self.watchers.watch()
    }

    pub(crate) fn is_captured(&self) -> bool {
        self.proxy().is_some()
    }

    /// Changes the policy at once; connections that it does not allow are over. `descriptors`: what was captured just
    /// now, of a sandbox that had no network before.
    pub(crate) fn change(
        &self,
        descriptors: Vec<OwnedFd>,
        policy: NetworkPolicy,
        with: &Surroundings,
    ) -> Result<()> {
        let mut proxy = self.proxy();
        match &*proxy {
            Some(proxy) => proxy.set_policy(policy),
            None if descriptors.is_empty() => {}
            None => *proxy = Some(with.serve(self.sandbox, descriptors, policy, &self.watchers)?),
        }
        Ok(())
    }
}

/// A collection of refusals as providers give it out.
#[derive(Debug)]
pub(crate) struct Seen(pub(crate) Watch);

impl Refusals for Seen {
    fn seen(&self) -> Vec<Denied> {
        self.0.seen()
    }
}

/// What every way out shares.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    resolver: Arc<SystemResolver>,
    boundary: Arc<Boundary>,
    events: Events,
    tasks: Tasks,
}

impl Surroundings {
    pub(crate) fn new(denied: Vec<IpNetwork>, nat64: Vec<Nat64Prefix>, events: Events, tasks: Tasks) -> Self {
        // With lookups of its own: no sandbox can use them up.
        let boundary = Arc::new(Boundary::new(denied, nat64, Arc::new(SystemResolver::default())));
        Self { resolver: Arc::new(SystemResolver::default()), boundary, events, tasks }
    }

    fn serve(
        &self,
        sandbox: SandboxId,
        descriptors: Vec<OwnedFd>,
        policy: NetworkPolicy,
        watchers: &Arc<Watchers>,
    ) -> Result<EgressProxy> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| {
            Error::new(ErrorKind::Isolation, "the way out of the sandbox could not be made")
                .with_source(source)
        };
        let captured = Captured::from_fds(descriptors).map_err(|e| failed(e.into()))?;
        let sockets = Sockets { tcp: captured.tcp, dns_udp: captured.dns_udp, dns_tcp: captured.dns_tcp };
        let upstream = Upstream { resolver: Arc::new(self.resolver.for_sandbox()), ..Upstream::default() };
        let (sender, mut denials) = mpsc::channel(DENIALS);
        let boundary = Arc::clone(&self.boundary);
        let watchers = Arc::clone(watchers);
        let options = Options { denials: Some(sender), boundary, watchers, ..Options::default() };
        let events = self.events.clone();
        // Ends with the proxy, which holds the other end.
        self.tasks.start("denials", async move {
            while let Some(denial) = denials.recv().await {
                let destination = denial.target().unwrap_or_else(|| "an unknown destination".to_owned());
                let reason = denial.reason.to_string();
                events.tell(ProviderEvent::Denied { sandbox, destination, reason });
            }
        });
        EgressProxy::start(sockets, policy, upstream, options, CancellationToken::new())
            .map_err(|e| failed(e.into()))
    }
}
